"""A hospital's part in the secure sum of a round; see `chestfed.leaves.federation.secure_sum`.

keys      its public key of the round, signed for this sum and no other
mask      local work, and its weighted numbers with masks

What two sums of different members, or of different weights, have in common cancels in their difference, and one update
is left. So a hospital takes part in sums of one list of members with one list of weights only, in all its studies, and
each sum is of all members. What is summed has one history: members whose earlier requests differ do not agree on keys.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import TypeAdapter, ValidationError

from chestfed.core.checkpoint import write_json
from chestfed.core.config import StrictModel
from chestfed.core.errors import ConfigError
from chestfed.learning.algorithms.variables import Move
from chestfed.learning.engines.messages.requests import Worked
from chestfed.learning.engines.messages.wire import LARGEST_COUNT, Packed
from chestfed.learning.engines.sums.fixed_point import Masked, encode
from chestfed.leaves.federation import keys
from chestfed.leaves.federation.parcels import Refused
from chestfed.leaves.federation.secure_sum.member import LEAST_MEMBERS, Keys, Member
from chestfed.leaves.federation.settings import Hospital

_Pairs = TypeAdapter(dict[str, tuple[str, str]])
#: In the state folder: the members and weights of all secure sums of this hospital.
CIRCLE = "sums.json"
#: What a hospital whose numbers cannot be summed has for its number of gradients, so that the sum shows that one
#: failed, and not which: a hospital that refused would tell of its update alone. Several do not wrap around to 0.
SPOILED = -float((1 << 20) + (1 << 13))


class Circle(StrictModel):
    """The members of secure sums in their order, and the weights of their numbers."""

    members: list[str]
    weights: list[float]


@dataclass(frozen=True)
class SumRound:
    """Which sum: what all members did so far, the request for work, the members and the attempt."""

    lineage: str
    work: str
    members: tuple[str, ...]
    attempt: int

    @property
    def context(self) -> bytes:
        """32 bytes that are equal if all of it is."""
        return hashlib.sha256(json.dumps([self.lineage, self.work, *self.members, self.attempt]).encode()).digest()


def hash_request(packed: Packed) -> str:
    """SHA-256 of a request: header, and numbers with their types."""
    digest = hashlib.sha256(len(packed.header).to_bytes(8, "big") + packed.header)
    for kind, array in sorted(packed.arrays.items()):
        digest.update(kind.encode() + array.size.to_bytes(8, "big"))
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def extend_lineage(lineage: str, request: str) -> str:
    """The history of a client's state after a request, from that before it and the request's hash."""
    return hashlib.sha256(f"{lineage} {request}".encode()).hexdigest()


def spoil(like: Worked[Move]) -> np.ndarray:
    """Numbers uint64 `[n]` of a hospital that has none that can be summed."""
    values = np.zeros(Masked.like(like).values.numel())
    values[-2] = SPOILED
    return encode(values, 1)


class Summing:
    """The secure sums of a hospital in one study, one at a time."""

    def __init__(self, hospital: Hospital) -> None:
        self._hospital, self._file = hospital, hospital.path("state") / CIRCLE
        self._name = hospital.file.hospital
        self._round: SumRound | None = None
        self._circle = Circle(members=[], weights=[])
        self._member: Member | None = None
        self._public: dict[str, ec.EllipticCurvePublicKey] = {}

    def begin(
        self, members: Sequence[str], weights: Sequence[float], lineage: str, values: Mapping[str, object]
    ) -> dict[str, object]:
        """Step `keys` of a sum of all hospitals of stage 2, for the work whose hash is in `values`.

        Raises
        ------
        Refused
            If the members are too few, or others than in earlier sums, or the key of one is not beside `hospital.yaml`.
        """
        attempt, work = values.get("attempt"), values.get("work")
        if type(attempt) is not int or not 0 <= attempt <= LARGEST_COUNT or not isinstance(work, str):
            raise Refused("secure sum: the round is not named", kind="members")
        if len(members) < LEAST_MEMBERS:
            raise Refused("secure sum: fewer than three hospitals", kind="members")
        self._circle = Circle(members=list(members), weights=list(weights))
        self._check_circle()
        for name in members:
            file = self._hospital.path("members") / f"{name}.pub"
            if not file.exists():
                raise Refused(
                    f"secure sum: the public key of {name} is not in `members` of {self._name}: get {name}.pub from "
                    "that hospital, not from the server, and compare its fingerprint by telephone",
                    kind="no key of a member",
                    hospital=name,
                )
            self._public[name] = keys.read_public_key(file)
        self._round = SumRound(lineage, work, tuple(members), attempt)
        private = keys.read_key(self._hospital.path("key"))
        self._member = Member(
            self._name,
            members,
            self._round.context,
            lambda text: private.sign(text, ec.ECDSA(hashes.SHA256())),
            self._verify,
        )
        given = self._member.advertise()
        return {"keys": [given.mask_key.hex(), given.signature.hex()]}

    def holds(self, values: Mapping[str, object], lineage: str, packed: Packed) -> bool:
        """Whether keys were made for this attempt; a restart forgets it.

        Raises
        ------
        Refused
            If they were made for other work, or another history of this client.
        """
        if self._round is None or self._round.attempt != values.get("attempt"):
            return False
        if (self._round.lineage, self._round.work) != (lineage, hash_request(packed)):
            raise Refused("secure sum: this is not the work that the keys were made for", kind="other work")
        return True

    def accept(self, values: Mapping[str, object]) -> None:
        """Take the keys of all members, before any work: a client's state has the history that they agreed upon.

        Raises
        ------
        TrainingError
            If one was not signed for this sum.
        """
        assert self._member is not None
        try:
            given = {
                name: Keys(*map(bytes.fromhex, pair))
                for name, pair in _Pairs.validate_python(values.get("keys")).items()
            }
        except ValueError:
            raise Refused("secure sum: the request cannot be read", kind="unreadable") from None
        self._member.accept(given)

    def mask(self, numbers: np.ndarray) -> np.ndarray:
        """Step `mask`, of integers uint64 `[n]`; the members are written to disk before anything leaves."""
        assert self._member is not None
        masked = self._member.mask(numbers)
        self._check_circle()
        write_json(self._file, self._circle.model_dump())
        self._round = self._member = None
        return masked

    @property
    def members(self) -> int:
        """How many members the round has."""
        return len(self._circle.members)

    def _check_circle(self) -> None:
        """Raise `Refused` if earlier sums had other members or weights, `ConfigError` if the file is damaged."""
        if not self._file.exists():
            return
        try:
            before = Circle.model_validate_json(self._file.read_bytes())
        except ValidationError:
            text = f"{self._file}: damaged; it says with whom this hospital sums. Put it back from a backup"
            raise ConfigError(text, kind="damaged file", file=str(self._file)) from None
        if before == self._circle:
            return
        what = "members" if before.members != self._circle.members else "weights"
        raise Refused(
            f"secure sum: {self._name} has sums of {', '.join(before.members)} and takes part in no others, because "
            f"the difference of two sums shows single updates; this one has other {what}. If all of them agree to "
            f"that, the hospitals delete {CIRCLE} in their state folders",
            kind="other sums",
            before=before.members,
        )

    def _verify(self, name: str, text: bytes, signature: bytes) -> bool:
        try:
            self._public[name].verify(signature, text, ec.ECDSA(hashes.SHA256()))
        except (InvalidSignature, KeyError):
            return False
        return True
