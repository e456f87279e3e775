"""What a round of CODASCA costs beside its bare bytes: five clients, messages of DenseNet121's size, next to no work.

    python -m benchmarks.engine_cost --save benchmarks/results/engine_cost.json

Per number of ranks, best of several rounds: `round`, by the engine; `bytes`, what passed to and from rank 0 in it, as
the engine counted; `floor`, the arrays of `round` sent and received by torch.distributed alone. With one rank nothing
passes: `floor` is then the algorithm's own steps without an engine, and `steps_32` the time of 32 training steps of
DenseNet121 (batches of 8, 320 pixels), of which the difference is a share.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from chestfed.algorithms.codasca import Codasca
from chestfed.algorithms.variables import Point
from chestfed.core.checkpoint import write_json
from chestfed.engines.fleet import LocalFleet
from chestfed.engines.host import Host
from chestfed.engines.ranks.fleet import RankFleet, answer_requests, rank_hosting
from chestfed.engines.ranks.link import Link
from chestfed.engines.server import ServerEngine
from chestfed.engines.shapes import Shapes
from chestfed.models import build_model, network_options

ROOT = Path(__file__).parents[1]
CLIENTS, PARAMETERS, DUAL, BUFFERS, ROUNDS = 5, 6_948_609, 5, 83_648, 15
RULE = Codasca(1, 0.1, 0.1)
CPU = torch.device("cpu")


class Idle:
    """A client whose gradient is one tensor, always the same."""

    def __init__(self, name: str) -> None:
        self.name, self.gradients_computed, self.images_seen = name, 0, 0
        self._gradient, self._buffers = torch.full((PARAMETERS + 2 * DUAL,), 1e-3), torch.zeros(BUFFERS)

    @property
    def oracle(self) -> Any:
        return lambda primal, dual: (self._gradient, dual)

    @contextmanager
    def training(self, buffers: Tensor) -> Iterator[None]:
        yield

    def buffers(self) -> Tensor:
        return self._buffers

    def mean_loss(self) -> float:
        return 0.0

    def mean_gradient(self) -> Tensor:
        return self._gradient

    def gather_statistics(self, primal: Tensor, batches: int) -> None:
        pass

    def best_dual(self, primal: Tensor, dual: Tensor, batches: int) -> Tensor:
        return dual

    def positions(self) -> list[int]:
        return [0]

    def seek(self, positions: Sequence[int]) -> None:
        pass

    def close(self) -> None:
        pass


def best(action: Callable[[], object]) -> float:
    """Seconds of the quickest of several."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return round(min(times), 4)


def point() -> Point:
    return Point(torch.zeros(PARAMETERS + 2 * DUAL), torch.zeros(DUAL))


def of_engine(engine: ServerEngine, passed: Callable[[], int] = int) -> tuple[float, int]:
    """Seconds and bytes of a round; `passed` counts all bytes so far."""
    state = [engine.start_stage(point(), torch.zeros(BUFFERS))]
    before = passed()

    def one() -> None:
        state[0] = engine.run_round(state[0])[0]

    return best(one), (passed() - before) // ROUNDS


def alone() -> dict[str, Any]:
    """One process."""
    clients = [Idle(f"c{number}") for number in range(CLIENTS)]
    engine = ServerEngine(RULE, LocalFleet.of(clients, RULE), [1 / CLIENTS] * CLIENTS)
    server, own = RULE.start_stage(point()), RULE.start_client(point())

    def bare() -> None:
        updates = [RULE.local_round(server, own, client.oracle)[0] for client in clients]
        RULE.server_round(server, updates, [1 / CLIENTS] * CLIENTS)

    seconds, floor = of_engine(engine)[0], best(bare)
    network, images = build_model(network_options("densenet121"), DUAL, 0), torch.randn(8, 3, 320, 320)
    network.train()
    began = time.perf_counter()
    for _ in range(2):
        network(images).square().sum().backward()
    steps = 16 * (time.perf_counter() - began)
    share = round((seconds - floor) / (CLIENTS * steps), 5)
    return {"ranks": 1, "round": seconds, "floor": floor, "steps_32": round(steps, 1), "share_of_a_round": share}


def on_ranks() -> None:
    """The part of one rank; rank 0 prints."""
    link = Link.joined(600, CPU)
    mine = [number for number in range(CLIENTS) if rank_hosting(number, CLIENTS, link.size) == link.rank]
    hosts = {number: Host(Idle(f"c{number}"), lambda stage: RULE) for number in mine}
    shapes = [Shapes(RULE, PARAMETERS + 2 * DUAL, DUAL, BUFFERS)] * CLIENTS
    if link.rank:
        while (note := link.fetch(0, None, "rank 0"))["do"] == "ask":
            answer_requests(link, note, hosts, shapes)
    else:
        fleet = RankFleet(link, [f"c{number}" for number in range(CLIENTS)], hosts, shapes)
        engine = ServerEngine(RULE, fleet, [1 / CLIENTS] * CLIENTS)
        seconds, size = of_engine(engine, lambda: link.sent + link.received)
        for rank in range(1, link.size):
            link.post(rank, {"do": "floor"})
    down = torch.ones(2 * (PARAMETERS + 3 * DUAL) + BUFFERS)  # not zeros: their pages would not be in memory
    up = [torch.ones(down.numel() + PARAMETERS + 2 * DUAL) for _ in range(CLIENTS)]

    def bare() -> None:
        dist.barrier()
        if link.rank:
            dist.recv(down, 0)
            for number in mine:
                dist.send(up[number], 0)
            return
        for work in [dist.isend(down, rank) for rank in range(1, link.size)]:
            if work is not None:
                work.wait()
        for number in range(CLIENTS):
            if number not in mine:
                dist.recv(up[number], rank_hosting(number, CLIENTS, link.size))

    start, idle = point(), Idle("")
    server, own = RULE.start_stage(start), RULE.start_client(start)
    updates = [server] * CLIENTS

    def steps() -> None:
        dist.barrier()
        for number in mine:
            updates[number] = RULE.local_round(server, own, idle.oracle)[0]
        dist.barrier()
        if link.rank == 0:
            RULE.server_round(server, updates, [1 / CLIENTS] * CLIENTS)

    floor, computed = best(bare), best(steps)
    if link.rank == 0:
        told = {"ranks": link.size, "round": seconds, "bytes": size, "steps": computed, "floor": floor}
        print(json.dumps(told | {"round_added_times_the_floor": round((seconds - computed) / floor, 2)}))
    link.close()


def main() -> None:
    """Measure, or be a rank."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", type=Path, help="JSON file to write")
    save = parser.parse_args().save
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        on_ranks()
        return
    rows = [alone()]
    for ranks in (2, 5):
        words = ["--nproc-per-node", str(ranks), "--master-port", str(29700 + ranks), "-m", "benchmarks.engine_cost"]
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(done.stderr[-4000:])
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    for row in rows:
        print(row)
    if save is not None:
        write_json(save, {"cores": os.cpu_count(), "rounds": rows})


if __name__ == "__main__":
    main()
