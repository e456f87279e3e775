"""The door before TLS: a connection counts from when it is accepted, and strangers have little room and little time.

A stranger is a connection on which no member has signed a request yet. Beyond so many of them the oldest one of the
address that has most of them is closed, so that a hospital, which signs within a second, finds room.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from chestfed.core.errors import ConfigError

#: Connections of strangers at a time, and seconds for their TLS handshake, and for that by which it ends.
STRANGERS, HANDSHAKE_SECONDS, GOODBYE_SECONDS = 128, 10.0, 5.0
#: Seconds in which the headers of a request come; a node's signature takes some hundred bytes.
HEADER_SECONDS = 20.0
#: Open files beside those of connections: listening, of Flower, logs, connections that are being closed.
OTHER_FILES = 256

_log = logging.getLogger("chestfed.leaves.federation.strangers")

Peer = tuple[str, int]


class Door:
    """Accepts connections; to `uvicorn.Server` one of its `servers`.

    Parameters
    ----------
    largest_clients
        Connections of members at a time.
    """

    def __init__(self, largest_clients: int, strangers: int = STRANGERS) -> None:
        self.sockets: list[socket.socket] = []
        self._most_members, self._most_strangers = largest_clients, strangers
        self._strangers, self._members = dict[Peer, TimedHeaders](), dict[Peer, TimedHeaders]()
        self._tasks = set[asyncio.Task[None]]()

    def listen(self, host: str, port: int) -> None:
        """Bind an address, or all that a name has.

        Raises
        ------
        ConfigError
            If it cannot be bound.
        """
        try:
            places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, _, _, _, address in places:
                listening = socket.create_server((str(address[0]), port), family=family, backlog=2048)
                listening.setblocking(False)
                self.sockets.append(listening)
        except OSError as error:
            raise ConfigError(f"{host}:{port}: cannot be bound: {error.strerror}", kind="address") from None

    def open(self, server: uvicorn.Server) -> None:
        """Begin to accept, in the running loop."""
        for listening in self.sockets:
            self._keep(self._accept(listening, server))

    def admit(self, client: Any) -> bool:
        """A member has signed a request on the connection from this address and port; whether there is room for it."""
        peer = _peer(client) if client is not None else None
        if peer is None or peer in self._members:
            return True
        if len(self._members) >= self._most_members:
            return False
        if peer in self._strangers:
            self._members[peer] = self._strangers.pop(peer)
        return True

    def cut(self, client: Any) -> None:
        """End the connection from this address and port at once: the end of TLS would read on what still comes."""
        peer = _peer(client)
        protocol = self._members.get(peer) or self._strangers.get(peer)
        if protocol is not None:
            protocol.transport.abort()

    def close(self) -> None:
        """Accept no more; see `asyncio.Server`."""
        for task in self._tasks:
            task.cancel()
        for listening in self.sockets:
            listening.close()

    async def wait_closed(self) -> None:
        """See `asyncio.Server`."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _keep(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket, server: uvicorn.Server) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError as error:  # no open file is left, or the client has gone already
                _log.warning("a connection was not accepted: %s", error.strerror)
                self._close_one()
                await asyncio.sleep(0.1)
                continue
            self._keep(self._begin(connection, _peer(address), server))
            await asyncio.sleep(0)  # many may wait: the others go on

    async def _begin(self, connection: socket.socket, peer: Peer, server: uvicorn.Server) -> None:
        """TLS, and then the server's protocol."""
        config, loop = server.config, asyncio.get_running_loop()
        protocol = TimedHeaders(config, server.server_state, server.lifespan.state, loop)
        protocol.connection, protocol.ended = connection, lambda: self._forget(peer, protocol)
        self._strangers[peer] = protocol
        if len(self._strangers) > self._most_strangers:
            self._close_one()
        limits: dict[str, Any] = {}
        if config.ssl is not None:
            limits = {"ssl_handshake_timeout": HANDSHAKE_SECONDS, "ssl_shutdown_timeout": GOODBYE_SECONDS}
        try:
            await loop.connect_accepted_socket(lambda: protocol, connection, ssl=config.ssl, **limits)
        except Exception:  # TLS was not completed: whatever came instead
            self._forget(peer, protocol)
            connection.close()

    def _close_one(self) -> None:
        """Close the oldest stranger of the address that has most of them."""
        if not self._strangers:
            return
        (address, count), *_ = Counter(host for host, _ in self._strangers).most_common(1)
        peer = next(peer for peer in self._strangers if peer[0] == address)
        _log.warning(
            "%d connections without a signature, %d of %s: one is closed", len(self._strangers), count, address
        )
        with suppress(OSError):
            self._strangers.pop(peer).connection.shutdown(socket.SHUT_RDWR)

    def _forget(self, peer: Peer, protocol: TimedHeaders) -> None:
        for those in (self._strangers, self._members):
            if those.get(peer) is protocol:
                del those[peer]


def _peer(client: Any) -> Peer:
    return str(client[0]), int(client[1])


class DoorServer(uvicorn.Server):
    """uvicorn's server behind a door."""

    def __init__(self, config: uvicorn.Config, door: Door) -> None:
        super().__init__(config)
        self._door = door

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See `uvicorn.Server`."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            self.should_exit = True
            return
        self._door.open(self)
        self.servers = [self._door]  # type: ignore[list-item]
        self.started = True


class TimedHeaders(H11Protocol):
    """A connection that is closed if the headers of a request do not come in time; `ended` is called at its end."""

    _timer: asyncio.TimerHandle | None = None
    connection: socket.socket
    ended: Callable[[], object] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        if self.ended is not None:
            self.ended()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """See `H11Protocol`; TLS would read on until the other side ends it too."""
        super().send_400_response(msg)
        self.loop.call_soon(self.transport.abort)

    def _watch(self) -> None:
        """Start the time where headers have begun to come, or are the first; end it where they are complete."""
        if self.conn.their_state is not h11.IDLE or (self.cycle is not None and not self.conn.trailing_data[0]):
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEADER_SECONDS, self._close)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        _log.warning("refused: %s: its headers did not come within %g s", self.client, HEADER_SECONDS)
        self.transport.abort()


def require_open_files(largest_clients: int) -> None:
    """Raise this process's limit on open files to what the door lets in, where the system has one.

    Raises
    ------
    ConfigError
        If the limit cannot be so high.
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    needed, (soft, hard) = largest_clients + STRANGERS + OTHER_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ConfigError(
            f"{needed} open files are needed, for {largest_clients} connections of hospitals (`largest_clients`) and "
            f"{STRANGERS} of others, and the system allows {hard}: raise it (`ulimit -n`, `LimitNOFILE` of the "
            "service), or lower `largest_clients` in federation.yaml",
            kind="open files",
            needed=needed,
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
