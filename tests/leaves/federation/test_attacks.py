"""What a hospital refuses of a server that means harm: each attack, and the kind of the refusal.

Of a hospital that means harm: `tests/learning/engines/test_wire.py` (records), `test_study.py` (answers, claims), Of
others on the network: `test_gate.py` and, with a server,
`tests/campaigns/test_federation_attacks.py`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from chestfed.core.errors import ChestfedError, Problem, SiteError
from chestfed.learning.engines.messages.wire import LARGEST_COUNT, Packed, WireError
from chestfed.learning.models import build_model, building, pretrained
from chestfed.learning.models import features as features_module
from chestfed.leaves.federation.hospital import participant as participant_module
from chestfed.leaves.federation.hospital.participant import Participant
from chestfed.leaves.federation.hospital.policy import read_pending
from chestfed.leaves.federation.hospital.proposal import read_pipeline
from chestfed.leaves.federation.hospital.study import read_members
from chestfed.leaves.federation.parcels import Parcel, Refused
from chestfed.leaves.federation.settings import Hospital, Leaves, Policy
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.resolved import shareable
from tests.cases import assert_refused
from tests.learning.models import tiny_transformer
from tests.leaves.federation.free_server import FreeServer
from tests.leaves.federation.straight_line import sample_hospital
from tests.leaves.federation.test_participant import DIGEST, greeting, pipeline

NAMES = ["chexpert", "chestxray8", "padchest"]
FEDAVG = "methods=[{algorithm: fedavg}]"


def features(network: object) -> dict[str, Any]:
    """A pipeline's head on the features of another network."""
    return {"model": {"name": "features", "network": network}, "augment": {"enabled": False}}


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
    "the hospital's key as weights": ({"model": {"name": "small", "initial_weights": "node.key"}}, "unlisted file"),
    "weights that are not there": ({"model": {"name": "small", "initial_weights": "a.pt"}}, "missing weights"),
    "a pipe as weights": ({"model": {"name": "small", "initial_weights": "pipe.pt"}}, "missing weights"),
    "any file below frozen features": (features({"name": "small", "initial_weights": "/etc/a.pt"}), "unlisted file"),
    "any model file": (features("/etc/a.safetensors"), "unlisted file"),
    "a pipe below frozen features": (features({"name": "small", "initial_weights": "pipe.pt"}), "missing weights"),
    "a study of others": ({"sites": [{"config": f"other{number}.yaml"} for number in range(5)]}, "not a member"),
    "a hospital twice": ({"sites": [{"config": "padchest.yaml"}] * 2, "k": [2]}, "not for a federation"),
    "a title of 200,000 characters": ({"title": "x" * 200_000}, "long pipeline"),
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
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "padchest" / "pipe.pt")  # whoever opened it would wait for ever
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


