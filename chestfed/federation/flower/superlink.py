"""The server that hospitals connect to: Flower's SuperLink behind a gate.

Flower serves three interfaces on one port: Fleet for the nodes, which authenticate by their keys; Control, by which
runs are started and nodes registered; and Runtime, by which a run talks to its nodes. The last two have no
authentication of their own in the free edition, so that the gate lets only the operator of the server through.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import uvicorn
from flwr.common.constant import ISOLATION_MODE_PROCESS, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID, TRANSPORT_TYPE_GRPC_RERE
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME
from flwr.superlink.auth_plugin import NoOpControlAuthnPlugin
from flwr.superlink.cli.flower_superlink import SuperLinkLifespan
from flwr.superlink.config_loader import SuperLinkLifespanConfig
from flwr.superlink.main import create_app

from chestfed.core.errors import ConfigError
from chestfed.federation.flower.gate import Gate
from chestfed.federation.keys import public_bytes, read_public_key, read_secret
from chestfed.federation.settings import Federation, split_address

_log = logging.getLogger("chestfed.federation")


def serve(federation: Federation, *, insecure: bool) -> None:
    """Run the server until it is stopped, for the hospitals with a file in `keys`; it follows changes there."""
    file = federation.file
    _log_plainly()
    host, port = file.listen, split_address(file.address)[1]
    private = federation.folder / "private"
    certificates = [federation.authority, federation.folder / "server.crt", private / "server.key"]
    app = create_app(_lifespan(host, port, certificates, insecure=insecure), SuperLinkLifespan)
    roster = Roster(federation, app.state.linkstate_factory.state())
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
        ssl_certfile=None if insecure else str(certificates[1]),
        ssl_keyfile=None if insecure else str(certificates[2]),
        workers=1,
    )


class Roster:
    """The hospitals that may connect; `names` by their public keys as PEM."""

    def __init__(self, federation: Federation, state: Any) -> None:
        self.names: dict[bytes, str] = {}
        self._federation, self._state = federation, state
        self._nodes: dict[bytes, int] = {}
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
            self._state.delete_node(NOOP_FLWR_AID, self._nodes.pop(key))
            _log.info("%s: its key is not accepted any more", self.names.pop(key))
        for key, name in present.items():
            if key not in self.names:
                self._nodes[key] = self._state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, 0, name=name)
                self.names[key] = name
                _log.info("%s: may connect", name)

    def follow(self) -> None:
        """Update every two seconds, and log who comes and goes."""
        while True:
            time.sleep(2.0)
            try:
                self.update()
                nodes = self._state.get_node_info(node_ids=list(self._nodes.values()))
                for name, status in {node.name: node.status for node in nodes}.items():
                    if self._status.get(name, "registered") != status:
                        _log.info("%s: %s", name, status)
                    self._status[name] = status
            except Exception:  # the server goes on
                _log.exception("the members cannot be read")


def _log_plainly() -> None:
    """Lines with a time and without colors; of Flower's log only warnings."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S%z"))
    for name, level in (("chestfed.federation", logging.INFO), ("flwr", logging.WARNING), ("uvicorn", logging.WARNING)):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(level)


def _lifespan(host: str, port: int, certificates: list[Any], *, insecure: bool) -> SuperLinkLifespanConfig:
    return SuperLinkLifespanConfig(
        control_address=f"{host}:{port}",
        health_server_address=None,
        host=host,
        port=port,
        insecure=insecure,
        certificates=None if insecure else tuple(path.read_bytes() for path in certificates),
        superexec_auth_secret=None,  # the gate asks for the operator's
        authn_plugin=NoOpControlAuthnPlugin(),
        event_log_plugin=None,
        fleet_event_log_plugin=None,
        enable_event_log=False,
        artifact_provider=None,
        enable_supernode_auth=not insecure,
        fleet_api_type=TRANSPORT_TYPE_GRPC_RERE,
        fleet_api_address=None,
        simulation=False,
        ssl_ca_certfile=None if insecure else str(certificates[0]),
        ssl_certfile=None if insecure else str(certificates[1]),
        ssl_keyfile=None if insecure else str(certificates[2]),
        database=FLWR_IN_MEMORY_DB_NAME,  # messages hold models: nothing of them lies on the server's disk
        isolation=ISOLATION_MODE_PROCESS,  # no code of an app bundle is run
        runtime_dependency_install=False,
    )
