"""Clients on the ranks of torch.distributed: rank 0 is the server and hosts its share, the others serve.

Headers go through the launcher's store, so that a rank may wait for its next request as long as it takes and see within
a second that another has failed; arrays go from rank to rank, by NCCL between GPUs, else by gloo. What arrives is
checked as everything that is sent (`wire.py`). Updates are gathered, and summed in the order of the clients: the bits
are those of one process. With `all_reduce` they are summed on each rank, and the sums over the ranks.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from pydantic import Field
from torch import Tensor

from chestfed.algorithms.variables import from_named_tensors, named_tensors, weighted_mean
from chestfed.core.errors import ChestfedError, TrainingError
from chestfed.engines.declaration import EngineOptions, EngineSpec, processes
from chestfed.engines.fleet import Fleet, Round
from chestfed.engines.host import Host
from chestfed.engines.requests import Request, Work, Worked
from chestfed.engines.shapes import Shapes
from chestfed.engines.wire import Packed, check_header, flatten, peek, rebuild, runs_of

#: Seconds between two looks at whether the others are alive.
_LOOK = 1.0

#: As long as another rank may work before it takes what is sent; when its process ends, the connection breaks.
_LONG = timedelta(days=7)


class Options(EngineOptions):
    """Options of the engine of torch.distributed."""

    timeout: float = Field(
        1800.0,
        gt=0,
        description="seconds that a rank may take for the local round of a client; then the run ends, and the message "
        "names client and rank",
    )
    all_reduce: bool = Field(
        False,
        description="sum the clients' updates on each rank, and the sums by all-reduce, instead of gathering every "
        "update: fewer bytes at rank 0, and last digits that depend on the number of ranks. For algorithms whose "
        "server takes the weighted mean of the updates",
    )
    split_batches: bool = Field(
        False,
        description="split every batch of stage 1 over all ranks instead of training it on rank 0: last digits, and "
        "with batch normalization more, depend on the number of ranks",
    )

    def changes(self) -> dict[str, int]:
        """See `EngineOptions.changes`."""
        return {name: processes() for name in ("all_reduce", "split_batches") if getattr(self, name)}

    def problems(self, run: Any) -> list[str]:
        """See `EngineOptions.problems`."""
        federated, spec, found = run.federated, run.federated.spec, list[str]()
        if self.all_reduce:
            reasons = {
                "algorithm": not (spec.takes_mean or spec.averages)
                and "its server does not take the mean of updates alone",
                "aggregation": federated.aggregation != "mean" and "it takes every update",
                "privacy": federated.privacy is not None and "it shortens every update",
            }
            found += [f"engine.all_reduce: not with this {key}: {why}" for key, why in reasons.items() if why]
        if self.split_batches and run.pretrain.batch_size < processes():
            found.append(
                f"engine.split_batches: a batch of {run.pretrain.batch_size} (pretrain.batch_size) is not for "
                f"{processes()} ranks"
            )
        return found


TORCHRUN = EngineSpec(
    "torchrun",
    "clients on the processes that torchrun started, on one machine or several, each with its own GPU",
    "chestfed.training.deployments.ranks:Ranks",
    Options,
)


class Link:
    """The connection of this rank to the others.

    Attributes
    ----------
    sent, received
        Bytes of headers and arrays so far.
    """

    def __init__(
        self, store: dist.Store, rank: int, size: int, timeout: float, device: torch.device, place: torch.device
    ) -> None:
        self.rank, self.size, self.timeout, self.sent, self.received = rank, size, timeout, 0, 0
        self.device, self._store, self._place = device, store, place  # arrays are sent from `place`
        self._numbers: dict[tuple[int, int], int] = {}
        self._processes: dict[int, tuple[str, int]] = {}
        self._store.set(f"process/{rank}", json.dumps([socket.gethostname(), os.getpid()]))

    @classmethod
    def joined(cls, timeout: float, device: torch.device) -> Link:
        """Meet the other processes that the launcher started; `timeout` in seconds holds for every answer."""
        store, rank, size = next(dist.rendezvous("env://", timeout=timedelta(seconds=timeout)))
        local = int(os.environ.get("LOCAL_WORLD_SIZE", size))
        own_gpus = device.type == "cuda" and dist.is_nccl_available() and local <= torch.cuda.device_count()
        place = device if own_gpus else torch.device("cpu")
        link = cls(dist.PrefixStore("chestfed", store), rank, size, timeout, device, place)
        link.meet()
        dist.init_process_group(
            "nccl" if own_gpus else "gloo",
            store=dist.PrefixStore("arrays", store),
            rank=rank,
            world_size=size,
            timeout=_LONG,
        )
        return link

    def meet(self) -> None:
        """Wait until every rank is there; raises as `fetch`."""
        began = time.monotonic()
        for rank in range(self.size):
            while not self._came(f"process/{rank}"):
                if time.monotonic() - began > self.timeout:
                    raise TrainingError(f"rank {rank} has not started within {self.timeout:g} s (engine.timeout)")

    def post(self, to: int, note: dict[str, Any]) -> None:
        """Leave a note for another rank."""
        text = json.dumps(note)
        self._store.set(self._key(self.rank, to), text)
        self.sent += len(text)

    def fetch(self, source: int, patience: float | None, what: str) -> dict[str, Any]:
        """The next note from a rank; `patience` in seconds, None: as long as that rank is there.

        Raises
        ------
        TrainingError
            If it does not come, or any rank has failed.
        """
        key, began = self._key(source, self.rank), time.monotonic()
        while not self._came(key):
            self.look_around()
            if patience is not None and time.monotonic() - began > patience:
                raise TrainingError(f"{what} has not answered within {patience:g} s (engine.timeout). {_RESUME}")
        text = self._store.get(key)
        self._store.delete_key(key)
        self.received += len(text)
        return dict(json.loads(text))

    def push(self, to: int, runs: Mapping[str, Tensor]) -> list[dist.Work]:
        """Send arrays; they must stay as they are until the work is waited for."""
        works = []
        for run in runs.values():
            if run.numel():
                self.sent += run.numel() * run.element_size()
                works.append(dist.isend(run.to(self._place), to))
        return [work for work in works if work is not None]

    def pull(self, source: int, lengths: Mapping[str, int], what: str) -> dict[str, Tensor]:
        """The arrays that a rank sends now, of these types and lengths."""
        runs = {}
        for kind, length in lengths.items():
            runs[kind] = torch.empty(length, dtype=getattr(torch, kind), device=self._place)
            if length:
                self.finish(dist.irecv(runs[kind], source), what)
                self.received += runs[kind].numel() * runs[kind].element_size()
        return {kind: run.to(self.device) for kind, run in runs.items()}

    def add_up(self, tensor: Tensor, *, everywhere: bool = True) -> None:
        """Put the sum over all ranks into a tensor of rank 0, or of every rank; all ranks call this."""
        if everywhere:
            self._together(tensor, lambda here: dist.all_reduce(here, async_op=True))
            moved = 2 * (self.size - 1) * tensor.numel() * tensor.element_size() // self.size  # of a ring
            self.sent, self.received = self.sent + moved, self.received + moved
        else:
            self._together(tensor, lambda here: dist.reduce(here, 0, async_op=True))
            self._count(tensor, up=True)

    def broadcast(self, tensor: Tensor) -> None:
        """Put rank 0's values into the tensor of every rank; all ranks call this."""
        self._together(tensor, lambda here: dist.broadcast(here, 0, async_op=True))
        self._count(tensor, up=False)

    def _count(self, tensor: Tensor, *, up: bool) -> None:
        """What rank 0 and each other rank exchange, in one direction."""
        moved = tensor.numel() * tensor.element_size() * (self.size - 1 if self.rank == 0 else 1)
        if up == (self.rank == 0):
            self.received += moved
        else:
            self.sent += moved

    def _together(self, tensor: Tensor, begin: Callable[[Tensor], dist.Work | None]) -> None:
        """What all ranks do together; whether another has failed is looked at on the way."""
        if not tensor.numel():
            return
        here = tensor.to(self._place)
        work, began, pause = begin(here), time.monotonic(), 1e-4
        looked = began
        while work is not None and not work.is_completed():
            time.sleep(pause)
            now, pause = time.monotonic(), min(1.5 * pause, 1e-3)
            if now - looked > _LOOK:
                self.look_around()
                looked = now
            if self.rank == 0 and now - began > self.timeout:
                raise TrainingError(
                    f"another rank has not answered within {self.timeout:g} s (engine.timeout). {_RESUME}"
                )
        self.finish(work, "another rank", _LONG)
        if here is not tensor:
            tensor.copy_(here)

    def finish(self, work: dist.Work | None, what: str, limit: timedelta | None = None) -> None:
        """Wait for what was sent to, or is to come from, another rank; a broken connection is told as what it is."""
        try:
            if work is not None:
                work.wait(limit or timedelta(seconds=self.timeout))
        except RuntimeError as error:  # gloo's and NCCL's have no class of their own
            self.look_around()
            why = re.sub(r"^\[[^\]]*\] ", "", str(error)).partition(". ")[0]  # without the place in gloo's source
            raise TrainingError(f"the connection to {what} is broken or too slow ({why}). {_RESUME}") from None

    def look_around(self) -> None:
        """Raise `TrainingError` if another rank has failed, or its process on this machine has ended."""
        for rank in range(self.size):
            if rank == self.rank:
                continue
            if self._store.check([f"failed/{rank}"]):
                failure = json.loads(self._store.get(f"failed/{rank}"))
                raise (TrainingError if failure["known"] else RuntimeError)(failure["text"])
            if self._ended(rank):
                raise TrainingError(f"the process of rank {rank} has ended. {_RESUME}")

    def fail(self, error: BaseException) -> None:
        """Tell the others why this rank ends."""
        known = isinstance(error, ChestfedError)
        text = f"{error} (rank {self.rank})" if known else f"rank {self.rank}:\n{traceback.format_exc()}"
        with suppress(RuntimeError):  # where rank 0 has gone, with it the store
            self._store.set(f"failed/{self.rank}", json.dumps({"known": known, "text": text}))

    def await_the_end(self) -> None:
        """Stay, for a while, until rank 0 has heard what `fail` told: the launcher ends all when one process ends."""
        began = time.monotonic()
        with suppress(RuntimeError):
            while not self._came("over") and time.monotonic() - began < min(self.timeout, 60) and not self._ended(0):
                pass

    def close(self) -> None:
        """Leave; from rank 0: let all others leave."""
        if self.rank == 0:
            with suppress(RuntimeError):
                self._store.set("over", "")
        if dist.is_initialized():
            dist.destroy_process_group()

    def _key(self, source: int, to: int) -> str:
        number = self._numbers[source, to] = self._numbers.get((source, to), 0) + 1
        return f"{source}/{to}/{number}"

    def _came(self, key: str) -> bool:
        """Whether there is something under a key, within the time between two looks around.

        It asks again and again: the store's own wait logs a warning each time that it ends without.
        """
        pause, until = 1e-4, time.monotonic() + _LOOK
        while not self._store.check([key]):
            if time.monotonic() > until:
                return False
            time.sleep(pause)
            pause = min(1.5 * pause, 0.02)
        return True

    def _ended(self, rank: int) -> bool:
        """Whether a process of this machine has ended; of another machine that is not known."""
        if rank not in self._processes:
            if not self._store.check([f"process/{rank}"]):
                return False
            host, process = json.loads(self._store.get(f"process/{rank}"))
            self._processes[rank] = (host, process)
        host, process = self._processes[rank]
        if host != socket.gethostname():
            return False
        try:
            os.kill(process, 0)
            return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"  # not waited for yet
        except ProcessLookupError:
            return True
        except OSError:  # another user's, or no Linux
            return False


