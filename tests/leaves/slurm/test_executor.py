"""`--cluster`: how many jobs run at a time."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
import submitit

from chestfed.core.errors import ChestfedError
from chestfed.leaves.slurm.executor import Cluster, ClusterExecutor, _executor
from chestfed.studies.running import Job
from tests.cases import assert_refused


class Task:
    """A job that ends when it is asked whether it has."""

    def __init__(self, machine: Machine, job: Job) -> None:
        self.job_id, self._machine, self._job = "7", machine, job  # a process's number can return

    def done(self) -> bool:
        self._machine.running -= 1
        return True

    def exception(self) -> Exception | None:
        return OSError(self._job.label) if self._job.label in self._machine.failing else None

    def result(self) -> str:
        return self._job.label


class Machine:
    """In place of submitit's executor: counts the jobs that run."""

    def __init__(self, failing: tuple[str, ...] = ()) -> None:
        self.failing, self.running, self.most, self.sent = failing, 0, 0, 0

    def update_parameters(self, **parameters: object) -> None:
        self.parameters = parameters

    def batch(self) -> nullcontext[None]:
        return nullcontext()

    def submit(self, _: object, job: Job, __: object) -> Task:
        self.running, self.sent = self.running + 1, self.sent + 1
        self.most = max(self.most, self.running)
        return Task(self, job)


def send(folder: Path, machine: Machine, scheduler: str, patch: pytest.MonkeyPatch) -> list[Any]:
    """Send five jobs, two at a time."""
    patch.setattr(submitit, "AutoExecutor", lambda **_: machine)
    file = folder / "cluster.yaml"
    file.write_text(f"scheduler: {scheduler}\n")
    jobs = [cast(Job, MagicMock(label=label, out=folder)) for label in "abcde"]
    return ClusterExecutor(file, 2, None)(jobs, MagicMock())


def test_local_jobs_run_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    assert send(tmp_path, machine, "local", monkeypatch) == list("abcde")
    assert (machine.most, machine.sent) == (2, 5)


def test_slurm_bounds_its_jobs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    assert send(tmp_path, machine, "slurm", monkeypatch) == list("abcde")
    assert (machine.most, machine.parameters["slurm_array_parallelism"]) == (5, 2)


def test_jobs_after_a_failed_one_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(failing=("b",))
    with assert_refused(ChestfedError, "jobs failed", jobs=["b"]):
        send(tmp_path, machine, "local", monkeypatch)
    assert machine.sent == 5


def test_a_job_is_queued_again_at_every_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "srun").write_text("#!/bin/sh\n")
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    executor, _ = _executor(Cluster(parameters={"timeout_min": 240}), 2, tmp_path, tmp_path / "cluster.yaml")
    assert executor._executor.max_num_timeout >= 1000
