"""Clients on ranks: the bits of one process, and an end with a name when a rank fails or dies."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import signal
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from chestfed.core.errors import ConfigError, TrainingError
from chestfed.core.plugins import Options
from chestfed.engines import declaration
from chestfed.engines.declaration import engine_for
from chestfed.engines.ranks.fleet import rank_hosting
from chestfed.engines.ranks.link import Link
from chestfed.experiment.device import prepare_machine
from chestfed.experiment.rules import check_runs
from chestfed.training.clients import Setup
from chestfed.training.identity import identify, stage_1_identity
from tests.training.test_resume_algorithms import pipeline_of


@pytest.mark.parametrize(("clients", "ranks"), [(5, 2), (5, 5), (5, 8), (1, 3)])
def test_every_client_has_one_rank_and_rank_0_no_more_than_the_others(clients: int, ranks: int) -> None:
    shares = [[n for n in range(clients) if rank_hosting(n, clients, ranks) == rank] for rank in range(ranks)]
    assert sorted(number for share in shares for number in share) == list(range(clients))
    assert clients == 1 or len(shares[0]) == min(map(len, shares))


def test_the_engine_is_that_of_the_launcher_unless_one_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine_for(None).name == "in-process"
    assert engine_for(Options(name="torchrun")).name == "torchrun"
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert (engine_for(None).name, declaration.rank()) == ("torchrun", 1)
    with pytest.raises(ConfigError, match=r"in-process .* 2: start it without torchrun"):
        engine_for(Options(name="in-process"))
    with pytest.raises(ConfigError, match="chestfed tune"):
        declaration.refuse_several("chestfed tune")


def test_ranks_come_to_the_bits_of_one_process_and_one_that_dies_ends_the_run_with_its_number(tmp_path: Path) -> None:
    """Whole runs, and runs that were begun in one process; with each option; then rank 1 is killed within a round."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    importlib.import_module("monai.networks.nets")  # once, before the ranks are forked
    work, fork = importlib.import_module("tests.engines.rank_work").main, multiprocessing.get_context("fork")
    running = [fork.Process(target=work, args=(tmp_path, {**common, "RANK": str(n)}), daemon=True) for n in range(2)]
    for process in running:
        process.start()
    for process in running:
        process.join(240)
    assert [process.exitcode for process in running] == [0, -signal.SIGKILL]
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["differences"] == []
    for summed, alike in zip(told["all_reduced"], (False, True), strict=True):
        numbers = {name: summed.pop(name) for name in ("rounds", "saved", "primal", "dual", "buffers")}
        assert 0 < max(summed.values()) < 1e-5, summed  # other bits, the same run
        d = numbers["primal"]
        of_a_client = d * (3 if alike else 2) + numbers["dual"] * (2 if alike else 1) + numbers["buffers"]
        of_a_sum = of_a_client + (0 if alike else d)
        # Rank 1 has two clients: rank 0 receives one sum in place of two answers.
        assert numbers["saved"] == pytest.approx(4 * numbers["rounds"] * (2 * of_a_client - of_a_sum), rel=0.02)
    split = told["split"]
    assert split["moved"] > 0.01
    assert max(split["weights"], split["losses"]) < 1e-5
    assert split["again"] == 0.0
    *both, resumed = told["split_rounds"]
    assert resumed == {"again": 0.0}
    for parted in both:
        assert 0 < max(parted.values()) < 1e-4, parted
        assert parted["images"] == 0
    assert "rank 1" in told["error"]


OPTIONS = "engine={name: torchrun, all_reduce: true, split_batches: true}"


def test_what_changes_numbers_is_of_the_engine_that_has_it_and_names_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for settings in (["engine={name: in-process, all_reduce: true}"], ["engine.all_reduce=true", "engine=in-process"]):
        with pytest.raises(ConfigError, match="all_reduce"):
            pipeline_of("codasca", *settings)

    def names(*more: str) -> tuple[str, str]:
        pipeline: Any = pipeline_of("codasca", *more)
        data: Any = SimpleNamespace(clients=[SimpleNamespace(name="c")], digests={"c": ""})
        whole = identify(Setup(pipeline, data, prepare_machine(pipeline.runtime)))
        return whole.digest, stage_1_identity(whole, data).digest

    plain, summed, both = names("engine=torchrun"), names("engine={name: torchrun, all_reduce: true}"), names(OPTIONS)
    assert both == names("engine.split_batches=true", "engine.all_reduce=true", "engine=torchrun")
    for name, value in {"RANK": "1", "WORLD_SIZE": "8", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert plain == names()
    assert plain[1] == summed[1]
    assert len({plain[0], summed[0], both[0], names(OPTIONS)[0]}) == 4
    assert len({plain[1], both[1], names(OPTIONS)[1]}) == 3


@pytest.mark.parametrize(
    ("algorithm", "more", "key"),
    [
        ("fedavg", "per_algorithm={} federated.aggregation=median", "aggregation"),
        ("pdmm", "", "algorithm"),
        ("codasca", "pretrain.batch_size=7", "split_batches"),
        ("codasca", "federated.batch_size=7 engine.split_rounds=true engine.all_reduce=false", "split_rounds"),
        ("codasca", "engine.split_rounds=true", "all_reduce.*split_rounds"),
        (
            "local_scgdam",
            "engine.split_rounds=true engine.all_reduce=false per_algorithm={}",
            "split_rounds.*compositional_auc",
        ),
    ],
)
def test_what_cannot_be_summed_or_split_is_refused_before_anything_starts(
    algorithm: str, more: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "8", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"engine.*{key}"):
        check_runs([pipeline_of(algorithm, OPTIONS, *more.split())])


def test_a_round_without_somebody_is_refused_before_stage_1_also_where_the_launcher_chose_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = pipeline_of("codasca", "per_algorithm={}", "federated.absent=drop")
    check_runs([run])
    for name, value in {"RANK": "0", "WORLD_SIZE": "8", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=r"federated\.absent: with torchrun"):
        check_runs([run])


def test_processes_that_cannot_meet_are_told_how_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="no launcher started this process"):
        Link.joined(1.0, torch.device("cpu"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(ConfigError, match=rf"cannot meet at 127\.0\.0\.1:{port}"):
            Link.joined(1.0, torch.device("cpu"))


def links() -> tuple[Link, Link]:
    store, cpu = dist.HashStore(), torch.device("cpu")
    left, right = (Link(store, rank, 2, 60.0, cpu, cpu) for rank in range(2))
    return left, right


def test_what_fails_on_another_rank_is_told_as_it_is_there() -> None:
    for error, kind in ((TrainingError("client 'b': its update"), TrainingError), (KeyError("b"), RuntimeError)):
        left, right = links()
        try:
            raise error
        except Exception as raised:
            right.fail(raised)
        with pytest.raises(kind, match=r"(?s)'b'.*rank 1|rank 1.*'b'"):
            left.fetch(1, None, "client 'a' on rank 1")


def test_a_rank_that_does_not_answer_in_time_is_named_with_its_client() -> None:
    left, right = links()
    right.post(0, {"header": "x"})
    assert left.fetch(1, 0.0, "") == {"header": "x"}
    with pytest.raises(TrainingError, match=r"client 'b' on rank 1 has not answered within 0\.1 s"):
        left.fetch(1, 0.1, "client 'b' on rank 1")
