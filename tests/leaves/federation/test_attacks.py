"""What a hospital refuses of a server that means harm: each attack, and the kind of the refusal.

Of a hospital that means harm: `tests/learning/engines/test_wire.py` (records), `test_study.py` (answers, claims), Of
others on the network: `test_gate.py` and, with a server,
`tests/campaigns/test_federation_attacks.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chestfed.core.errors import ChestfedError
from chestfed.learning.engines.messages.wire import LARGEST_COUNT, Packed, WireError
from chestfed.leaves.federation.hospital.participant import Participant
from chestfed.leaves.federation.hospital.study import read_members
from chestfed.leaves.federation.parcels import Parcel, Refused
from tests.cases import assert_refused
from tests.leaves.federation.straight_line import sample_hospital
from tests.leaves.federation.test_participant import DIGEST, greeting, pipeline

NAMES = ["chexpert", "chestxray8", "padchest"]
#: Attack -> what a greeting says instead, and the kind of the refusal.
GREETINGS: dict[str, tuple[dict[str, Any], str]] = {
    "a study named as a folder elsewhere": ({"study": "../elsewhere"}, "unknown study"),
    "a study named as a path": ({"study": "/tmp/x"}, "unknown study"),
    "a study without a name": ({"study": ""}, "unknown study"),
    "another digest": ({"study": "0" * 64}, "unknown study"),
    "a digest and a folder": ({"study": f"{DIGEST}/.."}, "unknown study"),
    "no versions": ({"passport": None}, "difference"),
    "versions of nothing": ({"passport": {}}, "difference"),
    "another Python": ({"passport": {"Python": "0.1"}}, "difference"),
    "another torch": ({"passport": {"torch": "0.1"}}, "difference"),
    "another NumPy": ({"passport": {"NumPy": "0.1"}}, "difference"),
    "other labels": ({"passport": {"labels": "edema"}}, "difference"),
    "another network": ({"passport": {"model": "1 parameters, 0 buffers"}}, "difference"),
    "a question to another hospital": ({"to": "vindr"}, "another hospital"),
    "a name with terminal codes": ({"to": "\x1b[2J"}, "another hospital"),
    "a name of 9,000 characters": ({"to": "x" * 9000}, "another hospital"),
    "a kind that is a list": ({"kind": []}, "unknown study"),
    "a kind that is a method": ({"kind": "__init__"}, "unknown study"),
    "a pipeline that is a number": ({"pipeline": 7}, "unreadable pipeline"),
}
#: Attack -> what the pipeline says instead, and the kind of the refusal.
PIPELINES: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown key": ({"run": "touch ran"}, "unreadable pipeline"),
    "a function as the network": (
        {"model": {"name": "torch:os.popen", "options": {"cmd": "touch ran"}, "outputs_as": "buffering"}},
        "unlisted code",
    ),
    "a network that is not listed": ({"model": {"name": "torchvision.models:resnet18"}}, "unlisted code"),
    "a function as the algorithm": ({"federated": {"algorithm": "torch:os.popen"}}, "unlisted code"),
    "an objective that is not listed": (
        {"federated": {"objective": "tests.learning.models.tiny_transformer:TINY"}},
        "unlisted code",
    ),
    "weights of any file": ({"model": {"name": "small", "initial_weights": "/etc/hostname"}}, "unlisted file"),
    "weights beside the folder": ({"model": {"name": "small", "initial_weights": "../site.yaml"}}, "unlisted file"),
    "a study of others": ({"sites": [{"config": f"other{number}.yaml"} for number in range(5)]}, "not a member"),
    "a hospital twice": ({"sites": [{"config": "padchest.yaml"}] * 2, "k": [2]}, "not for a federation"),
    "several clients here": ({"sites": [{"config": "padchest.yaml", "clients": 2}], "k": [2]}, "not for a federation"),
}
#: Attack -> a question after the greeting, before labels are read, and the kind of the refusal.
QUESTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "a study that was not agreed upon": ({"kind": "open", "study": "f" * 64}, "unknown study"),
    "stage 1 of a hospital that is not the target": ({"kind": "pretrain"}, "another role"),
    "the study's test images of another hospital": ({"kind": "score", "test": "study"}, "another role"),
    "stage 2 before labels are read": ({"kind": "begin", "k": 3, "rows": []}, "unknown study"),
    "a request before stage 2": ({"kind": "ask", "k": 3}, "unknown study"),
    "a sum of updates, which there was once": ({"kind": "sum", "k": 3, "step": "keys"}, "unknown question"),
    "a model to score before labels are read": ({"kind": "score", "test": "own"}, "unknown study"),
    "a question that is a method": ({"kind": "_read"}, "unknown question"),
    "a question that is a number": ({"kind": 3}, "unknown question"),
}
#: What a server says of stage 2: K, and the hospitals with their rows.
MEMBERS: dict[str, tuple[object, object]] = {
    "K is a truth value": (True, [["chexpert", 1]]),
    "K is 0": (0, []),
    "K is above all": (4, [["chexpert", 1]]),
    "another order": (2, [["chestxray8", 1], ["chexpert", 1]]),
    "a hospital twice": (2, [["chexpert", 1], ["chexpert", 1]]),
    "a hospital of a later K": (2, [["chexpert", 1], ["padchest", 1]]),
    "no rows": (1, [["chexpert", 0]]),
    "rows without end": (1, [["chexpert", LARGEST_COUNT + 1]]),
    "rows that are a text": (1, [["chexpert", "1"]]),
    "no list": (1, 7),
}


@pytest.fixture
def hospital(tmp_path: Path) -> Participant:
    return Participant(sample_hospital("padchest", tmp_path, tmp_path / "data"), lambda text: None)


@pytest.mark.parametrize("name", [*GREETINGS, *PIPELINES])
def test_harmful_greeting_is_refused(
    hospital: Participant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    question = greeting(pipeline())
    if name in GREETINGS:
        changes, kind = GREETINGS[name]
        if isinstance(changes.get("passport"), dict) and changes["passport"]:
            changes = {"passport": question.values["passport"] | changes["passport"]}
        question.values.update(changes)
    else:
        changes, kind = PIPELINES[name]
        question.values["pipeline"] = question.values["pipeline"] | changes
    with assert_refused(ChestfedError, kind=kind):
        hospital.answer(question)
    assert not hospital._studies
    assert not (tmp_path / "ran").exists()
    refused = str(hospital(question).values["refused"])
    assert len(refused) <= 2000
    assert refused.replace("\n", "").isprintable()


@pytest.mark.parametrize("name", QUESTIONS)
def test_harmful_question_is_refused(hospital: Participant, name: str) -> None:
    assert "refused" not in hospital(greeting(pipeline())).values
    values, kind = QUESTIONS[name]
    with assert_refused(Refused, kind=kind):
        hospital.answer(Parcel({"to": "padchest", "study": DIGEST} | values, Packed(b"", {})))


@pytest.mark.parametrize("name", MEMBERS)
def test_false_hospitals_are_refused(name: str) -> None:
    k, rows = MEMBERS[name]
    with assert_refused(Refused, kind="hospitals of stage 2"):
        read_members({"k": k, "rows": rows}, NAMES)


def test_unreadable_question_is_answered(hospital: Participant) -> None:
    reply = hospital(WireError("the server sent records that cannot be read", kind="not a message"))
    assert "refused" in reply.values
