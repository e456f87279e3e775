"""The clients as rank 0 asks them, which is the server and hosts its share, and what the other ranks answer.

What arrives is checked as everything that is sent (`wire.py`). Updates are gathered, and summed in the order of the
clients: the bits are those of one process. With `all_reduce` they are summed on each rank, and the sums over the ranks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from chestfed.algorithms.variables import from_named_tensors, named_tensors, weighted_mean
from chestfed.engines.fleet import Fleet, Round
from chestfed.engines.host import Host
from chestfed.engines.ranks.link import LONG, Link
from chestfed.engines.requests import Request, Work, Worked
from chestfed.engines.shapes import Shapes
from chestfed.engines.wire import check_header, flatten, peek, rebuild, runs_of


def rank_hosting(number: int, clients: int, ranks: int) -> int:
    """The rank that hosts a client: they are dealt out, rank 0 comes last, for it is the server too."""
    return (number + 1) % ranks if clients > 1 else 0


class RankFleet(Fleet):
    """The clients as rank 0 sees them: some of its own, the others by their ranks."""

    def __init__(
        self,
        link: Link,
        names: Sequence[str],
        own: Mapping[int, Host],
        shapes: Sequence[Shapes],
        *,
        all_reduce: bool = False,
    ) -> None:
        self.names = tuple(names)
        self._link, self._own, self._shapes, self._all_reduce = link, own, shapes, all_reduce

    def ask(self, requests: Mapping[int, Request], enough: int | None = None) -> dict[int, Any]:
        """See `Fleet.ask`; the other ranks work while this one does, and none is gone without."""
        by_rank: dict[int, dict[int, Request]] = {}
        for number, request in requests.items():
            if number not in self._own:
                by_rank.setdefault(self._rank(number), {})[number] = request
        works = self._send(by_rank)
        answers = {number: self._own[number].answer(one) for number, one in requests.items() if number in self._own}
        for rank, its in by_rank.items():
            for number, request in its.items():
                answers[number] = self._receive(rank, number, request)
        for work in works:
            self._link.finish(work, "a rank that was sent something")
        return {number: answers[number] for number in requests}

    def summed(self, requests: Mapping[int, Work], weights: Mapping[int, float]) -> Round | None:
        """See `Fleet.summed`; of clients that are all here each is asked."""
        if not self._all_reduce or set(requests) <= set(self._own):
            return None
        link = self._link
        by_rank: dict[int, dict[int, Request]] = {
            rank: {number: one for number, one in requests.items() if self._rank(number) == rank}
            for rank in range(1, link.size)
        }
        works = self._send(by_rank, {"weights": list(weights.items())})
        done: dict[int, Any] = {
            number: self._own[number].answer(one) for number, one in requests.items() if number in self._own
        }
        told = {number: _summary(worked) for number, worked in done.items()}
        for rank, its in by_rank.items():
            what = f"{', '.join(self.names[number] for number in its)} on rank {rank}"
            summaries = link.fetch(rank, link.timeout * max(1, len(its)), what)["summaries"]
            for number, summary in zip(its, summaries, strict=True):
                check_header(summary["header"].encode(), self._shapes[number].reply(requests[number]), what)
                told[number] = summary
        for work in works:
            link.finish(work, "a rank that was sent something")
        means, drift, gradient_drift = sum_up(link, done, weights, self._shapes[0])
        plain = {number: json.loads(told[number]["header"])["plain"] for number in requests}
        return Round(
            {number: told[number]["size"] for number in requests},
            [means.update],
            [1.0],
            means.buffers,
            loss=sum(weights[number] * its["loss"] for number, its in plain.items()),
            drift=drift,
            gradient_drift=gradient_drift,
            gradients=sum(its["gradients"] for its in plain.values()),
            images=sum(its["images"] for its in plain.values()),
        )

    def close(self) -> None:
        """Let the batches' threads and files go; the other ranks do when they are told of the next clients."""
        for host in self._own.values():
            host.client.close()

    def _rank(self, number: int) -> int:
        return rank_hosting(number, len(self.names), self._link.size)

    def _send(
        self, by_rank: Mapping[int, Mapping[int, Request]], more: Mapping[str, Any] | None = None
    ) -> list[dist.Work]:
        """Requests to other ranks; tensors that several share are sent once to each rank."""
        works: list[dist.Work] = []
        for rank, requests in by_rank.items():
            described: list[tuple[int, str, int]] = []
            parcels: dict[tuple[int, ...], list[Tensor]] = {}
            for number, request in requests.items():
                header, tensors = flatten(request)
                key = tuple(id(tensor) for tensor in tensors)
                parcels.setdefault(key, tensors)
                described.append((number, header.decode(), list(parcels).index(key)))
            self._link.post(rank, {"do": "ask", "requests": described, **(more or {})})
            works += [work for tensors in parcels.values() for work in self._link.push(rank, tensors)]
        return works

    def _receive(self, rank: int, number: int, request: Request) -> Any:
        link, what = self._link, f"client '{self.names[number]}' on rank {rank}"
        note = link.fetch(rank, link.timeout, what)
        like = self._shapes[number].reply(request)
        header = note["header"].encode()
        return rebuild(header, link.pull(rank, check_header(header, like, what), what), like, what)


