"""The server that hospitals connect to: Flower's SuperLink behind a gate.

Flower serves three interfaces on one port: Fleet for the nodes, which authenticate by their keys; Control, by which
runs are started and nodes registered; and Runtime, by which a run talks to its nodes. The last two have no
authentication of their own in the free edition, so that the gate lets only the operator of the server through.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from chestfed.core.errors import ConfigError
from chestfed.leaves.federation.allowance import Hourly
from chestfed.leaves.federation.flower.door import Door, DoorServer, TimedHeaders, require_open_files
from chestfed.leaves.federation.flower.gate import Gate
from chestfed.leaves.federation.flower.interior import Nodes, make_superlink, names_sender
from chestfed.leaves.federation.keys import public_bytes, read_public_key, read_secret, refuse_twins
from chestfed.leaves.federation.settings import Federation, split_address

#: Settings that Flower reads from the environment: with a database, messages, which hold models, would lie on the disk.
UNSET = ("FLWR_DATABASE", "FLWR_ENABLE_EVENT_LOG", "FLWR_OIDC_ENABLED")

#: Bytes of the headers of a request; a node's signature takes some hundred.
LARGEST_HEADERS = 2**16

_log = logging.getLogger("chestfed.leaves.federation")


def serve(federation: Federation, *, insecure: bool) -> None:
    """Run the server until it is stopped, for the hospitals with a file in `keys`; it follows changes there.

    Raises
    ------
    ConfigError
        If two hospitals have one key, the address cannot be bound, or too few files may be open.
    """
    file = federation.file
    refuse_twins(federation.keys, federation.members)
    require_open_files(file.largest_clients)
    door = Door(file.largest_clients)
    door.listen(file.listen, split_address(file.address)[1])
    _log_plainly()
    private = federation.folder / "private"
    for name in UNSET:
        os.environ.pop(name, None)
    app = make_superlink(signed=not insecure)
    roster = Roster(federation, Nodes(app))
    roster.update()
    threading.Thread(target=roster.follow, daemon=True, name="members").start()
    secret, largest = read_secret(federation.operator_secret), file.largest_request * 2**20
    limits = {"seconds": file.body_seconds, "signed": not insecure, "admit": door.admit, "cut": door.cut}
    gate = Gate(app, secret, largest, roster.names, roster.status, is_own=roster.is_own, **limits)  # type: ignore[arg-type]
    tls = {} if insecure else {"ssl_certfile": federation.folder / "server.crt", "ssl_keyfile": private / "server.key"}
    DoorServer(configure_http(gate, **tls), door).run()


def configure_http(app: Any, **more: Any) -> uvicorn.Config:
    """Configure the reading of requests: what comes before a signature is limited in size and time."""
    return uvicorn.Config(
        app,
        http=TimedHeaders,  # the default joins parts of a header for ever, and everybody waits
        ws="none",
        h11_max_incomplete_event_size=LARGEST_HEADERS,
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # whoever connects from this machine could name any address
        timeout_keep_alive=30,
        workers=1,
        **more,
    )


class Roster:
    """The hospitals that may connect: `names` by their public keys as PEM, and the `status` of each."""

    def __init__(self, federation: Federation, nodes: Nodes) -> None:
        self.names: dict[bytes, str] = {}
        self._federation, self._nodes = federation, nodes
        self._numbers: dict[bytes, int] = {}
        self.status: dict[str, str] = {}
        self._wrong = set[str]()

    def update(self) -> None:
        """Register keys that are new, and unregister those that are gone."""
        present, twice, wrong = dict[bytes, str](), set[bytes](), set[str]()
        for name in self._federation.members:
            try:
                key = public_bytes(read_public_key(self._federation.keys / f"{name}.pub"))
                twice |= {key} & present.keys()
                present[key] = name
            except ConfigError as error:
                wrong.add(str(error))
        wrong |= {f"{present.pop(key)} and another hospital have one key: neither may connect" for key in twice}
        for text in sorted(wrong - self._wrong):
            _log.warning("%s", text)
        self._wrong = wrong
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

    def is_own(self, name: str, body: bytes) -> bool:
        """Whether answers that a member sends are in the name of its own node."""
        numbers = [self._numbers[key] for key, known in list(self.names.items()) if known == name]
        return any(names_sender(body, number) for number in numbers)

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
    """Log an error with one member, so that it does not stop the others."""
    try:
        yield
    except Exception:
        _log.exception("%s: cannot be admitted or excluded", name)


def _log_plainly() -> None:
    """Lines with a time and without colors; of Flower's log only warnings."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S%z"))
    for name in ("chestfed.leaves.federation", "flwr", "uvicorn"):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(logging.INFO if name.startswith("chestfed") else logging.WARNING)
    ours = "chestfed.leaves.federation"
    for name in (f"{ours}.strangers", f"{ours}.members", "flwr", "uvicorn.error", "asyncio"):  # what others can cause
        logging.getLogger(name).addFilter(Hourly())
