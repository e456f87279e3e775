"""The server's part in the secure sum of a round: it relays, and recovers the sum of those that answered to the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from chestfed.core.errors import TrainingError
from chestfed.engines.messages.wire import Packed, WireError, unpack
from chestfed.engines.sums.fixed_point import Masked
from chestfed.federation.hospital.summing import SumRound, threshold_of
from chestfed.federation.parcels import Parcel
from chestfed.federation.secure_sum.member import Keys, recover_sum
from chestfed.federation.server.conversation import Conversation, Question

_LISTS, _TEXTS, _NAMES = TypeAdapter(tuple[str, str, str]), TypeAdapter(dict[str, str]), TypeAdapter(list[str])


class SumServer:
    """Secure sums with the hospitals of one K. `like` has the shape of what they send."""

    def __init__(self, conversation: Conversation, study: str, k: int, like: Masked, attempts: int) -> None:
        self._conversation, self._study, self._k, self._like = conversation, study, k, like
        self._attempts, self._attempt = attempts, 0

    def sum(self, work: Mapping[str, Packed], turns: str, enough: int | None) -> tuple[np.ndarray, list[str]]:
        """The sum modulo 2^64 of the hospitals' numbers, uint64 `[n]`, and whose are in it.

        `work` is the packed request for local work by hospital. An attempt in which a hospital was started anew, or
        that has other survivors than one that was revealed before, is made again.

        Raises
        ------
        TrainingError
            If too few answer to the end, or no attempt succeeds.
        """
        names = tuple(work)
        for _ in range(self._attempts):
            self._attempt += 1
            done = self._try({name: work[name] for name in names}, turns, enough)
            if isinstance(done, tuple):
                return done
            names = tuple(name for name in work if name in done)
        raise TrainingError(
            f"secure sum: no attempt of {self._attempts} succeeded; the same command resumes with this round",
            kind="no sum",
        )

    def _try(
        self, work: Mapping[str, Packed], turns: str, enough: int | None
    ) -> tuple[np.ndarray, list[str]] | list[str]:
        """One attempt; a list of members if another one is to be made with these."""
        names, threshold = list(work), threshold_of(len(work))
        least = None if enough is None else max(enough, threshold)
        head = {"turns": turns, "attempt": self._attempt}
        given = self._ask("keys", names, lambda name: {**head, "members": names}, "keys", _LISTS, least)
        if given is None:
            return names
        passed = self._ask("share", list(given), lambda name: {**head, "keys": given}, "shares", _TEXTS, least)
        if passed is None:
            return names

        def sealed(name: str) -> dict[str, Any]:
            return {**head, "shares": {other: to[name] for other, to in passed.items() if other != name and name in to}}

        questions = {name: self._question("mask", sealed(name), self._masked(name), work[name]) for name in passed}
        masked: dict[str, Any] = self._conversation.ask(questions, None, least)
        if any(values is None for values in masked.values()):
            return names
        ended = {**head, "survivors": sorted(masked)}
        signed = self._ask("confirm", list(masked), lambda name: ended, "signature", TypeAdapter(str), least)
        if signed is None:
            return names
        if before := [answer for answer in signed.values() if isinstance(answer, list)]:
            return [str(name) for name in before[0]]
        revealing = {**ended, "signatures": signed}
        shares = self._ask("reveal", list(signed), lambda name: revealing, "revealed", _TEXTS, least)
        if shares is None:
            return names
        context = SumRound(self._study, self._k, tuple(names), turns, self._attempt).context
        public = {name: Keys(*map(bytes.fromhex, parts)) for name, parts in given.items()}
        revealed = {name: {key: bytes.fromhex(text) for key, text in one.items()} for name, one in shares.items()}
        total = recover_sum(masked, public, list(passed), revealed, names, threshold, context)
        return total, list(masked)

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

    def _masked(self, name: str) -> Callable[[Parcel], Any]:
        def read(parcel: Parcel) -> Any:
            if parcel.values.get("lost") is True:
                return None
            return unpack(parcel.packed, self._like, name, "cpu").values.numpy().view(np.uint64)

        return read


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
