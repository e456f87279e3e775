"""A hospital's part in the secure sum of a round; see `chestfed.federation.secure_sum`.

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
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import TypeAdapter, ValidationError

from chestfed.core.checkpoint import read_json, write_json
from chestfed.engines.messages.wire import LARGEST_COUNT
from chestfed.federation import keys
from chestfed.federation.parcels import Refused
from chestfed.federation.secure_sum.member import Keys, Member
from chestfed.federation.settings import Hospital

_TURNS = re.compile("[0-9-]{1,1000}")
STEPS = ("keys", "share", "mask", "confirm", "reveal")
_Texts = TypeAdapter(dict[str, str])
_Triples = TypeAdapter(dict[str, tuple[str, str, str]])
_Names = TypeAdapter(list[str])


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

    def begin(self, k: int, allowed: Sequence[str], values: Mapping[str, Any]) -> dict[str, Any]:
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

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether the round of a request is under way here; a restart forgets it."""
        current = self._round
        return current is not None and (current.turns, current.attempt) == (values.get("turns"), values.get("attempt"))

    def share(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Step `share`."""
        given = _read(_Triples, values.get("keys"))
        public = {name: Keys(*(_bytes(part) for part in parts)) for name, parts in given.items()}
        return {"shares": _hex(self._require_member.share(public))}

    def mask(self, numbers: np.ndarray, turn: int, values: Mapping[str, Any]) -> np.ndarray:
        """Step `mask`, of integers uint64 `[n]` that this client computed from its own `turn` on."""
        assert self._round is not None
        self._mark = f"k{self._round.k} turn {turn}"
        return self._require_member.mask(numbers, _unhex(values.get("shares")))

    def confirm(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Step `confirm`."""
        survivors, before = sorted(_read(_Names, values.get("survivors"))), self._read_revealed().get(self._mark)
        if before is not None and before["survivors"] != survivors:
            return {"before": before["survivors"]}
        return {"signature": self._require_member.confirm(survivors).hex()}

    def reveal(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Step `reveal`; it is written to disk before anything leaves."""
        survivors, signatures = sorted(_read(_Names, values.get("survivors"))), _unhex(values.get("signatures"))
        revealed = {"revealed": _hex(self._require_member.reveal(survivors, signatures))}
        record = {"round": _name_round(values), "survivors": survivors, **revealed}
        write_json(self._file, self._read_revealed() | {self._mark: record})
        return revealed

    def recall(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        """What was revealed of this round for these survivors, or None."""
        about = [_name_round(values), sorted(_read(_Names, values.get("survivors")))]
        for record in self._read_revealed().values():
            if [record["round"], record["survivors"]] == about:
                return {"revealed": record["revealed"]}
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

    def _read_revealed(self) -> dict[str, dict[str, Any]]:
        return dict(read_json(self._file)) if self._file.exists() else {}

    def _verify(self, name: str, text: bytes, signature: bytes) -> bool:
        try:
            self._public[name].verify(signature, text, ec.ECDSA(hashes.SHA256()))
        except (InvalidSignature, KeyError):
            return False
        return True


def _name_round(values: Mapping[str, Any]) -> list[Any]:
    return [values.get("k"), values.get("turns"), values.get("attempt")]


def _read(kind: TypeAdapter[Any], value: object) -> Any:
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
