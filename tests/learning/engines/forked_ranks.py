"""Ranks of torch.distributed as forks of a test's process."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from chestfed.learning.engines.ranks.link import Link


def fork_ranks(folder: Path, count: int, work: Callable[[], Any]) -> list[Any]:
    """The result of `work` in each of so many processes with the variables of a launcher."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    fork = multiprocessing.get_context("fork")
    running = []
    for rank in range(count):
        variables = {name: str(value) for name, value in {**common, "RANK": rank}.items()}
        running.append(fork.Process(target=_work, args=(folder / f"rank{rank}", variables, work), daemon=True))
    for process in running:
        process.start()
    for process in running:
        process.join(240)
    return [pickle.loads((folder / f"rank{rank}").read_bytes()) for rank in range(count)]


def run_ranks(folder: Path, count: int, work: Callable[[Link], Any], timeout: float = 60.0) -> list[Any]:
    """The result of `work` at each rank, given its link, or its error, which a rank that fails tells the others."""
    return fork_ranks(folder, count, partial(_with_link, work, timeout))


def _work(file: Path, variables: dict[str, str], work: Callable[[], Any]) -> None:
    os.environ.update(variables)
    torch.set_num_threads(1)  # the pool of the test's process is not forked: to wait for its threads would never end
    file.write_bytes(pickle.dumps(work()))


def _with_link(work: Callable[[Link], Any], timeout: float) -> Any:
    link = Link.joined(timeout, torch.device("cpu"))
    try:
        result = work(link)
    except Exception as error:
        result = error
        link.fail(error)
        if link.rank:
            link.wait_for_rank0()
    link.close()
    return result
