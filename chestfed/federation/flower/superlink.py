"""The server that hospitals connect to: Flower's SuperLink behind a gate.

Flower serves three interfaces on one port: Fleet for the nodes, which authenticate by their keys; Control, by which
runs are started and nodes registered; and Runtime, by which a run talks to its nodes. The last two have no
authentication of their own in the free edition, so that the gate lets only the operator of the server through.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn
from flwr.common.constant import ISOLATION_MODE_PROCESS, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID, TRANSPORT_TYPE_GRPC_RERE
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME
from flwr.superlink.auth_plugin import NoOpControlAuthnPlugin
from flwr.superlink.cli.flower_superlink import SuperLinkLifespan
from flwr.superlink.config_loader import SuperLinkLifespanConfig
from flwr.superlink.main import create_app

from chestfed.federation.keys import read_public_key, read_secret
from chestfed.federation.settings import Federation, split_address

#: Header that carries the operator's secret.
OPERATOR_HEADER = "x-chestfed-operator"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_log = logging.getLogger("chestfed.federation")


class Gate:
    """Refuses requests that are too large, and operator's requests without the secret."""

    def __init__(self, app: App, secret: str, largest: int) -> None:
        self._app, self._secret, self._largest = app, secret.encode(), largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        path, peer = scope["path"], (scope.get("client") or ("unknown",))[0]
        if not (path.startswith("/v1/fleet/") or path == "/health"):
            given = headers.get(OPERATOR_HEADER.encode(), b"")
            if not hmac.compare_digest(given, self._secret):
                _log.warning("refused: %s asked for %s, which only the operator may", peer, path)
                await _answer(send, 403)
                return
        length = headers.get(b"content-length", b"")
        if not length.isdigit():  # a body of unknown length; Flower always says it
            if scope["method"] == "POST":
                _log.warning("refused: a request from %s without a length", peer)
                await _answer(send, 411)
                return
        elif int(length) > self._largest:
            _log.warning("refused: a request of %s bytes from %s, more than %d", length.decode(), peer, self._largest)
            await _answer(send, 413)
            return
        await self._app(scope, receive, send)


async def _answer(send: Send, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"connection", b"close")]})
    await send({"type": "http.response.body", "body": b""})


def serve(federation: Federation, *, insecure: bool) -> None:
    """Run the server until it is stopped; hospitals of the federation's file are registered, and no others."""
    file = federation.file
    host, port = file.listen, split_address(file.address)[1]
    private = federation.folder / "private"
    certificates = [federation.authority, federation.folder / "server.crt", private / "server.key"]
    app = create_app(_lifespan(host, port, certificates, insecure=insecure), SuperLinkLifespan)
    state = app.state.linkstate_factory.state()
    for member in file.hospitals:
        key = read_public_key(federation.folder / member.key)
        state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, 0, name=member.name)
    gate = Gate(app, read_secret(federation.operator_secret), file.largest_request * 2**20)
    uvicorn.run(
        gate,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        ssl_certfile=None if insecure else str(certificates[1]),
        ssl_keyfile=None if insecure else str(certificates[2]),
        workers=1,
    )


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