_RESUME = "The last saved state is kept: the same command resumes."


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
        flat: dict[tuple[int, ...], dict[str, Tensor]] = {}
        works = [work for rank, its in by_rank.items() for work in self._send(rank, its, flat)]
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
        link, flat = self._link, dict[Any, dict[str, Tensor]]()
        there = {rank: [n for n in requests if self._rank(n) == rank] for rank in range(1, link.size)}
        for rank, numbers in there.items():
            its = {number: requests[number] for number in numbers}
            for work in self._send(rank, its, flat, {"weights": list(weights.items())}):
                link.finish(work, f"rank {rank}")
        done: dict[int, Any] = {
            number: self._own[number].answer(one) for number, one in requests.items() if number in self._own
        }
        told = {number: _summary(worked) for number, worked in done.items()}
        for rank, numbers in there.items():
            what = f"{', '.join(self.names[number] for number in numbers)} on rank {rank}"
            note = link.fetch(rank, link.timeout, what)
            for number, summary in zip(numbers, note["summaries"], strict=True):
                check_header(summary["header"].encode(), self._shapes[number].reply(requests[number]), what)
                told[number] = summary
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
        self,
        rank: int,
        requests: Mapping[int, Request],
        flat: dict[Any, dict[str, Tensor]],
        more: Mapping[str, Any] | None = None,
    ) -> list[dist.Work]:
        """Requests to one rank; tensors that several of them share are flattened once, and sent once."""
        described: list[tuple[int, str, int]] = []
        parcels: dict[tuple[int, ...], int] = {}
        for number, request in requests.items():
            header, tensors = flatten(request)
            key = tuple(id(tensor) for tensor in tensors)
            if key not in flat:
                flat[key] = runs_of(tensors)
            described.append((number, header.decode(), parcels.setdefault(key, len(parcels))))
        self._link.post(rank, {"do": "ask", "requests": described, **(more or {})})
        return [work for key in parcels for work in self._link.push(rank, flat[key])]

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
        name, plain = peek(Packed(header.encode(), {}), "rank 0")
        likes[number] = shapes[number].request(name, plain, "rank 0")
        lengths = check_header(header.encode(), likes[number], "rank 0")
        if parcel not in parcels:
            parcels[parcel] = link.pull(0, lengths, "rank 0")
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
        runs = runs_of(tensors)
        link.post(0, {"header": told.decode()})
        works.append((link.push(0, runs), runs))
    for own, _ in works:
        for work in own:
            link.finish(work, "rank 0", _LONG)  # which first does its own clients' work


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
        """Of one client."""
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
