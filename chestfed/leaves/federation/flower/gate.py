"""The gate before Flower's server: who a request is from is known before its body is read.

A node signs each request: three headers hold its key, the time, and its signature of the time. The operator's requests
hold a secret. Everything else is refused from its headers alone.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import datetime
import hmac
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from chestfed._version import __version__

#: Header that carries the operator's secret.
OPERATOR_HEADER = "x-chestfed-operator"
#: Where a hospital asks whether it is known, and what time it is here.
HELLO = "/chestfed/hello"
#: Headers of a node, as Flower names them: public key, time, signature; and how far the time may be off, in seconds.
KEY_HEADER, TIME_HEADER, SIGNATURE_HEADER = "flwr-public-key", "flwr-timestamp", "flwr-signature"
AHEAD, BEHIND = 5.0, 305.0

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_log = logging.getLogger("chestfed.leaves.federation")
_strangers = logging.getLogger("chestfed.leaves.federation.strangers")


class Unsigned(Exception):
    """A request that no member signed: `reason` is one of `missing`, `signature`, `clock`, `unknown key`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Gate:
    """Lets signed requests of members and the operator's pass, of limited size and time.

    Parameters
    ----------
    members
        Public keys as PEM -> names; it may change while the gate is open. So may `statuses`, by name.
    signed
        False: any node may send, for a server without TLS on loopback.
    admit
        Called with the address and port of a connection on which a member, or the operator, has signed: whether there
        is room for one more.
    """

    def __init__(
        self,
        app: App,
        secret: str,
        largest: int,
        members: Mapping[bytes, str],
        statuses: Mapping[str, str] | None = None,
        *,
        seconds: float = 120.0,
        signed: bool = True,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
        admit: Callable[[Any], bool] = lambda client: True,
    ) -> None:
        self._app, self._secret, self._largest = app, secret.encode(), largest
        self._members, self._seconds, self._signed, self._now = members, seconds, signed, now
        self._statuses, self._admit = statuses if statuses is not None else {}, admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = {name.lower().decode("latin-1"): value for name, value in scope["headers"]}
        path, peer = scope["path"], (scope.get("client") or ("unknown",))[0]
        try:
            name = self._identify(path, headers)
        except Unsigned as error:
            _strangers.warning("refused: %s asked for %r: %s", peer, path[:200], error.reason)
            await _answer(
                send, 401 if path.startswith(("/v1/fleet/", HELLO)) else 403, self._about(reason=error.reason)
            )
            return
        if path != "/health" and not self._admit(scope.get("client")):
            _log.warning("refused: a further connection of %s (%s): `largest_clients` are there", name, peer)
            await _answer(send, 503)
            return
        if path == HELLO:
            await _answer(send, 200, self._about(name=name, status=self._statuses.get(name, "")))
            return
        if path == "/health":
            wrong = scope["method"] != "GET" or headers.keys() & {"content-length", "transfer-encoding"}
            await _answer(send, 405 if wrong else 200)
            return
        length = headers.get("content-length", b"")
        if not length.isdigit():  # a body of unknown length; Flower always says it
            if scope["method"] == "POST":
                _log.warning("refused: a request of %s (%s) without a length", name, peer)
                await _answer(send, 411)
                return
        elif int(length) > self._largest:
            text = "refused: a request of %s bytes of %s (%s), more than %d"
            _log.warning(text, length.decode(), name, peer, self._largest)
            await _answer(send, 413)
            return
        await self._app(scope, _limit_time(receive, self._seconds, name), send)

    def _identify(self, path: str, headers: Mapping[str, bytes]) -> str:
        """Who sends a request; raises `Unsigned`."""
        if path == "/health":
            return "anybody"
        if not path.startswith(("/v1/fleet/", HELLO)):
            if not hmac.compare_digest(headers.get(OPERATOR_HEADER, b""), self._secret):
                raise Unsigned("only the operator may")
            return "the operator"
        if not self._signed:
            return "a node"
        try:
            key = base64.b64decode(headers[KEY_HEADER], validate=True)
            signature = base64.b64decode(headers[SIGNATURE_HEADER], validate=True)
            stamp = headers[TIME_HEADER].decode("ascii")
            age = (self._now() - datetime.datetime.fromisoformat(stamp)).total_seconds()
        except (KeyError, ValueError, TypeError, binascii.Error):
            raise Unsigned("missing") from None
        name = self._members.get(key)
        if name is None:
            raise Unsigned("unknown key")
        try:
            public = serialization.load_pem_public_key(key)
            assert isinstance(public, ec.EllipticCurvePublicKey)
            public.verify(signature, stamp.encode(), ec.ECDSA(hashes.SHA256()))
        except (InvalidSignature, ValueError):
            raise Unsigned("signature") from None
        if not -AHEAD < age < BEHIND:
            raise Unsigned("clock")
        return name

    def _about(self, **more: str) -> bytes:
        return json.dumps({"time": self._now().isoformat(), "version": __version__, **more}).encode()


def _limit_time(receive: Receive, seconds: float, name: str) -> Receive:
    """`receive` until the body is complete or so many seconds have passed; then the client counts as gone."""
    loop = asyncio.get_running_loop()
    ends, complete = loop.time() + seconds, False

    async def receive_in_time() -> MutableMapping[str, Any]:
        nonlocal complete
        if complete:
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), max(0.0, ends - loop.time()))
        except TimeoutError:
            _log.warning("a request of %s did not arrive within %.0f s", name, seconds)
            return {"type": "http.disconnect"}
        complete = not message.get("more_body", False)
        return message

    return receive_in_time


async def _answer(send: Send, status: int, body: bytes = b"") -> None:
    headers = [(b"connection", b"close"), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
