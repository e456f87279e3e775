"""A hospital's part in the secure sum of a round; see `chestfed.leaves.federation.secure_sum`.

keys      its public keys of the round
share     shares of its secrets, encrypted for the others
mask      local work, and its weighted numbers with masks
confirm   a signature below the list of survivors, or the list that this round was revealed for before
reveal    shares, for one list: a round that is asked again is revealed for the same survivors, never for others, so
          that no difference of two sums is one hospital's update; what was revealed is kept, and given out again
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import TypeAdapter, ValidationError

from chestfed.core.checkpoint import write_json
from chestfed.core.config import StrictModel
from chestfed.core.errors import ConfigError
from chestfed.learning.engines.messages.wire import LARGEST_COUNT
from chestfed.leaves.federation import keys
from chestfed.leaves.federation.parcels import Refused
from chestfed.leaves.federation.secure_sum.member import Keys, Member
from chestfed.leaves.federation.settings import Hospital

Value = TypeVar("Value")

_TURNS = re.compile("[0-9-]{1,1000}")
STEPS = ("keys", "share", "mask", "confirm", "reveal")
_Texts = TypeAdapter(dict[str, str])
_Triples = TypeAdapter(dict[str, tuple[str, str, str]])
_Names = TypeAdapter(list[str])


class Revealed(StrictModel):
    """Shares that were given out: of which round, as the server names it, and for which survivors."""

    round: list[int | str | None]
    survivors: list[str]
    revealed: dict[str, str]


_Records = TypeAdapter(dict[str, Revealed])


@dataclass(frozen=True)
class SumRound:
    """Which sum: study, K, members, the turn of each, as the server says, and the attempt."""

    study: str
    k: int
    names: tuple[str, ...]
    turns: str
    attempt: int

    @property
    def context(self) -> bytes:
        """Names the round: nothing of another passes for one of this."""
        parts = [self.study, f"k{self.k}", f"turns {self.turns}", f"attempt {self.attempt}", *self.names]
        return "|".join(parts).encode()


def choose_threshold(members: int) -> int:
    """Members without whom there is no sum: more than two thirds, and three."""
    return max(3, 2 * members // 3 + 1)


class Summing:
    """The secure sums of one study at a hospital, one at a time."""

    def __init__(self, hospital: Hospital, study: str, folder: Path) -> None:
        self._hospital, self._study, self._file = hospital, study, folder / "revealed.json"
        self._name = hospital.file.hospital
        self._round: SumRound | None = None
        self._member: Member | None = None
        self._public: dict[str, ec.EllipticCurvePublicKey] = {}
        self._mark = ""  # K and this client's own turn, which the server cannot choose

    def begin(self, k: int, allowed: Sequence[str], values: Mapping[str, object]) -> dict[str, object]:
        """Step `keys`; `allowed` are the hospitals of stage 2, in their order.

        Raises
        ------
        Refused
            If the members are not hospitals of stage 2, or the key of one is not beside `hospital.yaml`.
        """
        names, turns, attempt = _read(_Names, values.get("members")), values.get("turns"), values.get("attempt")
        if [name for name in allowed if name in names] != names or self._name not in names or len(names) < 3:
            raise Refused("secure sum: the members are not three or more hospitals of this stage 2", kind="members")
        if type(attempt) is not int or not 0 <= attempt <= LARGEST_COUNT or not _TURNS.fullmatch(str(turns)):
            raise Refused("secure sum: the round is not named", kind="members")
        for name in names:
            file = self._hospital.path("members") / f"{name}.pub"
            if not file.exists():
                raise Refused(
                    f"secure sum: the public key of {name} is not in `members` of {self._name}: get {name}.pub from "
                    "that hospital, not from the server, and compare its fingerprint by telephone",
                    kind="no key of a member",
                    hospital=name,
                )
            self._public[name] = keys.read_public_key(file)
        self._round, self._mark = SumRound(self._study, k, tuple(names), str(turns), attempt), ""
        private, context = keys.read_key(self._hospital.path("key")), self._round.context
        self._member = Member(
            self._name,
            names,
            choose_threshold(len(names)),
            context,
            lambda text: private.sign(text, ec.ECDSA(hashes.SHA256())),
            self._verify,
        )
        given = self._member.advertise()
        return {"keys": [given.mask_key.hex(), given.share_key.hex(), given.signature.hex()]}

    def holds(self, values: Mapping[str, object]) -> bool:
        """Whether the round of a request is under way here; a restart forgets it."""
        current = self._round
        return current is not None and (current.turns, current.attempt) == (values.get("turns"), values.get("attempt"))

    def share(self, values: Mapping[str, object]) -> dict[str, object]:
        """Step `share`."""
        given = _read(_Triples, values.get("keys"))
        public = {name: Keys(*(_bytes(part) for part in parts)) for name, parts in given.items()}
        return {"shares": _hex(self._require_member.share(public))}

    def mask(self, numbers: np.ndarray, turn: int, values: Mapping[str, object]) -> np.ndarray:
        """Step `mask`, of integers uint64 `[n]` that this client computed from its own `turn` on."""
        assert self._round is not None
        self._mark = f"k{self._round.k} turn {turn}"
        return self._require_member.mask(numbers, _unhex(values.get("shares")))

    def confirm(self, values: Mapping[str, object]) -> dict[str, object]:
        """Step `confirm`."""
        survivors, before = _read_survivors(values), self._read_revealed().get(self._mark)
        if before is not None and before.survivors != survivors:
            return {"before": before.survivors}
        return {"signature": self._require_member.confirm(survivors).hex()}

    def reveal(self, values: Mapping[str, object]) -> dict[str, object]:
        """Step `reveal`; it is written to disk before anything leaves."""
        survivors, signatures = _read_survivors(values), _unhex(values.get("signatures"))
        revealed = _hex(self._require_member.reveal(survivors, signatures))
        record = Revealed(round=_name_round(values), survivors=survivors, revealed=revealed)
        records = self._read_revealed() | {self._mark: record}
        write_json(self._file, _Records.dump_python(records))
        return {"revealed": revealed}

    def recall(self, values: Mapping[str, object]) -> dict[str, object] | None:
        """What was revealed of this round for these survivors, or None."""
        about = (_name_round(values), _read_survivors(values))
        for record in self._read_revealed().values():
            if (record.round, record.survivors) == about:
                return {"revealed": record.revealed}
        return None

    @property
    def members(self) -> int:
        """How many members the round has."""
        assert self._round is not None
        return len(self._round.names)

    @property
    def _require_member(self) -> Member:
        assert self._member is not None
        return self._member

    def _read_revealed(self) -> dict[str, Revealed]:
        """By K and turn; raises `ConfigError` if the file is damaged, because a round is revealed for one list only."""
        if not self._file.exists():
            return {}
        try:
            return _Records.validate_json(self._file.read_bytes())
        except ValidationError:
            text = f"{self._file}: damaged; it says for whom rounds were revealed. Put it back from a backup"
            raise ConfigError(text, kind="damaged file", file=str(self._file)) from None

    def _verify(self, name: str, text: bytes, signature: bytes) -> bool:
        try:
            self._public[name].verify(signature, text, ec.ECDSA(hashes.SHA256()))
        except (InvalidSignature, KeyError):
            return False
        return True


def _name_round(values: Mapping[str, object]) -> list[int | str | None]:
    return [value if isinstance(value := values.get(key), int | str) else None for key in ("k", "turns", "attempt")]


def _read_survivors(values: Mapping[str, object]) -> list[str]:
    names = _read(_Names, values.get("survivors"))
    return sorted(names)


def _read(kind: TypeAdapter[Value], value: object) -> Value:
    try:
        return kind.validate_python(value)
    except ValidationError:
        raise Refused("secure sum: the request cannot be read", kind="unreadable") from None


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise Refused("secure sum: the request cannot be read", kind="unreadable") from None


def _hex(values: Mapping[str, bytes]) -> dict[str, str]:
    return {name: value.hex() for name, value in values.items()}


def _unhex(value: object) -> dict[str, bytes]:
    return {name: _bytes(text) for name, text in _read(_Texts, value).items()}