def answer_requests(link: Link, note: Mapping[str, Any], hosts: Mapping[int, Host], shapes: Sequence[Shapes]) -> None:
    """Answer what rank 0 asks of the clients of this rank."""
    likes, parcels = {}, dict[int, dict[str, Tensor]]()
    for number, header, parcel in note["requests"]:
        name, plain = peek(header.encode(), "rank 0")
        likes[number] = shapes[number].request(name, plain, "rank 0")
        pieces = check_header(header.encode(), likes[number], "rank 0")
        if parcel not in parcels:
            parcels[parcel] = link.pull(0, pieces, "rank 0")
    requests = {
        number: rebuild(header.encode(), parcels[parcel], likes[number], "rank 0")
        for number, header, parcel in note["requests"]
    }
    if "weights" in note:
        done: dict[int, Any] = {number: hosts[number].answer(request) for number, request in requests.items()}
        link.post(0, {"summaries": [_summary(worked) for worked in done.values()]})
        sum_up(link, done, dict(note["weights"]), shapes[0])
        return
    works: list[tuple[list[dist.Work], Any]] = []
    for number, request in requests.items():
        told, tensors = flatten(hosts[number].answer(request))
        link.post(0, {"header": told.decode()})
        works.append((link.push(0, tensors), tensors))
    for own, _ in works:
        for work in own:
            link.finish(work, "rank 0", LONG)  # which first does its own clients' work


@dataclass(frozen=True)
class Means:
    """Over the clients of a round: of updates and buffers with their weights, of slopes and `primal` with equal ones.

    `primal` is that of the updates; it is left empty where all weights are equal.
    """

    update: Any
    buffers: Tensor
    slope: Tensor
    primal: Tensor

    @classmethod
    def of(cls, worked: Worked, *, alike: bool) -> Means:
        primal = worked.update.primal
        return cls(worked.update, worked.buffers, worked.slope, primal[:0] if alike else primal)


def sum_up(
    link: Link, done: Mapping[int, Worked], weights: Mapping[int, float], shapes: Shapes
) -> tuple[Means, float, float]:
    """The means over all clients of a round, of which this rank has `done`, and the spreads of updates and slopes.

    All ranks call this, also those without a client.
    """
    alike, each = len(set(weights.values())) == 1, 1 / len(weights)
    blank = Means.of(shapes.worked, alike=alike)
    own = {number: named_tensors(Means.of(worked, alike=alike)) for number, worked in done.items()}
    tensors = {}
    for name, like in named_tensors(blank).items():
        factors = [each if name in ("slope", "primal") else weights[number] for number in own]
        parts = [its[name] for its in own.values()]
        tensors[name] = weighted_mean(parts, factors) if parts else torch.zeros_like(like, device=link.device)
    header, ordered = flatten(from_named_tensors(blank, tensors))
    runs = runs_of(ordered)
    for run in runs.values():
        link.add_up(run)
    means = rebuild(header, runs, blank, "the sum over the ranks")
    center = means.update.primal if alike else means.primal
    spreads = torch.zeros(2, dtype=torch.float64)
    for worked in done.values():
        spreads[0] += each * float((worked.update.primal - center).square().sum())
        spreads[1] += each * float((worked.slope - means.slope).square().sum())
    link.add_up(spreads)
    return means, float(spreads[0]), float(spreads[1])


def _summary(worked: Worked) -> dict[str, Any]:
    """What rank 0 is told of a client beside the sums."""
    return {"header": flatten(worked)[0].decode(), "size": float(worked.update.primal.norm())}
