"""Records beside MLflow's: the same content, and nothing else about the machine or the patients."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from chestfed.core.errors import ConfigError
from chestfed.reports.tracking.content import list_parameters
from chestfed.reports.tracking.declaration import RECORDS
from chestfed.reports.tracking.scalars import ScalarRecord
from chestfed.studies.training.reporting import StudyRun
from tests.cases import assert_refused, each
from tests.command_line import call

#: A study of seconds.
WORDS = ("study", "digits_ih", "--quick", "--methods", "codasca", "--no-tracking", "--set", "federated.stage_steps=4")
WINDOW = ("--set", "federated.window=2")


def test_incomplete_record_names_what_lacks() -> None:
    class Incomplete(ScalarRecord):
        def describe(self, text: str) -> None:
            pass

    with pytest.raises(TypeError, match=r"Incomplete.*begin.*end.*log"):
        Incomplete()  # type: ignore[abstract]


class Kept(ScalarRecord):
    """Keeps what it is given."""

    name, command = "kept", "kept --show runs"

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []

    def begin(self, run: str, name: str, tags: Mapping[str, str], parameters: Mapping[str, Any]) -> None:
        self.runs.append({"run": run, "name": name, "tags": tags, "parameters": parameters, "values": []})

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.runs[-1]["values"].append((step, dict(values)))

    def describe(self, text: str) -> None:
        self.runs[-1]["text"] = text

    def end(self, *, failed: bool = False) -> None:
        self.runs[-1]["failed"] = failed


def test_record_has_rounds_result_and_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, started = Kept(), list[StudyRun]()
    begin = Kept.study_started
    monkeypatch.setattr(Kept, "study_started", lambda self, study: (started.append(study), begin(self, study))[1])
    find = type(RECORDS).find
    spec = type("Spec", (), {"make": staticmethod(lambda out, uri: kept)})
    monkeypatch.setattr(type(RECORDS), "find", lambda self, name: spec if name == "kept" else find(self, name))
    called = call(*WORDS, *WINDOW, "--record", "kept", folder=tmp_path)
    assert called.code == 0, called.err
    assert "kept: kept --show runs" in called.out
    (run,) = kept.runs
    assert run["parameters"] == list_parameters(started[0])
    assert run["tags"]["quick"] == "true"
    assert run["failed"] is False
    steps = [step for step, values in run["values"] if "K5/round/loss" in values]
    assert steps == [1, 2, 3, 4]
    finals = {name: value for _, values in run["values"] for name, value in values.items()}
    assert finals["auc/mean"] == finals["K5/round/auc_mean"]
    assert finals["mean_auc/K5"] == round(finals["auc/mean"], 4)
    assert run["text"] in " ".join(called.out.split()) or run["text"].startswith("QUICK")


def test_resumed_study_is_recorded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, find = Kept(), type(RECORDS).find
    spec = type("Spec", (), {"make": staticmethod(lambda out, uri: kept)})
    monkeypatch.setattr(type(RECORDS), "find", lambda self, name: spec if name == "kept" else find(self, name))
    for _ in range(2):
        assert call(*WORDS, *WINDOW, "--record", "kept", folder=tmp_path).code == 0
    first, second = kept.runs
    assert first["run"] == second["run"]
    assert "auc/mean" in second["values"][0][1]
    assert second["failed"] is False


@each("name", ["tensorboard", "wandb"])
def test_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for module in ("wandb", "tensorboard", "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, module, None)
    with assert_refused(ConfigError, "not installed", extra=name) as caught:
        RECORDS.find(name).make(tmp_path, None)
    assert "pip install" in str(caught.value) or "-m pip" in str(caught.value)
    assert call(*WORDS, *WINDOW, "--record", name, folder=tmp_path).code == 1
    assert not (tmp_path / "runs").exists()


def test_unknown_record_is_refused() -> None:
    with assert_refused(ConfigError, "unknown record", suggestion="wandb"):
        RECORDS.find("wandbb")


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_files_say_nothing_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    pytest.importorskip(name)
    monkeypatch.setenv("USER", "canary-user")
    monkeypatch.setenv("LOGNAME", "canary-user")
    monkeypatch.setattr("socket.gethostname", lambda: "canary-host")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    called = call(*WORDS, *WINDOW, "--record", name, folder=tmp_path)
    assert called.code == 0, called.err
    assert "stopped" not in called.out
    shown = {"tensorboard": "tensorboard --logdir runs/tensorboard", "wandb": "wandb sync runs/wandb/offline-run-*"}
    assert shown[name] in called.out
    files = [file for file in (tmp_path / "runs" / name).rglob("*") if file.is_file()]
    written = b"".join(file.read_bytes() for file in files if file.suffix != ".log")
    assert b"round/auc_mean" in written
    for canary in (b"canary-user", b"canary-host", bytes(tmp_path)):
        assert canary not in written
    assert not re.search(rb"patient/|synthetic_hospitals", written)


def test_tensorboard_has_the_values(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    record = RECORDS.find("tensorboard").make(tmp_path, None)
    record.begin("run", "a study", {"kind": "study"}, {"k": 1})
    record.log(3, {"K1/round/loss": 0.25})
    record.end()
    events = EventAccumulator(str(tmp_path / "tensorboard" / "run"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("K1/round/loss")] == [(3, 0.25)]
