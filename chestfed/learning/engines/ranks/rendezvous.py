"""Where the ranks meet: the store at $MASTER_ADDR:$MASTER_PORT, and how long a rank waits for the others."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta

import torch.distributed as dist

from chestfed.core.errors import ConfigError, TrainingError, first_line
from chestfed.learning.engines.declaration import processes, rank

#: Seconds after which it is first said what is waited for; each time after twice as long.
FIRST_NOTICE = 10.0

Tell = Callable[[str], object]


class Place:
    """The place where all ranks meet; `tell` prints a line for whoever waits."""

    def __init__(self, timeout: float, tell: Tell) -> None:
        self.host, self.port, self.timeout, self._tell = os.environ["MASTER_ADDR"], _read_port(), timeout, tell
        self.rank, self.size = rank(), processes()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def open_store(self) -> dist.Store:
        """The launcher's store, or that of rank 0, which opens it.

        Raises
        ------
        ConfigError
            If its port is in use.
        TrainingError
            If there is none within the time.
        """
        opens = self.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != str(True)
        if not opens:
            self._wait_for_store()
        limit = timedelta(seconds=self.timeout)
        try:
            return dist.TCPStore(
                self.host, self.port, None, opens, timeout=limit, wait_for_workers=False, multi_tenant=True
            )
        except RuntimeError as error:
            taken = "EADDRINUSE" in str(error)
            why = f"port {self.port} is in use on this machine" if taken else first_line(error)
            raise ConfigError(
                f"$MASTER_ADDR:$MASTER_PORT: the processes cannot meet at {self.address}: {why}. Choose another port, "
                "the same for every rank: torchrun --standalone, or --rdzv-endpoint HOST:PORT",
                kind="processes cannot meet",
                address=self.address,
                in_use=taken,
            ) from None

    def wait_for_all(self, store: dist.Store, key: str) -> None:
        """Wait until each rank has set `key/RANK`; rank 0 says which have not.

        Raises
        ------
        TrainingError
            If some have not within the time: which.
        """
        missing = list(range(self.size))
        for waited in self._wait():
            try:
                missing = [number for number in missing if not store.check([f"{key}/{number}"])]
            except RuntimeError:  # which has no class of its own
                text = f"rank 0 has ended before {_name_ranks(missing)} of {self.size} came to {self.address}"
                raise TrainingError(text, kind="ranks missing", missing=missing, address=self.address) from None
            if not missing:
                return
            if waited is not None and not self.rank:
                self._tell(f"waiting for {_name_ranks(missing)} of {self.size} at {self.address} for {waited:.0f} s")
        came = [number for number in range(self.size) if number not in missing]
        raise TrainingError(
            f"{_name_ranks(missing)} of {self.size} did not come to {self.address} within {self.timeout:g} s "
            f"(engine.timeout); {_name_ranks(came)} came. Start every rank, with the same address",
            kind="ranks missing",
            missing=missing,
            address=self.address,
        )

    def _wait_for_store(self) -> None:
        """Wait until the place can be reached; torch would print a stack of frames for every try."""
        why = "it does not answer"
        for waited in self._wait():
            try:
                socket.create_connection((self.host, self.port), timeout=5).close()
            except OSError as error:
                why = error.strerror or why
            else:
                return
            if waited is not None:
                self._tell(
                    f"rank {self.rank}: waiting for rank 0 of {self.size} at {self.address} for {waited:.0f} s ({why})"
                )
        raise TrainingError(
            f"rank 0 of {self.size} cannot be reached at {self.address} within {self.timeout:g} s (engine.timeout): "
            f"{why}. Start rank 0, give every rank its address, and open the port",
            kind="ranks missing",
            missing=[0],
            address=self.address,
        )

    def _wait(self) -> Iterator[float | None]:
        """Try after try until the time is over: seconds waited where a line is due, else None."""
        began, due, pause = time.monotonic(), FIRST_NOTICE, 0.01
        while (waited := time.monotonic() - began) < self.timeout:
            yield waited if waited >= due else None
            due *= 2 if waited >= due else 1
            time.sleep(pause)
            pause = min(2 * pause, 0.5)


def _read_port() -> int:
    text = os.environ["MASTER_PORT"]
    with suppress(ValueError):
        if 0 < int(text) < 2**16:
            return int(text)
    raise ConfigError(f"$MASTER_PORT: '{text}' is not the number of a port", kind="not a port", port=text)


def _name_ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
