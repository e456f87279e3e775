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

import uvicorn

from chestfed.core.errors import ConfigError
from chestfed.leaves.federation.flower.gate import Gate
from chestfed.leaves.federation.flower.interior import Nodes, make_superlink
from chestfed.leaves.federation.keys import public_bytes, read_public_key, read_secret
from chestfed.leaves.federation.settings import Federation, split_address

#: Settings that Flower reads from the environment: with a database, messages, which hold models, would lie on the disk.
UNSET = ("FLWR_DATABASE", "FLWR_ENABLE_EVENT_LOG", "FLWR_OIDC_ENABLED")

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
    uvicorn.run(
        Gate(app, secret, largest, roster.names, seconds=file.body_seconds, signed=not insecure),
        host=host,
        port=port,
        log_config=None,
        log_level="warning",
        access_log=False,
        limit_concurrency=file.largest_clients,
        timeout_keep_alive=30,
        ssl_certfile=None if insecure else str(federation.folder / "server.crt"),
        ssl_keyfile=None if insecure else str(private / "server.key"),
        workers=1,
    )


class Roster:
    """The hospitals that may connect; `names` by their public keys as PEM."""

    def __init__(self, federation: Federation, nodes: Nodes) -> None:
        self.names: dict[bytes, str] = {}
        self._federation, self._nodes = federation, nodes
        self._numbers: dict[bytes, int] = {}
        self._status: dict[str, str] = {}

    def update(self) -> None:
        """Register keys that are new, and unregister those that are gone."""
        present = dict[bytes, str]()
        for name in self._federation.members:
            try:
                present[public_bytes(read_public_key(self._federation.keys / f"{name}.pub"))] = name
            except ConfigError as error:
                _log.warning("%s", error)
        for key in [key for key in self.names if self.names[key] != present.get(key)]:
            self._nodes.unregister(self._numbers.pop(key))
            _log.info("%s: its key is not accepted any more", self.names.pop(key))
        for key, name in present.items():
            if key not in self.names:
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
                    if self._status.get(name, "registered") != status:
                        _log.info("%s: %s", name, status)
                    self._status[name] = status
            except Exception:  # the server goes on
                _log.exception("the members cannot be read")


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
