"""The gate refuses from headers alone, in time, and a hospital says why it cannot connect."""

from __future__ import annotations

import asyncio
import base64
import datetime
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="needs chestfed[flower]")
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from chestfed.leaves.federation import keys
from chestfed.leaves.federation.flower.gate import (
    HELLO,
    KEY_HEADER,
    OPERATOR_HEADER,
    SIGNATURE_HEADER,
    TIME_HEADER,
    Gate,
)

KEY, STRANGER = keys.new_key(), keys.new_key()
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
FLEET = "/v1/fleet/push-object"
Body = Callable[[], Awaitable[dict[str, Any]]]


def signed(key: keys.Key = KEY, seconds: float = 0.0, signer: keys.Key | None = None) -> dict[str, bytes]:
    """Headers of a node whose clock is ahead by so many seconds."""
    stamp = (NOW + datetime.timedelta(seconds=seconds)).isoformat()
    signature = (signer or key).sign(stamp.encode(), ec.ECDSA(hashes.SHA256()))
    public = base64.b64encode(keys.public_bytes(key.public_key()))
    return {KEY_HEADER: public, TIME_HEADER: stamp.encode(), SIGNATURE_HEADER: base64.b64encode(signature)}


class Called:
    """One request: status and body of the answer, whether the app was reached, how often the body was read."""

    def __init__(self, path: str, headers: dict[str, bytes], body: Body | None = None) -> None:
        self.reached, self.read, self.status, self.content = False, 0, 0, b""
        asyncio.run(self._call(path, headers, body))

    async def _call(self, path: str, headers: dict[str, bytes], body: Body | None) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            self.reached = True
            self.message = await receive()

        async def receive() -> dict[str, Any]:
            self.read += 1
            return await body() if body else {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            self.status = message.get("status", self.status)
            self.content += message.get("body", b"")

        members = {keys.public_bytes(KEY.public_key()): "anne"}
        gate = Gate(app, "secret", 100, members, seconds=0.05, now=lambda: NOW)
        scope = {"type": "http", "path": path, "method": "POST", "client": ("10.0.0.1", 1)}
        await gate({**scope, "headers": [(name.encode(), value) for name, value in headers.items()]}, receive, send)

    @property
    def about(self) -> dict[str, str]:
        about: dict[str, str] = json.loads(self.content)
        return about


LENGTH = {"content-length": b"5"}


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, "missing"),
        ({**signed(), TIME_HEADER: b"now"}, "missing"),
        ({**signed(), KEY_HEADER: b"%%%"}, "missing"),
        (signed(STRANGER), "unknown key"),
        (signed(KEY, signer=STRANGER), "signature"),
        ({**signed(), TIME_HEADER: NOW.replace(second=1).isoformat().encode()}, "signature"),
        (signed(seconds=6), "clock"),
        (signed(seconds=-306), "clock"),
    ],
)
@pytest.mark.parametrize("path", [FLEET, HELLO])
def test_unsigned_requests_are_not_read(headers: dict[str, bytes], reason: str, path: str) -> None:
    called = Called(path, {**headers, "content-length": b"60000000"})
    assert (called.status, called.reached, called.read) == (401, False, 0)
    assert called.about["reason"] == reason


def test_members_and_operator_pass() -> None:
    assert Called(FLEET, signed() | LENGTH).reached
    assert Called("/v1/control/start-run", {OPERATOR_HEADER: b"secret"} | LENGTH).reached
    assert Called(HELLO, signed()).about["name"] == "anne"
    for headers in ({}, {OPERATOR_HEADER: b"guess"}, signed()):
        called = Called("/v1/control/start-run", headers | LENGTH)
        assert (called.status, called.reached, called.read) == (403, False, 0)


@pytest.mark.parametrize(("headers", "status"), [({"content-length": b"101"}, 413), ({}, 411)])
def test_large_request_of_member_is_refused(headers: dict[str, bytes], status: int) -> None:
    called = Called(FLEET, signed() | headers)
    assert (called.status, called.reached, called.read) == (status, False, 0)


def test_stalled_body_is_given_up() -> None:
    async def never() -> dict[str, Any]:
        return await asyncio.Future()

    called = Called(FLEET, signed() | LENGTH, never)
    assert called.message == {"type": "http.disconnect"}
