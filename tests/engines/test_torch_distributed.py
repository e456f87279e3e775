"""Clients on ranks: the bits of one process, and an end with a name when a rank fails or dies."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from chestfed.core.errors import ConfigError, TrainingError
from chestfed.core.plugins import Options
from chestfed.engines import declaration
from chestfed.engines.declaration import engine_for
from chestfed.engines.torch_distributed import Link, rank_hosting

ROOT = Path(__file__).parents[2]


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
    """Whole runs, and runs that were begun in one process; then rank 1 is killed within a round."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    common |= {"LOCAL_WORLD_SIZE": "2", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "tests.engines.rank_work", str(tmp_path)]
    running = [
        subprocess.Popen(words, env={**common, "RANK": str(rank)}, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    told = json.loads(running[0].communicate(timeout=240)[0])
    assert told["differences"] == []
    assert "rank 1" in told["error"]
    assert [process.wait(10) for process in running] == [0, -signal.SIGKILL]


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
