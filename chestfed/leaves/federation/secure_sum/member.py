"""One member's part in a secure sum.

What the server sees of a member is its values plus a mask for every other member, which is a stream of AES-256 in
counter mode, so uniform to anybody without one of the two keys. Only the sum over all members is free of masks. A
server that sends members different requests, names other members, or relays false keys gets no sum: keys are signed
together with the `context`, a hash of all that must be equal. All members but one, together with the server, learn that
one's values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from chestfed.core.errors import TrainingError

#: With two members each learns the other's values from the sum.
LEAST_MEMBERS: Final = 3

Sign = Callable[[bytes], bytes]
#: The member's name, what it signed, and the signature.
Verify = Callable[[str, bytes, bytes], bool]


@dataclass(frozen=True)
class Keys:
    """A member's public key of one round, signed with its key of the federation."""

    mask_key: bytes
    signature: bytes


class Member:
    """One member in one round; each method is called once, in order.

    `sign` and `verify` are those of the federation's keys.

    Raises
    ------
    ValueError
        If there are fewer than three members, two have one name, or this one is not among them.
    """

    def __init__(self, name: str, members: Sequence[str], context: bytes, sign: Sign, verify: Verify) -> None:
        if len(set(members)) != len(members) or name not in members or len(members) < LEAST_MEMBERS:
            raise ValueError("three members or more have different names, and this one is among them")
        self._name, self._members, self._context = name, tuple(members), context
        self._sign, self._verify = sign, verify
        self._key: X25519PrivateKey | None = X25519PrivateKey.generate()
        self._public = self._key.public_key().public_bytes_raw()
        self._keys: dict[str, Keys] = {}

    def advertise(self) -> Keys:
        """The public key of this member."""
        return Keys(self._public, self._sign(_keys_text(self._context, self._public)))

    def accept(self, keys: Mapping[str, Keys]) -> None:
        """Take the keys of all members, by name.

        Raises
        ------
        TrainingError
            If a key is missing, false, there twice, or signed for anything else than this round.
        """
        if set(keys) != set(self._members) or keys[self._name].mask_key != self._public:
            raise TrainingError("secure sum: these are not the keys of the members", kind="false keys")
        for name, public in keys.items():
            if not self._verify(name, _keys_text(self._context, public.mask_key), public.signature):
                text = f"secure sum: '{name}' has not signed its key for this sum; was it asked for something else?"
                raise TrainingError(text, kind="false keys")
        if len({public.mask_key for public in keys.values()}) < len(keys):
            raise TrainingError("secure sum: two members have one key", kind="false keys")
        self._keys = dict(keys)

    def mask(self, values: np.ndarray) -> np.ndarray:
        """Values uint64 `[n]` with this member's masks, once.

        Raises
        ------
        TrainingError
            If no keys were accepted, or they have masked numbers before.
        """
        if self._key is None or not self._keys:
            raise TrainingError("secure sum: no keys, or they have masked numbers before", kind="keys used")
        masked = values.copy()
        for name in self._members:
            if name != self._name:
                mask = expand_seed(agree(self._key, self._keys[name].mask_key, self._context), len(values))
                masked = masked + mask if self._name < name else masked - mask
        self._key = None
        return masked


def agree(private: X25519PrivateKey, public: bytes, context: bytes) -> bytes:
    """The seed of 32 bytes that two members share, by Diffie and Hellman."""
    try:
        secret = private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise TrainingError("secure sum: a key is no point of the curve", kind="false keys") from None
    return HKDF(hashes.SHA256(), 32, salt=None, info=context).derive(secret)


def expand_seed(seed: bytes, count: int) -> np.ndarray:
    """`count` numbers uint64 of a seed of 32 bytes: AES-256 in counter mode. A seed serves once."""
    stream = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(stream.update(bytes(8 * count)), "<u8").astype(np.uint64)


def _keys_text(context: bytes, mask_key: bytes) -> bytes:
    return b"chestfed secure sum, keys\0" + context + b"\0" + mask_key
