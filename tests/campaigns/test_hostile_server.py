"""A server that means harm: every request of an honest study x the role of the hospital x each field.

Values out of range and of other types, those of an earlier or of another study, of another hospital, in another order,
and numbers that are not those of the record. Each is answered as it may be, or refused by name; none is a failure, and
none is answered that differs in what matters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chestfed.learning.engines.messages.wire import LARGEST_COUNT, Packed
from chestfed.leaves.federation.allowance import Allowance
from chestfed.leaves.federation.parcels import Parcel
from chestfed.leaves.federation.server import conversation
from tests.leaves.federation.straight_line import Clock
from tests.leaves.federation.test_study import line_at, run_at

pytestmark = pytest.mark.campaign

#: Target, member, and a hospital beyond the largest K.
HOSPITALS = {"chexpert": "target", "padchest": "member", "vindr": "scored"}
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 2, 5, 10**6, LARGEST_COUNT + 1, 1e300, 0.5),
    *("", "x", "../..", "\x00", "9" * 5000, "0" * 64, "vindr"),
    *([], {}, [[]], [["chexpert", 1]], {"chexpert": ["00", "00"]}),
)
#: Fields whose value is the server's choice: what names an answer, and a line of the log.
FREE = {"nonce", "log"}


def vary(question: Parcel, others: list[Parcel]) -> Iterator[tuple[str, Parcel]]:
    """The question with another value of one field, without it, with the numbers of another, or with none."""
    for field in question.values:
        for number, value in enumerate(VALUES[:3] if field in ("nonce", "log") else VALUES):
            yield f"{field} {number}", Parcel(question.values | {field: value}, question.packed)
        rest = {key: value for key, value in question.values.items() if key != field}
        yield f"{field} missing", Parcel(rest, question.packed)
    yield "packed none", Parcel(question.values)
    for number, other in enumerate(others):
        yield f"packed of another {number}", Parcel(question.values, other.packed)
    arrays = {kind: np.full_like(array, 1e30) for kind, array in question.packed.arrays.items() if kind != "int64"}
    if arrays:
        yield "packed huge", Parcel(question.values, Packed(question.packed.header, arrays))
        short = {kind: array[:-1] for kind, array in question.packed.arrays.items()}
        yield "packed short", Parcel(question.values, Packed(question.packed.header, short))
    if question.packed.header:
        header = json.loads(question.packed.header)
        for field in header["plain"]:
            for number, value in enumerate(VALUES):
                changed = {**header, "plain": {**header["plain"], field: value}}
                packed = Packed(json.dumps(changed).encode(), question.packed.arrays)
                yield f"packed {field} {number}", Parcel(question.values, packed)


def name_question(question: Parcel) -> str:
    """What is asked: kind, test, and record."""
    values, header = question.values, question.packed.header
    record = json.loads(header)["record"] if header else ""
    return " ".join(filter(None, (str(values["kind"]), values.get("test", ""), record)))


def test_hostile_requests_are_named(home: Path, monkeypatch: pytest.MonkeyPatch, save_figures: Any) -> None:
    monkeypatch.setattr(conversation, "time", Clock())
    line, asked = line_at(home, "hostile"), dict[tuple[str, str], Parcel]()
    for name in HOSPITALS:
        line.set_policy(name, most_rounds_answered=10**6, most_models_scored=10**6)
    for name, participant in line._participants.items():
        answer = participant.answer

        def keep(question: Parcel, name: str = name, answer: Any = answer) -> Parcel:
            asked[name, name_question(question)] = question
            return answer(question)

        participant.answer = keep  # type: ignore[method-assign]
    run_at(home, line, "hostile_out", settings=["methods=[{algorithm: scaffold}]"])
    questions = sorted(asked.values(), key=lambda question: question.values["kind"] == "begin")  # which ends the state
    outcomes, wrong = dict[str, dict[str, int]](), list[str]()
    for name, role in HOSPITALS.items():
        participant = line._participants[name]
        del participant.answer  # nothing listens any more
        participant._allowance = Allowance(10**9)  # every failure is told
        for question in questions:  # those of other hospitals too: to this one
            own = Parcel(question.values | {"to": name}, question.packed)
            is_own = question.values["to"] == name
            for what, hostile in vary(own, questions[:6]) if is_own else [("of another", own)]:
                before = len(line.log)
                reply = participant(hostile)
                refused = reply.values.get("refused")
                told = [text for text in line.log[before:] if text.startswith("failed at")]
                key = f"{role}: {name_question(question)}"
                counts = outcomes.setdefault(key, {"answered": 0, "refused": 0})
                counts["answered" if refused is None else "refused"] += 1
                wrong += [f"{key}: {what}: {text}" for text in told]
                field = what.split()[0]
                if refused is None and what != "of another" and field not in FREE and is_changed(own, hostile, field):
                    wrong.append(f"{key}: {what}: answered")
    save_figures("hostile_server", outcomes)
    assert wrong == []


def is_changed(own: Parcel, hostile: Parcel, field: str) -> bool:
    """Whether a field that is checked differs; numbers of the right form are the server's choice, but in the plan.

    A stage may begin again from a turn that was reached before, as after a crash of the server.
    """
    if field == "packed" and b'"Start"' in own.packed.header:
        return False
    if field == "packed":
        return own.packed.header != hostile.packed.header and b'"after": 0' not in hostile.packed.header
    return own.values.get(field) != hostile.values.get(field) and field in ("kind", "to", "study", "k", "rows")
