"""Whom the server waits for, and what it does when it goes on without."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from chestfed.core.errors import ChestfedError, TrainingError
from chestfed.leaves.federation.commands import server as commands
from chestfed.leaves.federation.parcels import LineLost, Parcel, Undelivered
from chestfed.leaves.federation.server import conversation
from chestfed.leaves.federation.server.conversation import Conversation, Question
from chestfed.leaves.federation.settings import Faults
from tests.cases import assert_refused
from tests.leaves.federation.straight_line import Clock

NAMES = ("a", "b", "c")
LATE, GIVE_UP = 100.0, 1000.0


class Line:
    """Hospitals that answer after so many seconds, or do not; `what` each of them was asked last."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.takes = clock, dict.fromkeys(NAMES, 1.0)
        self.marks = dict.fromkeys(NAMES, "1")
        self.asked: list[tuple[str, str]] = []
        self.replies: dict[str, tuple[float, Parcel | ChestfedError]] = {}
        self.lost = False

    def online(self) -> dict[str, str]:
        return dict(self.marks)

    def send(self, name: str, parcel: Parcel, seconds: float) -> str:
        if self.lost:
            raise LineLost("gone")
        self.asked.append((name, parcel.values["kind"]))
        ticket = str(len(self.asked))
        self.replies[ticket] = self.clock.now + self.takes[name], Parcel(parcel.values)
        return ticket

    def receive(self, tickets: list[str]) -> dict[str, Parcel | ChestfedError]:
        there = [ticket for ticket in tickets if ticket in self.replies and self.replies[ticket][0] <= self.clock.now]
        return {ticket: self.replies.pop(ticket)[1] for ticket in there}

    def reconnect(self) -> None:
        self.lost = False

    def close(self) -> None:
        pass