def test_weights_wait_for_an_approval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that lie beside hospital.yaml are loaded once somebody has approved what is made of them."""
    monkeypatch.chdir(tmp_path)
    hospital = hospital_at(tmp_path, tmp_path / "data", approval="required")
    small = {**shareable(pipeline())["model"], "initial_weights": "own.pt"}
    torch.save(build_model(pipeline().model, 1, 0).state_dict(), hospital.folder / "own.pt")
    shutil.copy(hospital.folder / "own.pt", tmp_path)  # the server's
    model = json.dumps({"name": "features", "network": small})
    question, loaded = greeting(pipeline(f"model={model}", "augment.enabled=false")), list[str]()
    features_module._load.cache_clear()
    monkeypatch.setattr(building, "load_initial", lambda module, path, *rest: loaded.append(path.name))
    assert "waits for an approval" in Participant(hospital, id)(question).values["refused"]
    assert loaded == []
    (digest,) = read_pending(hospital)
    torch.save({}, hospital.folder / "own.pt")  # other weights need another approval
    assert digest not in read_pending(hospital)


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("network", ["densenet121", "efficientnet-lite0"])
def test_imagenet_weights_are_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: str, *, listed: bool
) -> None:
    """Refused unless hospital.yaml allows them and they are there, below frozen features and among pending ones too."""
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    monkeypatch.setattr(pretrained, "find_spec", lambda name: None)
    monkeypatch.setattr(pretrained, "find_initial_weights", None)
    hospital = hospital_at(tmp_path, tmp_path / "data")
    hospital = replace(hospital, file=hospital.file.model_copy(update={"imagenet": listed}))
    model = {"name": network, "initial_weights": "imagenet"}
    for changes in ({"model": model}, features(model)):
        given = shareable(pipeline()) | changes
        with assert_refused(Refused, kind="missing weights" if listed else "unlisted weights"):
            read_pipeline(given, hospital)
    file = tmp_path / "hub" / "checkpoints" / "densenet121-a639ec97.pth"
    file.parent.mkdir(parents=True)
    file.touch()
    if listed and network == "densenet121":
        assert read_pipeline(given, hospital).model.name == "features"


def test_texts_of_a_pipeline_are_known() -> None:
    """A key that may name a file of a hospital is marked, so that only files beside hospital.yaml are meant."""
    schema, found = Pipeline.model_json_schema(), set[str]()

    def walk(node: Any, where: str) -> None:
        if isinstance(node, list):
            for part in node:
                walk(part, where)
        elif "$ref" in node:
            walk(schema["$defs"][node["$ref"].rpartition("/")[2]], where)
        else:
            found.update([where] if node.get("type") == "string" and not {"pattern", "enum", "const"} & {*node} else [])
            for key, part in node.get("properties", {}).items():
                walk(part, f"{where}.{key}" if where else key)
            for key in {"anyOf", "items", "additionalProperties"} & {*node}:
                walk(node[key] if isinstance(node[key], dict | list) else [], where)

    walk(schema, "")
    parts = {"model", "engine", "federated.algorithm", "federated.objective"}
    words = {"title", "titles", "method", "published.source", "published.note"}  # shown, or the hospitals' names
    words |= {
        "held_out.sites",
        "alternatives.hospitals",
        "overlap.same_patient_ids",
        *parts,
        *(f"{part}.name" for part in parts),
    }
    places = {"data_root", "sites.config", "sites.root", "collection.root"}  # the hospital puts its own in their place
    assert found == words | places | {"model.initial_weights", "model.network"}
    named = dict[str, str]()
    for network in ({"name": "small", "initial_weights": "a.pt"}, "b.safetensors"):
        model = json.dumps({"name": "features", "network": network, "initial_weights": "c.pt"})
        asked = pipeline(f"model={model}", "augment.enabled=false")
        asked.relocate(lambda key, text: named.setdefault(key, text))
    assert named == {
        "model.initial_weights": "c.pt",
        "model.network": "b.safetensors",
        "model.network.initial_weights": "a.pt",
    }


def test_steps_are_those_of_the_place(home: Path) -> None:
    """Once another has left: the number in what remains is no place in a list of all."""
    steps = ["federated.local_steps={per_client: [9, 1, 9]}", "federated.stage_steps=18"]
    server = FreeServer(hospital_at(home / "places", data_of(home), least_window=5), group(FEDAVG, *steps))
    assert server.begin("chexpert", "padchest") == ""
    assert "the pipeline has 9 to 9 steps" in server.work(steps=1)
    assert server.work(steps=9) == ""


def test_first_weights_are_the_pipelines(home: Path) -> None:
    server = FreeServer(hospital_at(home / "first", data_of(home)), group(FEDAVG, "pretrain.epochs=0"))
    assert server.begin(*NAMES) == ""
    assert "other weights" in server.begin(*NAMES, weights=torch.full_like(server.network.parameters(), 0.123))


def test_k_has_one_state_file(home: Path) -> None:
    """Whatever members the server says it has; that of another K stays."""
    server = FreeServer(hospital_at(home / "states", data_of(home)), group(FEDAVG))
    assert server.begin("chexpert", "padchest") == ""
    folder = server.hospital.path("state") / server.study
    (folder / "k30.safetensors").touch()
    for members in (NAMES, NAMES[1:], ("chexpert", "padchest")):
        assert server.begin(*members) == ""
        assert len({*folder.glob("k3*.safetensors")}) == 2


def test_number_of_studies_is_bounded(home: Path) -> None:
    """Without an approval a server can name one for each seed."""
    server = FreeServer(hospital_at(home / "many", data_of(home), most_studies=1), group(FEDAVG))
    state = server.hospital.path("state")
    assert server.greet() == ""
    others = FreeServer(server.hospital, group(FEDAVG, "seed=7"))
    assert "most_studies" in others.greet()
    assert not (state / others.study).exists()
    server.start_hospital()
    assert server.greet() == ""


def test_error_is_an_answer_that_counts(home: Path) -> None:
    """That outputs, or an update, are not finite tells something of the images: so often as the policy says."""
    policy = {"most_models_scored": 1, "most_rounds_answered": 1}
    server = FreeServer(hospital_at(home / "errors", data_of(home), **policy), group(FEDAVG))
    assert server.begin(*NAMES) == ""
    for ask in (server.score, server.work):
        assert "not finite" in ask(server.overflow())
        assert "the hospital's policy" in ask(server.overflow())
    assert (server.usage["models"], server.usage["rounds"]) == (1, 1)


@pytest.mark.slow_but("<lambda>0")
@pytest.mark.parametrize("change", [lambda file: file.unlink(), lambda file: file.write_text('{"rounds": 0}')])
def test_limits_outlive_their_file(home: Path, change: Callable[[Path], object]) -> None:
    """The log counts too; a file with numbers below zero is damaged."""
    hospital = hospital_at(home / f"kept{change.__code__.co_names[0]}", data_of(home), most_rounds_answered=1)
    server = FreeServer(hospital, group(FEDAVG))
    assert server.begin(*NAMES) + server.work() == ""
    file = hospital.path("state") / server.study / "usage.json"
    before = server.usage
    change(file)
    server.start_hospital()
    assert server.begin(*NAMES).startswith("the hospital's policy: most_rounds_answered")
    assert server.usage["rounds"] == 1
    assert server.usage["sent"] >= before["sent"]
    file.write_text('{"rounds": -5}')
    server.start_hospital()
    assert "ConfigError" in server.greet()


def test_log_names_no_file_of_a_patient(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an error of the hospital's own, in a request or in code below: it is shown, and not written down."""
    hospital = hospital_at(home / "named", data_of(home))
    server = FreeServer(hospital, group(FEDAVG))
    assert server.greet() == ""
    for error in (SiteError("padchest", [Problem("gone", "patient4711/a.png", "missing")]), OSError("patient4711")):

        def fail(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        monkeypatch.setattr(participant_module, "open_rows", fail)
        assert "4711" not in server.refusal("open")
    assert sum("4711" in text for text in server.shown) == 2
    logged = (hospital.path("state") / "hospital.log").read_text()
    assert "SiteError" in logged
    assert "OSError" in logged
    assert "4711" not in logged


@pytest.mark.parametrize("lines", ["import late_{0}", "from importlib import import_module as get; get('late_{0}')"])
def test_helper_that_is_imported_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str) -> None:
    """The files of a plug-in are compared at every request: what is imported only then was read before."""
    monkeypatch.chdir(tmp_path)
    name = f"lazy{len(lines)}"
    source = Path(tiny_transformer.__file__).read_text(encoding="utf-8")
    text = f"{source}\n\ndef later():\n    {lines.format(name)}\n"
    Path(f"{name}.py").write_text(text, encoding="utf-8")
    Path(f"late_{name}.py").write_text("V = 1\n", encoding="utf-8")
    hospital = hospital_at(tmp_path, tmp_path / "data")
    hospital = replace(hospital, file=hospital.file.model_copy(update={"plugins": [f"{name}:TINY"]}))
    server = FreeServer(hospital, pipeline(f"model={{name: '{name}:TINY'}}"))
    assert server.greet() == ""
    assert "the code of a plug-in" not in server.refusal("ask", k=3)
    Path(f"late_{name}.py").write_text("V = 2  # changed\n", encoding="utf-8")
    assert "the code of a plug-in" in server.refusal("ask", k=3)


def hospital_at(folder: Path, data: Path, **policy: Any) -> Hospital:
    """Of padchest, which sends AUCs, with this policy."""
    hospital = sample_hospital("padchest", folder, data, Leaves(results="aucs"))
    return replace(hospital, file=hospital.file.model_copy(update={"policy": Policy(**policy)}))


def data_of(home: Path) -> Path:
    return home / "synthetic_hospitals"


def group(*settings: str) -> Pipeline:
    """A study of K=3 without running statistics."""
    return pipeline("k=[3]", "model.norm=group", *settings)
