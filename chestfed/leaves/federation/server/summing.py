"""The server's part in the secure sum of a round: it relays keys, and adds up what all hospitals answer."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from chestfed.core.errors import TrainingError
from chestfed.learning.engines.messages.wire import Packed, WireError, unpack
from chestfed.learning.engines.sums.fixed_point import Masked, decode
from chestfed.leaves.federation.hospital.summing import SPOILED, hash_request
from chestfed.leaves.federation.parcels import Parcel
from chestfed.leaves.federation.server.conversation import Conversation, Question

_PAIR = TypeAdapter(tuple[str, str])


class SumServer:
    """Secure sums with the hospitals of one K; `like` has the shape of what they send."""

    def __init__(self, conversation: Conversation, k: int, like: Masked, attempts: int) -> None:
        self._conversation, self._k, self._like, self._attempts = conversation, k, like, attempts
        self._attempt = secrets.randbits(40)  # a restarted server does not name a round as the one before did

    def sum(self, work: Mapping[str, Packed], after: int) -> np.ndarray:
        """The sum modulo 2^64 of the hospitals' numbers, uint64 `[n]`.

        `work` is the packed request for local work by hospital, the same for all, from turn `after` on. An attempt in
        which a hospital was started anew is made again.

        Raises
        ------
        TrainingError
            If no attempt succeeds, or a hospital has numbers that cannot be summed.
        """
        for _ in range(self._attempts):
            self._attempt += 1
            head = {"k": self._k, "attempt": self._attempt}
            ask = {
                name: Question(
                    "sum",
                    {**head, "step": "keys", "after": after, "work": hash_request(packed)},
                    read=_make_keys_reader(name),
                )
                for name, packed in work.items()
            }
            keys = self._conversation.ask(ask)
            about = {**head, "step": "mask", "keys": keys}
            masked: dict[str, Any] = self._conversation.ask(
                {name: Question("sum", about, packed, self._make_mask_reader(name)) for name, packed in work.items()}
            )
            if any(values is None for values in masked.values()):
                continue
            total = np.asarray(np.sum(list(masked.values()), axis=0, dtype=np.uint64))
            if not 0 <= decode(total)[-2] < -SPOILED:  # the number of gradients
                raise TrainingError(
                    "secure sum: the numbers of a hospital are not finite or too large; its log says so. Lower "
                    "federated.local_lr or federated.window",
                    kind="update too large",
                )
            return total
        raise TrainingError(
            f"secure sum: no attempt of {self._attempts} succeeded; the same command resumes with this round",
            kind="no sum",
        )

    def _make_mask_reader(self, name: str) -> Callable[[Parcel], Any]:
        def read(parcel: Parcel) -> Any:
            if parcel.values.get("lost") is True:
                return None
            return unpack(parcel.packed, self._like, name, "cpu").values.numpy().view(np.uint64)

        return read


def _make_keys_reader(name: str) -> Callable[[Parcel], Any]:
    def read(parcel: Parcel) -> Any:
        try:
            return _PAIR.validate_python(parcel.values.get("keys"))
        except ValidationError:
            raise WireError(f"{name} sent keys of a secure sum that cannot be read", kind="secure sum") from None

    return read
