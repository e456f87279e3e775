"""One member's part in a secure sum, and the server's last step.

What the server sees of member u is its values plus a mask of its own and, for every other member, a mask that the other
subtracts; all are streams of AES-256 in counter mode, so uniform to anybody without the seeds. The server can remove
the masks of the survivors' sum alone: of each member the others reveal shares of the own mask's seed if it survived, or
of its key for the masks with others if it did not, and never of both, because a member reveals once, for one list of
survivors, which `threshold` members have signed. With `threshold` above two thirds of the members no server can have
two lists signed, so a server that lies learns no single update either, as long as at most `2 threshold - n - 1` of the
n members help it. It learns the sum, and who took part; with two survivors each of them learns the other's values from
the sum, so a round needs three.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from chestfed.core.errors import TrainingError
from chestfed.leaves.federation.secure_sum.shares import SECRET_BYTES, SHARE_BYTES, divide_secret, join_shares

#: Survivors that a round needs.
LEAST_SURVIVORS: Final = 3

Sign = Callable[[bytes], bytes]
#: The member's name, what it signed, and the signature.
Verify = Callable[[str, bytes, bytes], bool]


@dataclass(frozen=True)
class Keys:
    """A member's public keys of one round, signed with its key of the federation."""

    mask_key: bytes  #: for the masks it has with others
    share_key: bytes  #: for what others send it
    signature: bytes


class Member:
    """One member in one round; each method is called once, in order.

    `context` names study, K, stage and round: nothing of another round passes for one of this. `sign` and `verify` are
    those of the federation's keys.
    """

    def __init__(
        self, name: str, members: Sequence[str], threshold: int, context: bytes, sign: Sign, verify: Verify
    ) -> None:
        check_threshold(len(members), threshold)
        if len(set(members)) != len(members) or name not in members:
            raise ValueError("members have different names, and this one is among them")
        self._name, self._members, self._threshold = name, tuple(members), threshold
        self._context, self._sign, self._verify = context, sign, verify
        self._mask_key, self._share_key = X25519PrivateKey.generate(), X25519PrivateKey.generate()
        self._seed = secrets.token_bytes(SECRET_BYTES)
        self._keys: dict[str, Keys] = {}
        self._shares: dict[str, tuple[bytes, bytes]] = {}  # of a member's mask key, and of its seed
        self._confirmed: tuple[str, ...] | None = None
        self._has_revealed = False

    def advertise(self) -> Keys:
        """Public keys of this member."""
        mask_key, share_key = (key.public_key().public_bytes_raw() for key in (self._mask_key, self._share_key))
        return Keys(mask_key, share_key, self._sign(_keys_text(self._context, mask_key, share_key)))

    def share(self, keys: Mapping[str, Keys]) -> dict[str, bytes]:
        """Ciphertexts for the other members, by name: shares of this member's mask key and of its seed.

        Raises
        ------
        TrainingError
            If a signature is false, keys repeat, or fewer than `threshold` members gave keys.
        """
        for name, public in keys.items():
            text = _keys_text(self._context, public.mask_key, public.share_key)
            if name not in self._members or not self._verify(name, text, public.signature):
                raise TrainingError(f"secure sum: the keys of '{name}' are not signed by it", kind="false keys")
        if len({public.mask_key for public in keys.values()}) < len(keys) or self._name not in keys:
            raise TrainingError("secure sum: two members have one key, or this one has none", kind="false keys")
        self._require(keys, "gave keys")
        self._keys = dict(keys)
        count, threshold = len(self._members), self._threshold
        parts = [divide_secret(secret, count, threshold) for secret in (self._mask_key.private_bytes_raw(), self._seed)]
        ciphertexts = {}
        for name, share, seed in zip(self._members, *parts, strict=True):
            if name == self._name:
                self._shares[name] = (share, seed)
            elif name in keys:
                ciphertexts[name] = self._cipher(name, self._name).encrypt(_NONCE, share + seed, None)
        return ciphertexts

    def mask(self, values: np.ndarray, ciphertexts: Mapping[str, bytes]) -> np.ndarray:
        """Values uint64 `[n]` with this member's masks; `ciphertexts` are those from other members, by name.

        Raises
        ------
        TrainingError
            If a ciphertext is false, or fewer than `threshold` members sent one.
        """
        for name, sealed in ciphertexts.items():
            try:
                opened = self._cipher(name, name).decrypt(_NONCE, sealed, None)
            except (InvalidTag, KeyError):
                raise TrainingError(f"secure sum: the shares of '{name}' are damaged", kind="false shares") from None
            self._shares[name] = (opened[:SHARE_BYTES], opened[SHARE_BYTES:])
        self._require(self._shares, "sent shares")
        masked = values + expand_seed(self._seed, len(values))
        for name in self._shares:
            if name != self._name:
                masked = _add_pair_mask(
                    masked, self._name, name, agree(self._mask_key, self._keys[name].mask_key, self._context)
                )
        return masked

    def confirm(self, survivors: Collection[str]) -> bytes:
        """A signature below the list of members whose masked values came.

        Raises
        ------
        TrainingError
            If the list names others than those that sent shares, or has too few; or a list was confirmed before.
        """
        names = tuple(sorted(survivors))
        if self._confirmed is not None or not set(names) <= set(self._shares) or len(set(names)) != len(names):
            raise TrainingError("secure sum: a second or a false list of survivors", kind="false survivors")
        self._require(names, "answered", max(LEAST_SURVIVORS, self._threshold))
        self._confirmed = names
        return self._sign(_survivors_text(self._context, names))

    def reveal(self, survivors: Collection[str], signatures: Mapping[str, bytes]) -> dict[str, bytes]:
        """Shares of every survivor's seed, and of the mask key of every member that shared and is gone.

        Raises
        ------
        TrainingError
            If this is not the list it confirmed, `threshold` members did not sign it, or it has revealed before.
        """
        names = tuple(sorted(survivors))
        if self._has_revealed or names != self._confirmed:
            raise TrainingError("secure sum: shares are revealed once, for the confirmed list", kind="false survivors")
        text = _survivors_text(self._context, names)
        signers = [name for name, signature in signatures.items() if self._verify(name, text, signature)]
        self._require([name for name in signers if name in names], "signed the list of survivors")
        self._has_revealed = True
        return {name: seed if name in names else key for name, (key, seed) in self._shares.items()}

    def _require(self, names: Collection[str], what: str, least: int | None = None) -> None:
        least = self._threshold if least is None else least
        if len(names) < least:
            raise TrainingError(
                f"secure sum: {len(names)} members {what}, {least} are needed", kind="too few members", needed=least
            )

    def _cipher(self, partner: str, sender: str) -> AESGCM:
        """The cipher for what `sender`, this member or the partner, sends the other: each direction has a key."""
        label = b"\0".join((self._context, b"shares", sender.encode()))
        return AESGCM(agree(self._share_key, self._keys[partner].share_key, label))


