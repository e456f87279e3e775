"""The server that hospitals connect to: Flower's SuperLink behind a gate.

Flower serves three interfaces on one port: Fleet for the nodes, which authenticate by their keys; Control, by which
runs are started and nodes registered; and Runtime, by which a run talks to its nodes. The last two have no
authentication of their own in the free edition, so that the gate lets only the operator of the server through.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from chestfed.core.errors import ConfigError
from chestfed.leaves.federation.flower.gate import Gate
from chestfed.leaves.federation.flower.interior import Nodes, make_superlink
from chestfed.leaves.federation.keys import public_bytes, read_public_key, read_secret
from chestfed.leaves.federation.settings import Federation, FederationFile, split_address

#: Settings that Flower reads from the environment: with a database, messages, which hold models, would lie on the disk.
UNSET = ("FLWR_DATABASE", "FLWR_ENABLE_EVENT_LOG", "FLWR_OIDC_ENABLED")

#: Bytes of the headers of a request, and seconds in which they come; a node's signature takes some hundred bytes.
LARGEST_HEADERS, HEADER_SECONDS = 2**16, 20.0

_log = logging.getLogger("chestfed.leaves.federation")


def serve(federation: Federation, *, insecure: bool) -> None:
    """Run the server until it is stopped, for the hospitals with a file in `keys`; it follows changes there."""
    file = federation.file
    _log_plainly()
    host, port = file.listen, split_address(file.address)[1]
    private = federation.folder / "private"
    for name in UNSET:
        os.environ.pop(name, None)
    app = make_superlink(signed=not insecure)
    roster = Roster(federation, Nodes(app))
    roster.update()
    threading.Thread(target=roster.follow, daemon=True, name="members").start()
    secret, largest = read_secret(federation.operator_secret), file.largest_request * 2**20
    gate = Gate(app, secret, largest, roster.names, roster.status, seconds=file.body_seconds, signed=not insecure)
    tls = {} if insecure else {"ssl_certfile": federation.folder / "server.crt", "ssl_keyfile": private / "server.key"}
    uvicorn.Server(configure_http(gate, file, host=host, port=port, **tls)).run()


def configure_http(app: Any, file: FederationFile, **more: Any) -> uvicorn.Config:
    """How requests are read: what comes before a signature is limited in size and time."""
    return uvicorn.Config(
        app,
        http=TimedHeaders,  # the default joins parts of a header for ever, and everybody waits
        ws="none",
        h11_max_incomplete_event_size=LARGEST_HEADERS,
        log_config=None,
        log_level="warning",
        access_log=False,
        limit_concurrency=file.largest_clients,
        timeout_keep_alive=30,
        workers=1,
        **more,
    )


class TimedHeaders(H11Protocol):
    """A connection that is closed if the headers of a request do not come in time."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

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


class Roster:
    """The hospitals that may connect: `names` by their public keys as PEM, and the `status` of each."""

    def __init__(self, federation: Federation, nodes: Nodes) -> None:
        self.names: dict[bytes, str] = {}
        self._federation, self._nodes = federation, nodes
        self._numbers: dict[bytes, int] = {}
        self.status: dict[str, str] = {}

    def update(self) -> None:
        """Register keys that are new, and unregister those that are gone."""
        present = dict[bytes, str]()
        for name in self._federation.members:
            try:
                present[public_bytes(read_public_key(self._federation.keys / f"{name}.pub"))] = name
            except ConfigError as error:
                _log.warning("%s", error)
        for key in [key for key in self.names if self.names[key] != present.get(key)]:
            name = self.names.pop(key)
            self.status.pop(name, None)
            with _for_one(name):
                self._nodes.unregister(self._numbers.pop(key), key)
            _log.info("%s: its key is not accepted any more", name)
        for key, name in present.items():
            if key not in self.names:
                with _for_one(name):
                    self._numbers[key] = self._nodes.register(key, name)
                    self.names[key] = name
                    _log.info("%s: may connect", name)

    def follow(self) -> None:
        """Update every two seconds, and log who comes and goes."""
        while True:
            time.sleep(2.0)
            try:
                self.update()
                for name, status in self._nodes.statuses(list(self._numbers.values())).items():
                    if self.status.get(name, "registered") != status:
                        _log.info("%s: %s", name, status)
                    self.status[name] = status
            except Exception:  # the server goes on
                _log.exception("the members cannot be read")


@contextmanager
def _for_one(name: str) -> Iterator[None]:
    """What goes wrong with one member is logged, and does not stop the others."""
    try:
        yield
    except Exception:
        _log.exception("%s: cannot be admitted or excluded", name)


def _log_plainly() -> None:
    """Lines with a time and without colors; of Flower's log only warnings."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S%z"))
    for name, level in (
        ("chestfed.leaves.federation", logging.INFO),
        ("flwr", logging.WARNING),
        ("uvicorn", logging.WARNING),
    ):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(level)
