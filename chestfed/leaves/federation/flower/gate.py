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
#: Where a node's answers come; their tensors come elsewhere, and are named by these.
ANSWERS = "/v1/fleet/push-messages"
#: Headers of a node, as Flower names them: public key, time, signature; and how far the time may be off, in seconds.
KEY_HEADER, TIME_HEADER, SIGNATURE_HEADER = "flwr-public-key", "flwr-timestamp", "flwr-signature"
AHEAD, BEHIND = 5.0, 305.0

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_members = logging.getLogger("chestfed.leaves.federation.members")
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
    cut
        Called with the address and port of a connection that is to end at once, with whatever is still to come.
    is_own
        Called with a member's name and the body of its answers: whether they are in its own name.
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
        cut: Callable[[Any], object] = lambda client: None,
        is_own: Callable[[str, bytes], bool] = lambda name, body: True,
    ) -> None:
        self._app, self._secret, self._largest = app, secret.encode(), largest
        self._members, self._seconds, self._signed, self._now = members, seconds, signed, now
        self._statuses, self._admit, self._cut = statuses if statuses is not None else {}, admit, cut
        self._is_own = is_own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            is_read = False
            try:
                is_read = await self._is_read(scope, receive, send)
            finally:
                if not is_read:
                    self._cut(scope.get("client"))

    async def _is_read(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Answer a request; whether its body, if there is one, was read to its end."""
        headers = {name.lower().decode("latin-1"): value for name, value in scope["headers"]}
        path, peer = scope["path"], (scope.get("client") or ("unknown",))[0]
        try:
            name = self._identify(path, headers)
        except Unsigned as error:
            _strangers.warning("refused: %s asked for %r: %s", peer, path[:200], error.reason)
            status = 401 if path.startswith(("/v1/fleet/", HELLO)) else 403
            return await _answer(send, status, self._about(reason=error.reason))
        if path != "/health" and not self._admit(scope.get("client")):
            _members.warning("refused: a further connection of %s (%s): `largest_clients` are there", name, peer)
            return await _answer(send, 503)
        if path == HELLO:
            return await _answer(send, 200, self._about(name=name, status=self._statuses.get(name, "")))
        if path == "/health":
            wrong = scope["method"] != "GET" or headers.keys() & {"content-length", "transfer-encoding"}
            return await _answer(send, 405 if wrong else 200)
        length = headers.get("content-length", b"0" if scope["method"] != "POST" else b"")
        if "transfer-encoding" in headers or not length.isdigit():  # beside a transfer encoding a length means nothing
            _members.warning("refused: a request of %s (%s) without a length", name, peer)
            return await _answer(send, 411)  # Flower always says it
        if int(length) > self._largest:
            text = "refused: a request of %s bytes of %s (%s), more than %d"
            _members.warning(text, length.decode(), name, peer, self._largest)
            return await _answer(send, 413)
        body = _Body(receive, self._seconds, self._largest, name)
        if path == ANSWERS and self._signed and not self._is_own(name, await body.read_whole()):
            _members.warning("refused: an answer of %s (%s) that is not in its own name", name, peer)
            return await _answer(send, 403)
        await self._app(scope, body.receive, send)
        return body.complete or int(length) == 0

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


class _Body:
    """The body of a member's request, of so many seconds and bytes at most; beyond, the client counts as gone."""

    def __init__(self, receive: Receive, seconds: float, largest: int, name: str) -> None:
        self.complete = False
        self._receive, self._left, self._name = receive, largest, name
        self._kept = list[MutableMapping[str, Any]]()
        self._loop = asyncio.get_running_loop()
        self._ends = self._loop.time() + seconds

    async def receive(self) -> MutableMapping[str, Any]:
        """See ASGI."""
        if self._kept:
            return self._kept.pop(0)
        if self.complete:
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), max(0.0, self._ends - self._loop.time()))
        except TimeoutError:
            _members.warning("a request of %s did not arrive in time", self._name)
            return {"type": "http.disconnect"}
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            _members.warning("refused: a request of %s is longer than it said", self._name)
            return {"type": "http.disconnect"}
        self.complete = not message.get("more_body", False)
        return message

    async def read_whole(self) -> bytes:
        """The body, as far as it comes; `receive` gives it once more."""
        parts = list[MutableMapping[str, Any]]()
        while not self.complete and (not parts or parts[-1]["type"] != "http.disconnect"):
            parts.append(await self.receive())
        self._kept = parts
        return b"".join(part.get("body", b"") for part in parts)


async def _answer(send: Send, status: int, body: bytes = b"") -> bool:
    """Answer what is read no further: False."""
    headers = [(b"connection", b"close"), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
    return False
