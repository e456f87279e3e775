"""The connection between the ranks of torch.distributed.

Headers go through the launcher's store, so that a rank may wait for its next request as long as it takes and see within
a second that another has failed; arrays go from rank to rank, by NCCL between GPUs, else by gloo.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from chestfed.core.errors import ChestfedError, ConfigError, TrainingError
from chestfed.learning.engines.declaration import is_launched
from chestfed.learning.engines.messages.wire import TYPES, Piece, count_by_type

#: Seconds between two looks at whether the others are alive.
_LOOK = 1.0

#: As long as another rank may work before it takes what is sent; when its process ends, the connection breaks.
LONG = timedelta(days=7)

_RESUME = "The last saved state is kept: the same command resumes."


class Link:
    """The connection of this rank to the others; `sent` and `received` are bytes of headers and arrays so far."""

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
        """Meet the other processes that the launcher started; `timeout` in seconds holds for every answer.

        Raises
        ------
        ConfigError
            If no launcher started this process, or the place where all meet cannot be reached.
        TrainingError
            If a process does not come.
        """
        if not is_launched():
            raise ConfigError(
                "engine: torchrun: no launcher started this process: torchrun --nproc-per-node=N -m chestfed ...",
                kind="no launcher",
            )
        try:
            store, rank, size = next(dist.rendezvous("env://", timeout=timedelta(seconds=timeout)))
        except (RuntimeError, ValueError) as error:
            address, why = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", str(error).partition("\n")[0]
            raise ConfigError(
                f"$MASTER_ADDR:$MASTER_PORT: the processes cannot meet at {address} ({why})",
                kind="processes cannot meet",
                address=address,
            ) from None
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
            timeout=LONG,
        )
        return link

    def meet(self) -> None:
        """Wait until every rank is there; raises as `fetch`."""
        began = time.monotonic()
        for rank in range(self.size):
            while not self._has_message(f"process/{rank}"):
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
        while not self._has_message(key):
            self.raise_if_peer_failed()
            if patience is not None and time.monotonic() - began > patience:
                raise TrainingError(
                    f"{what} has not answered within {patience:g} s (engine.timeout). {_RESUME}",
                    kind="no answer in time",
                    who=what,
                )
        text = self._store.get(key)
        self._store.delete_key(key)
        self.received += len(text)
        return dict(json.loads(text))

    def push(self, to: int, tensors: Iterable[Tensor]) -> list[dist.Work]:
        """Send tensors from where they lie; they must stay as they are until the work is waited for."""
        works = []
        for tensor in tensors:
            if tensor.numel():
                self.sent += tensor.numel() * tensor.element_size()
                works.append(dist.isend(tensor.detach().to(self._place).contiguous(), to))
        return [work for work in works if work is not None]

    def pull(self, source: int, pieces: Sequence[Piece], what: str) -> dict[str, Tensor]:
        """The tensors that a rank sends now, behind one another in one run `[n]` per type of number."""
        lengths = count_by_type(pieces)
        runs = {kind: torch.empty(lengths[kind], dtype=TYPES[kind], device=self._place) for kind in lengths}
        places, works = dict.fromkeys(runs, 0), []
        for kind, length in pieces:
            if length:
                works.append(dist.irecv(runs[kind][places[kind] : places[kind] + length], source))
                places[kind] += length
        for work in works:
            self.finish(work, what)
        self.received += sum(run.numel() * run.element_size() for run in runs.values())
        return {kind: run.to(self.device) for kind, run in runs.items()}

    def finish(self, work: dist.Work | None, what: str, limit: timedelta | None = None) -> None:
        """Wait for what was sent to, or is to come from, another rank; a broken connection raises its own error."""
        try:
            if work is not None:
                work.wait(limit or timedelta(seconds=self.timeout))
        except RuntimeError as error:  # gloo's and NCCL's have no class of their own
            self.raise_if_peer_failed()
            why = re.sub(r"^\[[^\]]*\] ", "", str(error)).partition(". ")[0]  # without the place in gloo's source
            raise TrainingError(f"the connection to {what} is broken or too slow ({why}). {_RESUME}") from None

    def raise_if_peer_failed(self) -> None:
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

    def wait_for_rank0(self) -> None:
        """Wait until rank 0 has received the failure: the launcher ends all processes when one ends."""
        began = time.monotonic()
        with suppress(RuntimeError):
            while (
                not self._has_message("over")
                and time.monotonic() - began < min(self.timeout, 60)
                and not self._ended(0)
            ):
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

    def _has_message(self, key: str) -> bool:
        """Whether there is something under a key, within the time between two looks around.

        It asks again and again: the store's own wait logs a warning each time that it ends without.
        """
        pause, until = 1e-4, time.monotonic() + _LOOK
        while not self._store.check([key]):
            if time.monotonic() > until:
                return False
            time.sleep(pause)
            pause = min(1.05 * pause, 0.02)  # seen late by a twentieth of the wait
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
