"""Studies in processes of their own: all are run, what fails is named, nothing outlives the command."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from chestfed.app.commands.progress import Bars
from chestfed.core.console import open_console
from chestfed.core.errors import ChestfedError
from chestfed.studies import jobs as study_jobs
from chestfed.studies.jobs import run_jobs
from chestfed.studies.running import Job
from chestfed.studies.training.reporting import Reporters, use
from tests.app.commands.job_work import Cpu, work
from tests.cases import assert_refused
from tests.command_line import call
from tests.studies.training.test_resume_algorithms import SETTINGS


def job(label: str, out: Path) -> Job:
    return Job(label, "study", Cpu(), out)  # type: ignore[arg-type]


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> Bars:
    monkeypatch.setattr(study_jobs, "_work", work)
    return Bars(open_console(quiet=True))


@pytest.mark.slow
def test_failures_are_named_after_the_others(tmp_path: Path, bars: Bars) -> None:
    messages: list[str] = []
    jobs = [job(label, tmp_path) for label in ("one", "failing", "killed", "two")]
    running = run_jobs(jobs, 2)
    reasons = {"failing": "no memory", "killed": "its process ended with exit code 9"}
    with use(Reporters([], messages.append)):
        assert {next(running).label, next(running).label} == {"one", "two"}
        with assert_refused(ChestfedError, "failed runs", reasons=reasons):
            next(running)
    assert len(messages) == 2
    assert (tmp_path / "one").exists()
    assert (tmp_path / "two").exists()


def test_divergence_of_one_spares_the_rest(tmp_path: Path) -> None:
    sets = [*SETTINGS, "methods.fedavg.local_lr=1e30"]
    words = ["study", "digits_ih", "--methods", "fedavg,fedprox", "--seeds", "1", "--no-tracking", "--out", tmp_path]
    done = call(*words, *[word for text in sets for word in ("--set", text)])
    assert done.code == 1
    assert "1 of 2 runs failed" in done.err
    assert len(list(tmp_path.glob("digits_ih-*/table.csv"))) == 1


@pytest.mark.slow
def test_warning_of_job_names_no_folder(tmp_path: Path, bars: Bars, capfd: pytest.CaptureFixture[str]) -> None:
    texts: list[str] = []
    with use(Reporters([], texts.append)):
        assert [ended.label for ended in run_jobs([job("warning", tmp_path)], 1)] == ["warning"]
    assert texts == ["warning: warning: MLflow stopped", "warning: warning: no version"]
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_interrupted_command_ends_processes(tmp_path: Path, bars: Bars) -> None:
    running = run_jobs([job("one", tmp_path), job("endless", tmp_path)], 1)
    assert next(running).label == "one"
    mark = tmp_path / "endless.pid"

    def interrupt(*_: object) -> None:
        while not (mark.exists() and mark.read_text()):
            time.sleep(0.01)
        raise KeyboardInterrupt

    bars.show = interrupt  # type: ignore[method-assign, assignment]
    with use(Reporters([bars])), pytest.raises(KeyboardInterrupt):
        next(running)
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)