class Talk:
    """A conversation with a line, a clock, and what was told."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.line, self.told = clock, Line(clock), list[tuple[str, str]]()
        faults = Faults(late_after=LATE, give_up_after=GIVE_UP)
        self.talk = Conversation(self.line, faults, "study", lambda name, event, _: self.told.append((name, event)))

    def round(self, kind: str, enough: int | None) -> tuple[str, float]:
        """Who answered, and how long it took."""
        began = self.clock.now
        answers = self.talk.ask({name: Question(kind) for name in NAMES}, enough=enough)
        assert all(answer.values["kind"] == kind for answer in answers.values())
        return "".join(answers), self.clock.now - began


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch) -> Talk:
    clock = Clock()
    monkeypatch.setattr(conversation, "time", clock)
    return Talk(clock)


def test_late_hospital_waits_or_drops(talk: Talk) -> None:
    talk.line.takes["b"] = 300.0
    assert talk.round("one", None) == ("abc", pytest.approx(300, abs=2))
    who, seconds = talk.round("two", 2)
    assert (who, LATE < seconds < LATE + 2) == ("ac", True)
    who, seconds = talk.round("three", 2)  # it is still at round two, and nobody waits for it again
    assert (who, seconds < 3) == ("ac", True)
    assert ("b", "three") not in talk.line.asked
    talk.clock.now += 300
    talk.line.takes["b"] = 1.0
    assert talk.round("four", 2)[0] == "abc"
    assert talk.told == [("b", "late"), ("b", "late"), ("b", "dropped"), ("b", "dropped"), ("b", "late answer")]


def test_returned_hospital_is_asked_again(talk: Talk) -> None:
    talk.line.takes["c"] = 1e9
    assert talk.round("one", 1)[0] == "ab"
    del talk.line.marks["c"]
    assert talk.round("two", 1)[0] == "ab"
    talk.line.marks["c"], talk.line.takes["c"] = "2", 1.0  # started anew: what was under way is lost
    talk.clock.now += 10
    assert talk.round("three", 1)[0] == "abc"


def test_too_few_answers_end_study_by_name(talk: Talk) -> None:
    talk.line.takes |= {"b": 1e9, "c": 1e9}
    with assert_refused(TrainingError, "no answer in time", hospitals=["b", "c"]):
        talk.round("one", 2)
    assert talk.clock.now == pytest.approx(GIVE_UP, abs=2)


@pytest.mark.parametrize(("enough", "ends"), [(None, True), (3, True), (2, False)])
def test_bad_answer_drops_or_ends(talk: Talk, enough: int | None, ends: bool) -> None:
    send = talk.line.send

    def wrong(name: str, parcel: Parcel, seconds: float) -> str:
        return send(name, Parcel(parcel.values | ({"nonce": "0"} if name == "b" else {})), seconds)

    talk.line.send = wrong  # type: ignore[method-assign]
    if ends:
        with assert_refused(TrainingError, "failures in a row", hospital="b"):
            talk.round("one", enough)
    else:
        assert talk.round("one", enough)[0] == "ac"
    assert talk.told.count(("b", "failed")) == 3


@pytest.mark.parametrize("kind", ["", "later: "])
def test_refusal_is_one_line(talk: Talk, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    send, told = talk.line.send, list[str]()

    def refuse(name: str, parcel: Parcel, seconds: float) -> str:
        return send(name, Parcel(parcel.values | {"refused": f"{kind}no\nb: \x1b[2J"}), seconds)

    monkeypatch.setattr(talk.line, "send", refuse)
    monkeypatch.setattr(talk.talk, "_tell", lambda name, event, details: told.append(details))
    with pytest.raises(TrainingError) as error:
        talk.round("one", None)
    assert {"no b: ?[2J"} <= {text.removeprefix("a refuses: ").partition(";")[0] for text in told}
    assert all(text.isprintable() for text in (*told, str(error.value)))


def test_answers_are_judged_without_all(talk: Talk) -> None:
    talk.line.takes["b"] = 300.0
    judged: list[str] = []

    def judge(answers: Mapping[str, Parcel]) -> dict[str, str]:
        judged.append("".join(sorted(answers)))
        return {"c": "too far away"} if "c" in answers else {}

    answers = talk.talk.ask({name: Question("one") for name in NAMES}, judge, enough=1)
    assert (list(answers), judged) == (["a"], ["ac", "ac", "ac", "a"])
    assert talk.told == [("b", "late"), *[("c", "failed")] * 3, ("b", "dropped"), ("c", "dropped")]


def test_undelivered_message_is_sent_again(talk: Talk) -> None:
    send, errors = talk.line.send, [Undelivered("the node is gone")] * 5

    def lossy(name: str, parcel: Parcel, seconds: float) -> str:
        ticket = send(name, parcel, seconds)
        if name == "b" and errors:
            talk.line.replies[ticket] = talk.clock.now, errors.pop()
        return ticket

    talk.line.send = lossy  # type: ignore[method-assign]
    assert talk.round("one", None)[0] == "abc"
    assert talk.told == [("b", "undelivered")] * 5


def test_approval_in_mid_round_blocks_nobody(talk: Talk) -> None:
    """A hospital that was started anew waits for somebody there; the others' answers are taken in meanwhile."""
    send, known = talk.line.send, set[str]()
    talk.talk.introduce = lambda name: [Question("greet"), Question("open")]

    def forgetful(name: str, parcel: Parcel, seconds: float) -> str:
        ticket, kind = send(name, parcel, seconds), parcel.values["kind"]
        refused = "unknown: the study" if kind == "one" and "open" not in known else None
        if kind == "greet" and talk.clock.now < 5 * LATE:
            refused = "later: the study waits for an approval"
        if name == "b" and refused:
            talk.line.replies[ticket] = talk.clock.now, Parcel(parcel.values | {"refused": refused})
        known.add(kind if name == "b" and not refused else "")
        return ticket

    talk.line.send = forgetful  # type: ignore[method-assign]
    talk.line.takes["c"] = LATE / 2
    answers, took = talk.round("one", 2)
    assert (answers, took < 2 * LATE) == ("ac", True)
    assert [event for name, event in talk.told if name == "b"] == ["started anew", "waits", "late", "dropped"]
    assert not any(name == "c" for name, _ in talk.told)
    talk.clock.now = 6 * LATE
    assert talk.round("two", None)[0] == "abc"
    assert [kind for name, kind in talk.line.asked if name == "b"][-1] == "two"


def test_returned_server_is_sent_everything(talk: Talk) -> None:
    talk.line.takes["b"] = 1e9
    assert talk.round("one", 2)[0] == "ac"
    talk.line.takes["b"], talk.line.lost = 1.0, True
    assert talk.round("two", None)[0] == "abc"
    assert ("server", "back") in talk.told


def test_status_waits_for_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(commands, "time", clock)

    def look() -> dict[str, str]:
        if clock.now < 5:
            raise ChestfedError("no server answers")
        return {"a": "online", "b": "online" if clock.now >= 20 else "registered"}

    assert commands.wait_for_nodes(look, ["a", "b"], 60)["b"] == "online"
    assert clock.now == 20
    clock.now = 6
    assert commands.wait_for_nodes(look, ["a", "b"], 3)["b"] == "registered"
    clock.now = 0
    with pytest.raises(ChestfedError):
        commands.wait_for_nodes(look, ["a"], 2)