def recover_sum(
    masked: np.ndarray,
    survivors: Collection[str],
    keys: Mapping[str, Keys],
    sharers: Collection[str],
    revealed: Mapping[str, Mapping[str, bytes]],
    members: Sequence[str],
    threshold: int,
    context: bytes,
) -> np.ndarray:
    """The sum modulo 2^64 of the survivors' values, uint64 `[n]`.

    `masked` is the sum of what they sent, `keys` and `sharers` of those that gave keys and shares, `revealed` the
    answers of `reveal`.

    Raises
    ------
    TrainingError
        If fewer than `threshold` members revealed shares, or a share is false.
    """
    if len(revealed) < threshold:
        raise TrainingError(
            f"secure sum: {len(revealed)} members revealed shares, {threshold} are needed",
            kind="too few members",
            needed=threshold,
        )
    places = {name: place for place, name in enumerate(members, start=1)}
    recovered = {
        name: join_shares({places[giver]: shares[name] for giver, shares in list(revealed.items())[:threshold]})
        for name in sharers
    }
    total = masked
    for name in survivors:
        total = total - expand_seed(recovered[name], len(total))
    for name in set(sharers) - set(survivors):
        key = X25519PrivateKey.from_private_bytes(recovered[name])
        if key.public_key().public_bytes_raw() != keys[name].mask_key:
            raise TrainingError(f"secure sum: the shares of the key of '{name}' are false", kind="false shares")
        for survivor in survivors:  # the survivor's masks with the one that is gone did not cancel
            seed = agree(key, keys[survivor].mask_key, context)
            total = _add_pair_mask(total, name, survivor, seed)
    return total


def check_threshold(members: int, threshold: int) -> None:
    """Raise `ValueError` unless two thirds of the members, and three, are needed."""
    if not max(LEAST_SURVIVORS, 2 * members // 3 + 1) <= threshold <= members:
        raise ValueError(
            f"a secure sum of {members} members needs a threshold from {max(LEAST_SURVIVORS, 2 * members // 3 + 1)} to "
            f"{members}, not {threshold}"
        )


def agree(private: X25519PrivateKey, public: bytes, context: bytes) -> bytes:
    """The seed of 32 bytes that two members share, by Diffie and Hellman."""
    secret = private.exchange(X25519PublicKey.from_public_bytes(public))
    return HKDF(hashes.SHA256(), SECRET_BYTES, salt=None, info=context).derive(secret)


def expand_seed(seed: bytes, count: int) -> np.ndarray:
    """`count` numbers uint64 of a seed of 32 bytes: AES-256 in counter mode. A seed serves once."""
    stream = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(stream.update(bytes(8 * count)), "<u8").astype(np.uint64)


def _add_pair_mask(values: np.ndarray, member: str, other: str, seed: bytes) -> np.ndarray:
    """Values with the mask of two members: added by the one whose name comes first, subtracted by the other."""
    mask = expand_seed(seed, len(values))
    return values + mask if member < other else values - mask


#: Every key encrypts one message.
_NONCE: Final = bytes(12)


def _keys_text(context: bytes, mask_key: bytes, share_key: bytes) -> bytes:
    return b"keys\0" + context + b"\0" + mask_key + share_key


def _survivors_text(context: bytes, names: Sequence[str]) -> bytes:
    return b"survivors\0" + context + b"\0" + "\0".join(names).encode()
