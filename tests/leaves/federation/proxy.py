"""A proxy for TCP on loopback that does to connections what networks do."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Final, Literal

Fault = Literal["pass", "cut", "reset", "slow", "duplicate", "half-open", "corrupt"]
#: What may be done to a connection: closed at once; ended by RST; 20 kB/s; parts twice; nothing passes while it stays
#: open; a bit flipped.
FAULTS: Final[tuple[Fault, ...]] = ("cut", "reset", "slow", "duplicate", "half-open", "corrupt")
_RATE, _SHARE = 20_000.0, 0.05


class Proxy:
    """Listens on loopback, and passes on to a port there; `fault` may change at any time, `met` counts what it did."""

    def __init__(self, target: int, seed: int = 0) -> None:
        self.fault: Fault = "pass"
        self.port, self.met = 0, 0
        self._target, self._draw = target, random.Random(seed)
        self._loop, self._started = asyncio.new_event_loop(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._started.wait()

    def close(self) -> None:
        """End all connections."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._handle, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.fault == "cut":
            self.met += 1
            writer.close()
            return
        if self.fault == "reset":
            self.met += 1
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._pump(reader, back), self._pump(there, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(16384):
                while self.fault == "half-open":
                    self.met += 1
                    await asyncio.sleep(0.2)
                if self.fault == "cut":
                    self.met += 1
                    break
                if self.fault == "reset":
                    self.met += 1
                    writer.transport.abort()
                    break
                writer.write(await self._spoil(data))
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def _spoil(self, data: bytes) -> bytes:
        if self.fault == "slow":
            self.met += 1
            await asyncio.sleep(len(data) / _RATE)
        if self.fault == "duplicate" and self._draw.random() < _SHARE:
            self.met += 1
            return data + data
        if self.fault == "corrupt" and self._draw.random() < _SHARE:
            self.met += 1
            place = self._draw.randrange(len(data))
            return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        return data
