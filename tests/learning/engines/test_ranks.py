"""Clients on ranks: the bits of one process, and an end with a name when a rank fails or dies."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import signal
import socket
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from chestfed.app.commands.options import print_error
from chestfed.core.errors import ConfigError, TrainingError
from chestfed.core.plugins import Options
from chestfed.learning.engines import declaration
from chestfed.learning.engines.declaration import engine_for
from chestfed.learning.engines.ranks import rendezvous
from chestfed.learning.engines.ranks.link import Link
from chestfed.learning.engines.ranks.parts import find_team
from chestfed.studies.experiment.resolved import identity
from chestfed.studies.experiment.rules import check_runs
from tests.cases import assert_refused
from tests.learning.engines.forked_ranks import fork_ranks
from tests.studies.training.test_resume_algorithms import make_pipeline


@pytest.mark.parametrize(("clients", "ranks"), [(5, 2), (5, 5), (5, 8), (1, 3)])
def test_clients_are_dealt_evenly(clients: int, ranks: int) -> None:
    shares = [[n for n in range(clients) if find_team(n, clients, ranks, 1) == [rank]] for rank in range(ranks)]
    assert sorted(number for share in shares for number in share) == list(range(clients))
    assert clients == 1 or len(shares[0]) == min(map(len, shares))


def test_launcher_chooses_the_default_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine_for(None).name == "in-process"
    assert engine_for(Options(name="torchrun")).name == "torchrun"
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert (engine_for(None).name, declaration.rank()) == ("torchrun", 1)
    with assert_refused(ConfigError, "one process only"):
        engine_for(Options(name="in-process"))
    with assert_refused(ConfigError, "one process only"):
        declaration.refuse_several("chestfed tune")


@pytest.mark.slow_but("1")
@pytest.mark.parametrize("count", [1, 6])
def test_ranks_equal_one_process(count: int, tmp_path: Path) -> None:
    """Whole runs, and runs that were begun in one process; then rank 1 is killed within a round."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    importlib.import_module("monai.networks.nets")  # once, before the ranks are forked
    work, fork = importlib.import_module("tests.learning.engines.rank_work").main, multiprocessing.get_context("fork")
    running = [fork.Process(target=work, args=(tmp_path, {**common, "RANK": n}, count), daemon=True) for n in "01"]
    for process in running:
        process.start()
    for process in running:
        process.join(240)
    assert [process.exitcode for process in running] == [0, -signal.SIGKILL]
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["differences"] == []
    assert "rank 1" in report["error"]


def test_engine_is_not_part_of_the_identity() -> None:
    assert identity(make_pipeline("codasca", "engine=torchrun")) == identity(make_pipeline("codasca"))


def test_absences_are_refused_on_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_pipeline("codasca", "federated.absent=drop")
    check_runs([run])
    for name, value in {"RANK": "0", "WORLD_SIZE": "8", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with assert_refused(ConfigError, "invalid configuration", keys=["federated.absent"]):
        check_runs([run])


def _launch(patch: pytest.MonkeyPatch, rank: int, size: int, port: int) -> None:
    """Set the variables of a launcher."""
    values = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in values.items():
        patch.setenv(name, str(value))


def test_ranks_that_cannot_meet_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with assert_refused(ConfigError, "no launcher"):
        Link.joined(1.0, torch.device("cpu"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        _launch(monkeypatch, 0, 2, port)
        with assert_refused(ConfigError, "processes cannot meet", address=f"127.0.0.1:{port}", in_use=True):
            Link.joined(1.0, torch.device("cpu"))
    monkeypatch.setenv("MASTER_PORT", "many")
    with assert_refused(ConfigError, "not a port", port="many"):
        Link.joined(1.0, torch.device("cpu"))


def test_rank_0_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "FIRST_NOTICE", 0.05)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    _launch(monkeypatch, 1, 2, port)
    lines: list[str] = []
    with assert_refused(TrainingError, "ranks missing", missing=[0], address=f"127.0.0.1:{port}"):
        Link.joined(0.5, torch.device("cpu"), lines.append)
    assert f"rank 1: waiting for rank 0 of 2 at 127.0.0.1:{port}" in lines[0]


def _join_but_rank_2(lines: list[str]) -> tuple[list[str], str, object]:
    """What a rank that waits for rank 2 is told, and how it ends."""
    if declaration.rank() == 2:
        return lines, "", None
    try:
        Link.joined(3.0, torch.device("cpu"), lines.append)
    except TrainingError as error:
        return lines, error.kind, error.fields["missing"]
    return lines, "", None


def test_ranks_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rendezvous, "FIRST_NOTICE", 1.0)
    first, second, _ = fork_ranks(tmp_path, 3, partial(_join_but_rank_2, []))
    assert "waiting for rank 2 of 3 at 127.0.0.1:" in first[0][-1]
    assert first[1:] == ("ranks missing", [2])
    assert second == ([], "ranks missing", [2])


def test_launcher_is_told_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As torchrun reads it for the end of its report."""
    file = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(file))
    print_error(ConfigError("the cause"))
    print_error(ConfigError("what came of it"))
    text = ChildFailedError("chestfed", {0: ProcessFailure(0, 1, 1, str(file))}).format_msg()
    assert "the cause" in text
    assert "what came of it" not in text
