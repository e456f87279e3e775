"""Questions of the server to hospitals: it waits, asks again, or continues without them; it reports every event.

A hospital has one question under way at most. If a round went on without it, it is asked again when its late answer,
which is not used, has come, or when it has been started anew.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from chestfed.core.errors import ChestfedError, TrainingError
from chestfed.learning.engines.messages.wire import Packed, WireError
from chestfed.leaves.federation.hospital.log import is_head
from chestfed.leaves.federation.parcels import LATER, UNKNOWN, Later, Line, LineLost, Parcel, Undelivered, shown_in_line
from chestfed.leaves.federation.settings import Faults

#: Seconds between two looks for answers, and at who is online.
POLL, LOOK = 0.25, 2.0
#: Seconds before a question is sent again that was not delivered, or that the hospital does not answer yet.
AGAIN, AGAIN_LATER = 10.0, 30.0

#: `tell(hospital, event, details)` receives events.
Tell = Callable[[str, str, str], object]


@dataclass(frozen=True)
class Question:
    """Question to one hospital; `read` checks the answer and raises `WireError` if it cannot be used."""

    kind: str
    values: dict[str, Any] = field(default_factory=dict)
    packed: Packed = field(default_factory=lambda: Packed(b"", {}))
    read: Callable[[Parcel], Any] = lambda parcel: parcel


@dataclass
class _PendingQuestions:
    """Questions that a hospital is to answer, in this order, since a time; of the first its ticket while under way.

    `mark` is that of the node that it went to.
    """

    questions: list[Question]
    since: float
    not_before: float = 0.0
    ticket: str | None = None
    nonce: str = ""
    mark: str = ""
    away: bool = False
    late: bool = False
    waits_for: str = ""


class Conversation:
    """Questions to the hospitals of one study."""

    def __init__(self, line: Line, faults: Faults, study: str, tell: Tell) -> None:
        #: The questions that tell a hospital of the study, which knows nothing of it because it was started anew.
        self.introduce: Callable[[str], list[Question]] = lambda name: []
        self.bytes_sent = self.bytes_received = 0
        #: By hospital number and hash of the last line of its log, as it says; the next greeting tells it so.
        self.heads: dict[str, list[Any]] = {}
        self._line, self._faults, self.study, self._tell = line, faults, study, tell
        self._online: dict[str, str] = {}
        self._failures: dict[str, list[str]] = {}
        self._left_out: dict[str, tuple[str | None, str]] = {}  # ticket and mark of what was not waited for
        self._looked = -LOOK

    def close(self) -> None:
        self._line.close()

    def ask_one(self, name: str, question: Question) -> Any:
        """The answer of one hospital, for which the server waits."""
        return self.ask({name: question})[name]

    def ask(
        self,
        questions: Mapping[str, Question],
        judge: Callable[[Mapping[str, Any]], Mapping[str, str]] | None = None,
        enough: int | None = None,
    ) -> dict[str, Any]:
        """The answers, in the order of the questions; before a round ends `judge` says which cannot be used, and why.

        Once there are `enough` answers, hospitals that are late or fail too often are left out; None: none is.

        Raises
        ------
        TrainingError
            If the time to wait is over, or an answer cannot be used however often it is asked for.
        """
        waiting = {name: _PendingQuestions([question], time.monotonic()) for name, question in questions.items()}
        answers, started = dict[str, Any](), time.monotonic()
        while waiting:
            try:
                self._exchange(waiting, answers)
            except LineLost as error:
                self._reconnect(waiting, error)
            left_out = self._to_leave_out(waiting) if enough is not None and len(answers) >= enough else {}
            if len(left_out) == len(waiting):  # the round ends, if all answers can be used
                wrong = {} if judge is None else judge(answers)
                for name, reason in wrong.items():
                    del answers[name]
                    waiting[name] = _PendingQuestions([questions[name]], time.monotonic())
                    self._failed(name, reason)
                if not wrong:
                    self._leave_out(waiting, left_out)
            self._refuse_too_few(len(questions), waiting, enough)
            if waiting:
                self._wait(waiting, time.monotonic() - started)
        for name in questions:
            self._failures.pop(name, None)
        return {name: answers[name] for name in questions if name in answers}

    def _refuse_too_few(self, hospitals: int, waiting: Mapping[str, _PendingQuestions], enough: int | None) -> None:
        """Raise `TrainingError` if so many fail that the others are not enough."""
        failing = [name for name in waiting if self._fails(name)]
        if hospitals - len(failing) < (hospitals if enough is None else enough):
            name = failing[-1]
            reasons = self._failures[name]
            raise TrainingError(
                f"{reasons[-1]}. That was failure {len(reasons)} of {name} in a row. What is finished is kept; the "
                "same command resumes with this round. A changed pipeline is another study, which hospitals approve "
                "anew",
                kind="failures in a row",
                hospital=name,
            )

    def _to_leave_out(self, waiting: Mapping[str, _PendingQuestions]) -> dict[str, str]:
        """Who of those that still have to answer need not be waited for, and why."""
        reasons = dict[str, str]()
        for name, request in waiting.items():
            if self._fails(name):
                reasons[name] = "its answers cannot be used"
            elif name in self._left_out or request.late:
                reasons[name] = "not back yet" if name in self._left_out else "late"
        return reasons

    def _leave_out(self, waiting: dict[str, _PendingQuestions], reasons: Mapping[str, str]) -> None:
        for name, reason in reasons.items():
            request = waiting.pop(name)
            if not self._fails(name):
                self._left_out.setdefault(name, (request.ticket, request.mark))
            self._tell(name, "dropped", f"the round continues without it: {reason}")

    def _fails(self, name: str) -> bool:
        return len(self._failures.get(name, ())) >= self._faults.tries

    def _wait(self, waiting: Mapping[str, _PendingQuestions], passed: float) -> None:
        faults = self._faults
        for name, request in waiting.items():
            if time.monotonic() - request.since > faults.late_after and not request.late:
                request.late = True
                self._tell(name, "late", f"no answer within {faults.late_after:.0f} s")
        if passed > faults.give_up_after:
            raise TrainingError(
                f"no answer from {', '.join(waiting)} within {faults.give_up_after:.0f} s. When they are back, the "
                "same command resumes with this round",
                kind="no answer in time",
                hospitals=list(waiting),
            )
        time.sleep(POLL)

    def _exchange(self, waiting: dict[str, _PendingQuestions], answers: dict[str, Any]) -> None:
        """Send what is not under way, and take in what has come."""
        self._look(waiting)
        for name, request in waiting.items():
            if request.ticket is None and not request.away and not self._fails(name) and self._is_free(name, request):
                self._send(name, request)
        under_way = {request.ticket: name for name, request in waiting.items() if request.ticket is not None}
        replies = self._line.receive(list(under_way)) if under_way else {}
        for ticket, reply in replies.items():
            name = under_way[ticket]
            request = waiting[name]
            request.ticket = None
            try:
                answer = self._read(name, request, reply)
                del request.questions[0]
                if request.questions:  # it was told of the study, and is asked now
                    request.since, request.late = time.monotonic(), False
                else:
                    answers[name] = answer
                    del waiting[name]
            except WireError as error:
                self._failed(name, str(error))
                request.since = time.monotonic()
            except Undelivered as error:  # to a hospital that was killed: Flower sees that within a minute
                self._tell(name, "undelivered", str(error))
                request.not_before = time.monotonic() + AGAIN
            except Later as error:
                if request.waits_for != str(error):
                    request.waits_for = str(error)
                    self._tell(name, "waits", f"{error}; it is asked again every {AGAIN_LATER:.0f} s")
                request.not_before = time.monotonic() + AGAIN_LATER
            except _Unknown:
                self._tell(name, "started anew", "is sent the study again")
                request.questions = [*self.introduce(name), request.questions[-1]]

    def _is_free(self, name: str, request: _PendingQuestions) -> bool:
        """Whether nothing is under way to a hospital; a late answer, of a round without it, is taken and not used."""
        if time.monotonic() < request.not_before:
            return False
        if name in self._left_out:
            ticket, mark = self._left_out[name]
            if ticket is not None and mark == self._online[name]:
                if not self._line.receive([ticket]):
                    return False
                self._tell(name, "late answer", "of a round that went on without it; not used")
            del self._left_out[name]
            request.since = time.monotonic()
        return True

    def _send(self, name: str, request: _PendingQuestions) -> None:
        request.nonce, question = secrets.token_hex(8), request.questions[0]
        values = question.values | {"kind": question.kind, "nonce": request.nonce, "to": name, "study": self.study}
        if question.kind == "greet" and name in self.heads:
            values["log"] = self.heads[name]
        request.mark = self._online[name]
        request.ticket = self._line.send(name, Parcel(values, question.packed), self._faults.give_up_after)
        self.bytes_sent += question.packed.size

    def _read(self, name: str, request: _PendingQuestions, reply: Parcel | ChestfedError) -> Any:
        if isinstance(reply, Undelivered):
            raise reply
        if not isinstance(reply, Parcel):
            raise WireError(f"{name}: {reply}")
        self.bytes_received += reply.packed.size
        if reply.values.get("nonce") != request.nonce or reply.values.get("kind") != request.questions[0].kind:
            raise WireError(f"{name} answered another question")
        if is_head(head := reply.values.get("log")):
            self.heads[name] = list(head)  # type: ignore[arg-type]
        refused = reply.values.get("refused")
        if refused is None:
            return request.questions[0].read(reply)
        if str(refused).startswith(UNKNOWN):
            raise _Unknown
        if str(refused).startswith(LATER):
            raise Later(shown_in_line(refused).removeprefix(LATER))
        raise WireError(f"{name} refuses: {shown_in_line(refused)}")

    def _failed(self, name: str, reason: str) -> None:
        self._failures.setdefault(name, []).append(reason)
        self._tell(name, "failed", reason)

    def _look(self, waiting: Mapping[str, _PendingQuestions]) -> None:
        """Who is online; a question that went to a node that was started again since is to be sent again."""
        if time.monotonic() - self._looked < LOOK and all(name in self._online for name in waiting):
            return
        self._online, self._looked = self._line.online(), time.monotonic()
        for name, request in waiting.items():
            mark = self._online.get(name)
            if (mark is None) != request.away:
                request.away = mark is None
                self._tell(name, "away" if request.away else "back", "")
            if mark != request.mark:
                request.ticket = None

    def _reconnect(self, waiting: Mapping[str, _PendingQuestions], error: LineLost) -> None:
        """The server was stopped: all that was under way is sent again when it is back."""
        self._tell("server", "lost", str(error))
        for request in waiting.values():
            request.ticket = None
        self._left_out = {name: (None, mark) for name, (_, mark) in self._left_out.items()}
        self._online, deadline = {}, time.monotonic() + self._faults.give_up_after
        while True:
            time.sleep(POLL)
            try:
                self._line.reconnect()
            except LineLost:
                if time.monotonic() > deadline:
                    raise
                time.sleep(LOOK)
                continue
            self._tell("server", "back", "")
            return


class _Unknown(Exception):
    """The hospital does not know the study."""


def norms_out_of_line(sizes: Mapping[str, float], largest: float) -> dict[str, str]:
    """Hospitals with a size above `largest` times the (lower) median of all; none if there is only one hospital."""
    ordered = sorted(sizes.values())
    middle = ordered[(len(ordered) - 1) // 2] if ordered else 0.0
    return {
        name: f"{name}: its update is {size / middle:.3g} times as far as the hospitals' median"
        for name, size in sizes.items()
        if len(sizes) > 1 and middle > 0 and size > largest * middle
    }
