"""The server's part in the secure sum of a round: it relays, and recovers the sum of those that answered to the end."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError

from chestfed.core.checkpoint import load_checkpoint, save_checkpoint
from chestfed.core.config import StrictModel
from chestfed.core.errors import ConfigError, DamagedError, TrainingError
from chestfed.learning.engines.messages.wire import Packed, WireError, unpack
from chestfed.learning.engines.sums.fixed_point import Masked
from chestfed.leaves.federation.hospital.summing import SumRound, choose_threshold
from chestfed.leaves.federation.parcels import Parcel
from chestfed.leaves.federation.secure_sum.member import Keys, recover_sum
from chestfed.leaves.federation.server.conversation import Conversation, Question

_LISTS, _TEXTS, _NAMES = TypeAdapter(tuple[str, str, str]), TypeAdapter(dict[str, str]), TypeAdapter(list[str])


class OpenSum(StrictModel):
    """A sum whose masked numbers have come, and for which shares are asked, by hospital where it is a mapping."""

    k: int
    cohort: str
    work: dict[str, str]
    head: dict[str, str | int]
    members: list[str]
    keys: dict[str, list[str]]
    sharers: list[str]
    survivors: list[str]
    signatures: dict[str, str]


class SumServer:
    """Secure sums with the hospitals of one K.

    `cohort` names these hospitals and their weights, `like` has the shape of what they send. `file` keeps the sum for
    which shares are revealed: a round that was revealed with a hospital is finished with it, also if it has left since.
    """

    def __init__(
        self, conversation: Conversation, file: Path, cohort: tuple[int, str], like: Masked, attempts: int
    ) -> None:
        self._conversation, self._file, (self._k, self._cohort) = conversation, file, cohort
        self._like, self._attempts = like, attempts
        self._attempt = secrets.randbits(40)  # a restarted server does not name a round as the one before did

    def sum(self, work: Mapping[str, Packed], turns: str, enough: int | None) -> tuple[np.ndarray, list[str]]:
        """The sum modulo 2^64 of the hospitals' numbers, uint64 `[n]`, and whose are in it.

        `work` is the packed request for local work by hospital. An attempt in which a hospital was started anew, or
        that has other survivors than one that was revealed before, is made again.

        Raises
        ------
        TrainingError
            If too few answer to the end, or no attempt succeeds.
        """
        names, digests = tuple(work), {name: _digest(packed) for name, packed in work.items()}
        if (opened := self._read(digests)) is not None:
            done = self._reveal(*opened, [name for name in opened[0].signatures if name in work], enough)
            if done is not None:  # hospitals whose state is older than the sum work once more; nothing leaves
                repeats = {
                    name: self._question("repeat", {}, _reader(name, "repeated", TypeAdapter(bool)), packed)
                    for name, packed in work.items()
                }
                self._conversation.ask(repeats, None, enough)
                return done
        for _ in range(self._attempts):
            self._attempt += 1
            answered = self._try({name: work[name] for name in names}, digests, turns, enough)
            if isinstance(answered, tuple):
                return answered
            names = tuple(name for name in work if name in answered)
        raise TrainingError(
            f"secure sum: no attempt of {self._attempts} succeeded; the same command resumes with this round",
            kind="no sum",
        )

    def _try(
        self, work: Mapping[str, Packed], digests: dict[str, str], turns: str, enough: int | None
    ) -> tuple[np.ndarray, list[str]] | list[str]:
        """One attempt; a list of members if another one is to be made with these."""
        names, threshold = list(work), choose_threshold(len(work))
        least = None if enough is None else max(enough, threshold)
        head: dict[str, str | int] = {"turns": turns, "attempt": self._attempt}
        given = self._ask("keys", names, lambda name: {**head, "members": names}, "keys", _LISTS, least)
        if given is None:
            return names
        passed = self._ask("share", list(given), lambda name: {**head, "keys": given}, "shares", _TEXTS, least)
        if passed is None:
            return names

        def make_values(name: str) -> dict[str, Any]:
            return {**head, "shares": {other: to[name] for other, to in passed.items() if other != name and name in to}}

        questions = {
            name: self._question("mask", make_values(name), self._make_mask_reader(name), work[name]) for name in passed
        }
        masked: dict[str, Any] = self._conversation.ask(questions, None, least)
        if any(values is None for values in masked.values()):
            return names
        ended = {**head, "survivors": sorted(masked)}
        signed = self._ask("confirm", list(masked), lambda name: ended, "signature", TypeAdapter(str), least)
        if signed is None:
            return names
        if before := [answer for answer in signed.values() if isinstance(answer, list)]:
            return [str(name) for name in before[0]]
        opened = OpenSum(
            k=self._k,
            cohort=self._cohort,
            work=digests,
            head=head,
            members=names,
            keys={name: list(parts) for name, parts in given.items()},
            sharers=list(passed),
            survivors=list(masked),
            signatures=signed,
        )
        total = np.asarray(np.sum(list(masked.values()), axis=0, dtype=np.uint64))
        save_checkpoint(self._file, {"total": torch.from_numpy(total.view(np.int64))}, {"sum": opened.model_dump()})
        return self._reveal(opened, total, list(signed), enough) or names

    def _read(self, digests: Mapping[str, str]) -> tuple[OpenSum, np.ndarray] | None:
        """The sum of the file, if it is that of this work."""
        if (stored := read_open_sum(self._file)) is None:
            return None
        is_this = stored[0].cohort == self._cohort and digests.items() <= stored[0].work.items()
        return stored if is_this else None

    def _reveal(
        self, opened: OpenSum, masked: np.ndarray, names: Sequence[str], enough: int | None
    ) -> tuple[np.ndarray, list[str]] | None:
        """Ask these for their shares, and recover the sum; None if one has forgotten the round."""
        threshold = choose_threshold(len(opened.members))
        values = {**opened.head, "survivors": sorted(opened.survivors), "signatures": opened.signatures}
        least = None if enough is None else max(enough, threshold)
        shares = self._ask("reveal", names, lambda name: values, "revealed", _TEXTS, least)
        if shares is None:
            return None
        about = SumRound(self._conversation.study, self._k, tuple(opened.members), *opened.head.values())  # type: ignore[arg-type]
        public = {name: Keys(*map(bytes.fromhex, parts)) for name, parts in opened.keys.items()}
        revealed = {name: {key: bytes.fromhex(text) for key, text in parts.items()} for name, parts in shares.items()}
        about_sum = (public, opened.sharers, revealed, opened.members, threshold, about.context)
        return recover_sum(masked, opened.survivors, *about_sum), opened.survivors

    def _ask(
        self,
        step: str,
        names: Sequence[str],
        values: Callable[[str], dict[str, Any]],
        key: str,
        kind: TypeAdapter[Any],
        enough: int | None,
    ) -> dict[str, Any] | None:
        """The answers to a step, by hospital; None if one was started anew and has forgotten the round."""
        questions = {name: self._question(step, values(name), _reader(name, key, kind)) for name in names}
        answers = self._conversation.ask(questions, None, enough)
        return None if None in answers.values() else answers

    def _question(
        self, step: str, values: dict[str, Any], read: Callable[[Parcel], Any], packed: Packed | None = None
    ) -> Question:
        about = {"k": self._k, "step": step, **values}
        return Question("sum", about, packed if packed is not None else Packed(b"", {}), read)

    def _make_mask_reader(self, name: str) -> Callable[[Parcel], Any]:
        def read(parcel: Parcel) -> Any:
            if parcel.values.get("lost") is True:
                return None
            return unpack(parcel.packed, self._like, name, "cpu").values.numpy().view(np.uint64)

        return read


def read_open_sum(file: Path) -> tuple[OpenSum, np.ndarray] | None:
    """The sum in a file of `SumServer`, and its masked numbers, uint64 `[n]`; None without a file.

    Raises
    ------
    ConfigError
        If the file is damaged.
    """
    if not file.exists():
        return None
    try:
        tensors, values = load_checkpoint(file)
        return OpenSum.model_validate(values["sum"]), tensors["total"].numpy().view(np.uint64)
    except (DamagedError, ValidationError, KeyError):
        raise ConfigError(
            f"{file}: damaged. Restore it from a backup, or delete it: the round is then asked again, which needs all "
            "hospitals that it was revealed with",
            kind="damaged file",
            file=str(file),
        ) from None


def _reader(name: str, key: str, kind: TypeAdapter[Any]) -> Callable[[Parcel], Any]:
    """Reads one value of an answer; a list of names where a round was revealed before, None where it is not known."""

    def read(parcel: Parcel) -> Any:
        if parcel.values.get("lost") is True:
            return None
        try:
            if key == "signature" and "before" in parcel.values:
                return _NAMES.validate_python(parcel.values["before"])
            return kind.validate_python(parcel.values.get(key))
        except ValidationError:
            raise WireError(f"{name} sent a step of a secure sum that cannot be read", kind="secure sum") from None

    return read


def _digest(packed: Packed) -> str:
    """32 hexadecimal digits of a request."""
    parts = [packed.header, *(array.tobytes() for array in packed.arrays.values())]
    return hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest()
