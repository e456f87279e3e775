"""The connection between the ranks of torch.distributed.

Notes, which are JSON, go by gloo; the arrays that they announce by NCCL between GPUs, else by gloo. What rank 0 has for
all is broadcast. A rank that fails leaves the reason in the launcher's store and breaks its connections: who waits for
it wakes and reads the reason.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from chestfed.core.errors import ChestfedError, ConfigError, TrainingError
from chestfed.learning.engines.declaration import is_launched
from chestfed.learning.engines.messages.wire import TYPES, Piece, count_by_type
from chestfed.learning.engines.ranks.rendezvous import Place, Tell

#: Seconds in which a rank that has broken the connection, or its end, may become known.
_PATIENCE = 1.0

#: Tag of messages that nobody sends.
_UNUSED = 1

#: As long as another rank may work before it takes what is sent; when its process ends, the connection breaks.
LONG = timedelta(days=7)

_RESUME = "The last saved state is kept: the same command resumes."


class Link:
    """The connection of this rank to the others; `sent` and `received` are bytes of headers and arrays so far."""

    def __init__(
        self, store: dist.Store, rank: int, size: int, timeout: float, device: torch.device, place: torch.device
    ) -> None:
        self.rank, self.size, self.timeout, self.sent, self.received = rank, size, timeout, 0, 0
        self.device, self._store, self.place = device, store, place  # arrays are sent from `place`
        self._notes: dist.ProcessGroup | None = None
        self._groups: list[dist.ProcessGroup] = []  # of gloo
        self._teams: dict[tuple[int, ...], dist.ProcessGroup] = {}
        self._processes: dict[int, tuple[str, int]] = {}
        self._store.set(f"process/{rank}", json.dumps([socket.gethostname(), os.getpid()]))

    @classmethod
    def joined(cls, timeout: float, device: torch.device, tell: Tell = lambda text: None) -> Link:
        """Meet the other processes that the launcher started; `timeout` in seconds holds for every answer.

        `tell` prints for which rank this one waits.

        Raises
        ------
        ConfigError
            If no launcher started this process, or the place where all meet cannot be opened.
        TrainingError
            If a process does not come.
        """
        if not is_launched():
            raise ConfigError(
                "engine: torchrun: no launcher started this process: torchrun --nproc-per-node=N -m chestfed ...",
                kind="no launcher",
            )
        place = Place(timeout, tell)
        store, rank, size = place.open_store(), place.rank, place.size
        local = int(os.environ.get("LOCAL_WORLD_SIZE", size))
        own_gpus = device.type == "cuda" and dist.is_nccl_available() and local <= torch.cuda.device_count()
        arrays = device if own_gpus else torch.device("cpu")
        link = cls(dist.PrefixStore("chestfed", store), rank, size, timeout, device, arrays)
        place.wait_for_all(link._store, "process")
        dist.init_process_group(
            "nccl" if own_gpus else "gloo",
            store=dist.PrefixStore("arrays", store),
            rank=rank,
            world_size=size,
            timeout=LONG,
            device_id=device if own_gpus and device.index is not None else None,
        )
        link._notes = dist.new_group(backend="gloo", timeout=LONG) if own_gpus else dist.group.WORLD
        link._groups = [part for part in [link._notes] if part is not None]
        return link

    def group(self, ranks: Sequence[int]) -> dist.ProcessGroup:
        """The group of some ranks; every rank must ask for it, in the same order."""
        key = tuple(ranks)
        if key not in self._teams:
            self._teams[key] = dist.new_group(list(ranks), timeout=LONG)
            if self.rank in ranks and dist.get_backend(self._teams[key]) == "gloo":
                self._groups.append(self._teams[key])
        return self._teams[key]

    def announce(self, note: dict[str, Any]) -> None:
        """Give a note from rank 0 to all others, which `hear` it."""
        for part in _write(note):
            self.sent += len(part)
            self._share(part, "the other ranks", timedelta(seconds=self.timeout))

    def hear(self) -> dict[str, Any]:
        """The next note that rank 0 gives to all, however long that takes; raises as `finish`."""
        length = torch.zeros(1, dtype=torch.int64)
        self._share(length, "rank 0", LONG)
        text = torch.empty(int(length), dtype=torch.uint8)
        self._share(text, "rank 0", timedelta(seconds=self.timeout))
        self.received += len(text)
        return _read(text)

    def post(self, to: int, note: dict[str, Any]) -> list[dist.Work]:
        """Send a note to one rank, which `fetch`es it; it is sent as long as the work is kept."""
        parts = _write(note)
        self.sent += sum(map(len, parts))
        return self.exchange([dist.P2POp(dist.isend, part, to, self._notes) for part in parts], f"rank {to}")

    def fetch(self, source: int, what: str, limit: timedelta | None = None) -> dict[str, Any]:
        """The next note that a rank has for this one alone; raises as `finish`."""
        length = torch.zeros(1, dtype=torch.int64)
        self._hear_from(source, length, what, limit)
        text = torch.empty(int(length), dtype=torch.uint8)
        self._hear_from(source, text, what)
        self.received += len(text)
        return _read(text)

    def push(self, to: int, tensors: Iterable[Tensor]) -> list[dist.Work]:
        """Send tensors to one rank from where they lie; they must stay as they are until the work is waited for."""
        return self.exchange([dist.P2POp(dist.isend, tensor, to) for tensor in self._sendable(tensors)], f"rank {to}")

    def pull(self, source: int, pieces: Sequence[Piece], what: str) -> dict[str, Tensor]:
        """The tensors that a rank pushes now, behind one another in one run `[n]` per type of number."""

        def begin(parts: list[Tensor]) -> list[dist.Work]:
            return self.exchange([dist.P2POp(dist.irecv, part, source) for part in parts], what)

        return self._receive(pieces, what, begin)

    def spread(self, tensors: Iterable[Tensor]) -> list[dist.Work]:
        """Send tensors to all other ranks, which `take` them; otherwise as `push`."""
        return self._broadcast(self._sendable(tensors), self.rank)

    def take(self, source: int, pieces: Sequence[Piece], what: str) -> dict[str, Tensor]:
        """The tensors that a rank spreads now; otherwise as `pull`."""
        return self._receive(pieces, what, lambda parts: self._broadcast(parts, source))

    def exchange(self, operations: list[dist.P2POp], what: str) -> list[dist.Work]:
        """Begin to send or receive, all at once: one launch with NCCL. Raises as `finish`."""
        with self._explained(what, None):
            works = dist.batch_isend_irecv(operations) if operations else []
        return [work for work in works if work is not None]

    def swap(self, sent: Iterable[tuple[int, Tensor]], due: Iterable[tuple[int, Tensor]], what: str) -> None:
        """Send tensors to ranks and write those that are due from others in place, all at once; raises as `finish`."""
        operations = [dist.P2POp(dist.isend, part, rank) for rank, tensor in sent for part in self._sendable([tensor])]
        for rank, tensor in due:
            if tensor.numel():
                operations.append(dist.P2POp(dist.irecv, tensor, rank))
                self.received += tensor.numel() * tensor.element_size()
        for work in self.exchange(operations, what):
            self.finish(work, what)

    def _share(self, part: Tensor, what: str, limit: timedelta) -> None:
        """Take part in the broadcast of a piece of a note."""
        with self._explained(what, None):
            work = dist.broadcast(part, 0, group=self._notes, async_op=True)
        self.finish(work, what, limit)

    def _hear_from(self, source: int, part: Tensor, what: str, limit: timedelta | None = None) -> None:
        for work in self.exchange([dist.P2POp(dist.irecv, part, source, self._notes)], what):
            self.finish(work, what, limit)

    def _sendable(self, tensors: Iterable[Tensor]) -> list[Tensor]:
        sent = [tensor.detach().to(self.place).contiguous() for tensor in tensors if tensor.numel()]
        self.sent += sum(tensor.numel() * tensor.element_size() for tensor in sent)
        return sent

    def _broadcast(self, parts: Sequence[Tensor], source: int) -> list[dist.Work]:
        with self._explained("the other ranks", None):
            works = [dist.broadcast(part, source, async_op=True) for part in parts]
        return [work for work in works if work is not None]

    def _receive(
        self, pieces: Sequence[Piece], what: str, begin: Callable[[list[Tensor]], list[dist.Work]]
    ) -> dict[str, Tensor]:
        lengths = count_by_type(pieces)
        runs = {kind: torch.empty(lengths[kind], dtype=TYPES[kind], device=self.place) for kind in lengths}
        places, parts = dict.fromkeys(runs, 0), []
        for kind, length in pieces:
            if length:
                parts.append(runs[kind][places[kind] : places[kind] + length])
                places[kind] += length
        for work in begin(parts):
            self.finish(work, what)
        self.received += sum(run.numel() * run.element_size() for run in runs.values())
        return {kind: run.to(self.device) for kind, run in runs.items()}

    def finish(self, work: dist.Work | None, what: str, limit: timedelta | None = None) -> None:
        """Wait for what was sent to, or is to come from, another rank: at most `timeout`, or the limit.

        Raises
        ------
        TrainingError
            If it does not come in time, a rank has failed, or the connection is broken.
        """
        limit = limit or timedelta(seconds=self.timeout)
        with self._explained(what, limit):
            if work is not None:
                work.wait(limit)

    def compute_together(self, begin: Callable[[], Sequence[dist.Work | None]]) -> None:
        """Do what some ranks compute together; with NCCL what follows on the GPU waits, and nothing here."""
        what = "a rank of the same client"
        with self._explained(what, None):
            works = begin()
        for work in works:
            if self.place.type == "cpu":
                self.finish(work, what)
            elif work is not None:
                work.wait()

    @contextmanager
    def _explained(self, what: str, limit: timedelta | None) -> Iterator[None]:
        """A block of torch.distributed's, whose errors are raised as `finish` says."""
        began = time.monotonic()
        try:
            yield
        except RuntimeError as error:  # gloo's and NCCL's have no class of their own
            if limit is not None and time.monotonic() - began >= limit.total_seconds():
                raise TrainingError(
                    f"{what} has not answered within {limit.total_seconds():g} s (engine.timeout). {_RESUME}",
                    kind="no answer in time",
                    who=what,
                ) from None
            until = time.monotonic() + _PATIENCE
            while time.monotonic() < until:  # a process that is ending closes its connections before it has ended
                self.raise_if_peer_failed()
                time.sleep(0.02)
            why = re.sub(r"^\[[^\]]*\] ", "", str(error)).partition(". ")[0]  # without the place in gloo's source
            raise TrainingError(f"the connection to {what} is broken ({why}). {_RESUME}") from None

    def raise_if_peer_failed(self) -> None:
        """Raise `TrainingError` if another rank has failed, or its process on this machine has ended."""
        if self._store.check(["failure"]):
            failure = json.loads(self._store.get("failure"))
            raise (TrainingError if failure["known"] else RuntimeError)(failure["text"])
        for rank in range(self.size):
            if rank != self.rank and self._ended(rank):
                raise TrainingError(f"the process of rank {rank} has ended. {_RESUME}")

    def fail(self, error: BaseException) -> None:
        """Tell the others why this rank ends, unless another's failure is known already, and hang up."""
        known = isinstance(error, ChestfedError)
        text = f"{error} (rank {self.rank})" if known else f"rank {self.rank}:\n{traceback.format_exc()}"
        with suppress(RuntimeError):  # where rank 0 has gone, with it the store
            self._store.compare_set("failure", "", json.dumps({"known": known, "text": text}))
        self._hang_up()

    def _hang_up(self) -> None:
        """Break the connections, so that a rank that waits for this one looks for a failure.

        gloo closes all connections of a group when a wait in it ends without what was waited for.
        """
        for group in self._groups:
            others = [rank for rank in dist.get_process_group_ranks(group) if rank != self.rank]
            for rank in others[:1]:
                with suppress(RuntimeError):
                    if (work := dist.irecv(torch.zeros(1), rank, group, tag=_UNUSED)) is not None:
                        work.wait(timedelta(milliseconds=1))

    def wait_for_rank0(self) -> None:
        """Wait until rank 0 has received the failure: the launcher ends all processes when one ends."""
        with suppress(RuntimeError):
            self._store.wait(["over"], timedelta(seconds=min(self.timeout, 60)))

    def close(self) -> None:
        """Leave; from rank 0: let all others leave."""
        if self.rank == 0:
            with suppress(RuntimeError):
                self._store.set("over", "")
        if dist.is_initialized():
            dist.destroy_process_group()

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


def _write(note: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """A note's length, int64 `[1]`, and its bytes `[n]`."""
    text = torch.frombuffer(bytearray(json.dumps(note).encode()), dtype=torch.uint8)
    return torch.tensor([len(text)]), text


def _read(text: Tensor) -> dict[str, Any]:
    return dict(json.loads(bytes(text.numpy())))
