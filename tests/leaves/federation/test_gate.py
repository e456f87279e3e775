"""The gate refuses from headers alone, in time, and a hospital says why it cannot connect."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import inspect
import json
import logging
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs chestfed[flower]")
import httpx
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from chestfed.core.errors import ConfigError
from chestfed.leaves.federation import keys
from chestfed.leaves.federation.flower.gate import (
    HELLO,
    KEY_HEADER,
    OPERATOR_HEADER,
    SIGNATURE_HEADER,
    TIME_HEADER,
    Gate,
)
from chestfed.leaves.federation.server.founding import add, create, join, rekey
from chestfed.leaves.federation.settings import Federation, FederationFile, read_federation, read_hospital
from tests.cases import assert_refused
from tests.leaves.federation.straight_line import Clock

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

    def __init__(
        self,
        path: str,
        headers: dict[str, bytes],
        body: Body | None = None,
        *,
        method: str = "POST",
        is_own: Callable[[str, bytes], bool] = lambda name, body: True,
    ) -> None:
        self.reached, self.read, self.status, self.content, self._is_own = False, 0, 0, b"", is_own
        asyncio.run(self._call(path, headers, body, method))

    async def _call(self, path: str, headers: dict[str, bytes], body: Body | None, method: str) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            self.reached, self.message = True, await receive()
            while self.message.get("more_body"):
                self.message = await receive()

        async def receive() -> dict[str, Any]:
            self.read += 1
            return await body() if body else {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            self.status = message.get("status", self.status)
            self.content += message.get("body", b"")

        members = {keys.public_bytes(KEY.public_key()): "anne"}
        self.cut = list[Any]()
        gate = Gate(
            app, "secret", 100, members, seconds=0.05, now=lambda: NOW, cut=self.cut.append, is_own=self._is_own
        )
        scope = {"type": "http", "path": path, "method": method, "client": ("10.0.0.1", 1)}
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


def test_health_has_no_body() -> None:
    for headers in ({}, LENGTH, {"transfer-encoding": b"chunked"}):
        called = Called("/health", headers)  # a POST
        assert (called.status, called.reached, called.read) == (405, False, 0)


CHUNKED = {"transfer-encoding": b"chunked"}


@pytest.mark.parametrize("method", ["POST", "GET"])
@pytest.mark.parametrize(
    ("headers", "status"), [({"content-length": b"101"}, 413), (CHUNKED, 411), (LENGTH | CHUNKED, 411)]
)
def test_large_request_of_member_is_refused(headers: dict[str, bytes], status: int, method: str) -> None:
    called = Called(FLEET, signed() | headers, method=method)
    assert (called.status, called.reached, called.read) == (status, False, 0)
    assert called.cut == [("10.0.0.1", 1)]


def test_length_is_said_by_who_sends() -> None:
    assert Called(FLEET, signed()).status == 411
    called = Called(FLEET, signed(), method="GET")
    assert (called.reached, called.cut) == (True, [])


async def never() -> dict[str, Any]:
    return await asyncio.Future()


async def without_end() -> dict[str, Any]:
    return {"type": "http.request", "body": b"x" * 60, "more_body": True}


@pytest.mark.parametrize("body", [never, without_end])
def test_body_ends_in_time_and_size(body: Body) -> None:
    called = Called(FLEET, signed() | LENGTH, body)
    assert called.message == {"type": "http.disconnect"}
    assert called.read <= 2
    assert called.cut == [("10.0.0.1", 1)]


def test_answer_for_another_member_is_refused(tmp_path: Path) -> None:
    """Flower takes it from whoever knows the number of the other's node and of its message."""
    from flwr.proto.fleet_pb2 import PushMessagesRequest

    from chestfed.leaves.federation.flower.superlink import Roster

    for name in ("anne", "bert"):
        (tmp_path / "keys").mkdir(exist_ok=True)
        keys.save_public_key(tmp_path / "keys" / f"{name}.pub", KEY if name == "anne" else STRANGER)
    nodes: Any = Table()
    roster = Roster(Federation(tmp_path, FederationFile(federation="test", address="localhost:9443")), nodes)
    roster.update()
    anne, bert = PushMessagesRequest(), PushMessagesRequest()
    anne.messages_list.add().metadata.src_node_id = 1
    bert.messages_list.add().metadata.src_node_id = 2
    both = PushMessagesRequest(messages_list=[*anne.messages_list, *bert.messages_list])
    for request, passes in ((anne, True), (bert, False), (both, False), (None, False)):
        body = request.SerializeToString() if request else b"no message"
        parts = [(body[:3], True), (body[3:], False)]

        async def send(parts: list[tuple[bytes, bool]] = parts) -> dict[str, Any]:
            part, more = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": more}

        length = {"content-length": b"%d" % len(body)}
        called = Called("/v1/fleet/push-messages", signed() | length, send, is_own=roster.is_own)
        assert (called.reached, called.status, called.read) == (passes, 0 if passes else 403, 2)
        if passes:
            assert called.message == {"type": "http.request", "body": body[3:], "more_body": False}


def test_logged_path_stays_on_its_line(caplog: pytest.LogCaptureFixture) -> None:
    """A path enters the log decoded: a line break in it would forge a line."""
    Called("/v1/fleet/x\nINFO vindr: may connect" + "y" * 9000, {})
    (text,) = caplog.messages
    assert "\n" not in text
    assert len(text) < 400


async def read_body(scope: Any, receive: Any, send: Any) -> None:
    """An application as Flower's: it answers also when the client seems to be gone."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body"})


@contextmanager
def serve_gate(
    most: int = 128,
    members: dict[bytes, str] | None = None,
    now: Callable[[], datetime.datetime] = lambda: NOW,
    **tls: Any,
) -> Iterator[int]:
    """The port of a server on loopback, as `federation server` configures it, with room for so many members."""
    from chestfed.leaves.federation.flower.door import Door, DoorServer
    from chestfed.leaves.federation.flower.superlink import configure_http

    door = Door(most)
    door.listen("127.0.0.1", 0)
    limits: Any = {"seconds": 0.2, "admit": door.admit, "cut": door.cut}
    gate = Gate(read_body, "secret", 1000, members if members is not None else {}, now=now, **limits)
    server = DoorServer(configure_http(gate, lifespan="off", **tls), door)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield door.sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join(30)


@pytest.fixture(scope="module")
def chest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A federation's folder, with certificates."""
    folder = tmp_path_factory.mktemp("gate") / "chest"
    create(folder, "chest", "localhost:9443")
    return folder


def tls_of(chest: Path) -> dict[str, Any]:
    return {"ssl_certfile": chest / "server.crt", "ssl_keyfile": chest / "private" / "server.key"}


def say_hello(port: int, chest: Path) -> int:
    """The status that a member gets over TLS."""
    headers = {name: value.decode() for name, value in signed().items()}
    context = ssl.create_default_context(cafile=str(chest / "authority.crt"))
    url = f"https://localhost:{port}{HELLO}"
    return httpx.get(url, headers=headers, verify=context, timeout=30, trust_env=False).status_code


def test_silent_connections_leave_room(chest: Path) -> None:
    """1,100 of one address, the hospital's own: beyond 128 the oldest are closed, with TLS or without."""
    members = {keys.public_bytes(KEY.public_key()): "anne"}
    with serve_gate(members=members, **tls_of(chest)) as port, contextlib.ExitStack() as stack:
        context = ssl.create_default_context(cafile=str(chest / "authority.crt"))
        silent = list[socket.socket]()
        for number in range(1100):
            plain = socket.create_connection(("127.0.0.1", port), timeout=30)
            silent.append(stack.enter_context(plain))
            if number % 20 == 0:
                with contextlib.suppress(OSError):  # closed in its handshake by those that came after it
                    silent[-1] = stack.enter_context(context.wrap_socket(plain, server_hostname="localhost"))
        assert say_hello(port, chest) == 200
        assert sum(map(is_open, silent)) <= 128
        assert is_open(silent[-1])


def is_open(connection: socket.socket) -> bool:
    connection.settimeout(0.001)
    try:
        return connection.recv(1) != b""
    except TimeoutError:
        return True
    except OSError:
        return False


@contextmanager
def connect_tls(port: int, chest: Path) -> Iterator[ssl.SSLSocket]:
    context = ssl.create_default_context(cafile=str(chest / "authority.crt"))
    with socket.create_connection(("127.0.0.1", port), timeout=30) as plain:
        yield context.wrap_socket(plain, server_hostname="localhost")


def headers_of(method: str, headers: dict[str, bytes]) -> bytes:
    lines = [f"{method} {FLEET} HTTP/1.1".encode(), b"host: x"]
    return b"\r\n".join([*lines, *(name.encode() + b": " + value for name, value in headers.items()), b"", b""])


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_nothing_is_read_after_a_refusal(chest: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """The end of TLS would read on, for as long as it may take; what is lost here is what buffers of TCP hold."""
    from chestfed.leaves.federation.flower import door

    monkeypatch.setattr(door, "GOODBYE_SECONDS", 60.0)
    more = {"content-length": b"60000000000"} if method == "POST" else {}
    with serve_gate(**tls_of(chest)) as port, connect_tls(port, chest) as secure:
        secure.sendall(headers_of(method, more))
        assert b" 401 " in secure.recv(100)
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 64:
                secure.sendall(bytes(2**20))
                sent += 1
        assert sent < 32


def test_slow_body_ends_its_connection(chest: Path) -> None:
    """A byte now and then: the connection ends, not just the request."""
    members = {keys.public_bytes(KEY.public_key()): "anne"}
    with serve_gate(members=members, **tls_of(chest)) as port, connect_tls(port, chest) as secure:
        secure.sendall(headers_of("POST", signed() | {"content-length": b"1000"}))
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 300:
                secure.sendall(b"a")
                sent += 1
                time.sleep(0.1)
        assert sent < 300
        assert say_hello(port, chest) == 200


def test_tls_has_a_time_limit(chest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from chestfed.leaves.federation.flower import door

    monkeypatch.setattr(door, "HANDSHAKE_SECONDS", 0.5)
    with serve_gate(**tls_of(chest)) as port:
        for first in (b"", b"\x16\x03\x01\x02\x00\x01\x00"):
            with socket.create_connection(("127.0.0.1", port), timeout=30) as plain:
                plain.sendall(first)
                with contextlib.suppress(ConnectionError):
                    assert plain.recv(100) == b""


def test_members_beyond_the_room_are_refused(chest: Path) -> None:
    members = {keys.public_bytes(KEY.public_key()): "anne"}
    with serve_gate(0, members, **tls_of(chest)) as port:
        assert say_hello(port, chest) == 503


LIMITED = """
import resource, sys
from chestfed.core.errors import ConfigError
from chestfed.leaves.federation.flower.door import require_open_files

soft, hard = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
try:
    require_open_files(256)
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
except ConfigError as error:
    print(error.kind)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
@pytest.mark.parametrize(
    ("soft", "hard", "found"), [(256, 2000, "640"), (1000, 2000, "1000"), (256, 256, "open files")]
)
def test_open_files_suffice_or_are_refused(soft: int, hard: int, found: str) -> None:
    words = [sys.executable, "-c", LIMITED, str(soft), str(hard)]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == found


def test_occupied_port_is_named() -> None:
    from chestfed.leaves.federation.flower.door import Door

    with serve_gate() as port, assert_refused(ConfigError, kind="address"):
        Door(8).listen("127.0.0.1", port)


def test_refusals_are_bounded_by_the_hour(caplog: pytest.LogCaptureFixture) -> None:
    from chestfed.leaves.federation.allowance import MOST, Allowance, Hourly

    now = [0.0]
    log, hourly = logging.getLogger("chestfed.leaves.federation.strangers"), Hourly(Allowance(clock=lambda: now[0]))
    log.addFilter(hourly)
    try:
        for _ in range(5000):
            Called(FLEET, {})
        now[0] = 3600.0
        Called(FLEET, {})
    finally:
        log.removeFilter(hourly)
    assert len(caplog.messages) == MOST + 1
    assert "4,900" in caplog.messages[-1]


@pytest.mark.parametrize("name", ["chestfed.leaves.federation.members", "flwr"])
def test_lines_of_members_are_bounded(name: str) -> None:
    from chestfed.leaves.federation.allowance import MOST

    program = (
        "import logging; from chestfed.leaves.federation.flower.superlink import _log_plainly; _log_plainly();"
        f"[logging.getLogger({name!r}).error('refused') for _ in range(300)]"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.count("refused") == MOST


def test_header_without_end_is_refused() -> None:
    """Others are answered meanwhile; httptools, uvicorn's default, would join its parts for minutes."""
    with serve_gate() as port, socket.create_connection(("127.0.0.1", port), timeout=30) as plain:
        plain.sendall(b"GET /health HTTP/1.1\r\nx: ")
        sent = 0
        with contextlib.suppress(OSError):
            for _ in range(200):
                plain.sendall(b"a" * 2**16)
                sent += 2**16
        assert sent < 100 * 2**16
        reply = httpx.get(f"http://127.0.0.1:{port}{FLEET}", timeout=30, trust_env=False)
        assert reply.status_code == 401


def test_slow_header_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the second one of a connection, and one that never begins."""
    from chestfed.leaves.federation.flower import door

    monkeypatch.setattr(door, "HEADER_SECONDS", 0.5)
    for first in (b"", b"GET /chestfed/other HTTP/1.1\r\nhost: x\r\n"):
        with serve_gate() as port, socket.create_connection(("127.0.0.1", port), timeout=30) as plain:
            plain.sendall(first)
            with contextlib.suppress(ConnectionError):
                assert plain.recv(100) == b""


class Table:
    """Flower's nodes, of whom one cannot be registered."""

    def __init__(self) -> None:
        self.known: dict[bytes, str] = {}

    def register(self, key: bytes, name: str) -> int:
        if name == "bad":
            raise ValueError(name)
        self.known[key] = name
        return len(self.known)

    def unregister(self, number: int, key: bytes) -> None:
        del self.known[key]


def test_one_bad_member_stops_no_other(tmp_path: Path) -> None:
    from chestfed.leaves.federation.flower.superlink import Roster

    names = ("anne", "bad", "vindr")
    (tmp_path / "keys").mkdir()
    for name in names:
        keys.save_public_key(tmp_path / "keys" / f"{name}.pub", keys.new_key())
    nodes: Any = Table()
    federation = Federation(tmp_path, FederationFile(federation="test", address="localhost:9443"))
    roster = Roster(federation, nodes)
    roster.update()
    assert sorted(roster.names.values()) == ["anne", "vindr"]
    moved = (tmp_path / "keys" / "anne.pub").read_bytes()
    (tmp_path / "keys" / "anne.pub").unlink()
    roster.update()
    assert list(roster.names.values()) == ["vindr"]
    (tmp_path / "keys" / "anne.pub").write_bytes(moved)
    roster.update()
    assert sorted(roster.names.values()) == ["anne", "vindr"]


def test_unusable_key_stops_no_other(tmp_path: Path) -> None:
    """Refused by name where it is added; a file that is copied by hand holds up neither members nor removals."""
    from chestfed.leaves.federation.flower.superlink import Roster

    create(tmp_path / "chest", "chest", "localhost:9443")
    federation, bad = read_federation(tmp_path / "chest"), tmp_path / "bad.pub"
    bad.write_bytes(compressed(keys.new_key()))
    with assert_refused(ConfigError, kind="not a key", file=str(bad)):
        add(federation.folder, "anne", bad)
    for name in ("anne", "bert"):
        keys.save_public_key(federation.keys / f"{name}.pub", keys.new_key())
    nodes: Any = Table()
    roster = Roster(federation, nodes)
    roster.update()
    shutil.copy(bad, federation.keys / "aaron.pub")
    (federation.keys / "bert.pub").unlink()
    roster.update()
    assert list(roster.names.values()) == ["anne"]


def compressed(key: keys.Key) -> bytes:
    """A public key as OpenSSH writes it, with half of its point."""
    public = key.public_key()
    point = public.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint)
    parts = (b"ecdsa-sha2-nistp384", b"nistp384", point)
    return parts[0] + b" " + base64.b64encode(b"".join(len(part).to_bytes(4, "big") + part for part in parts)) + b"\n"


def test_one_key_for_two_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that is copied by hand; when the server starts, and while it runs."""
    from chestfed.leaves.federation.flower.superlink import Roster, serve

    create(tmp_path / "chest", "chest", "localhost:9443")
    federation, key = read_federation(tmp_path / "chest"), keys.new_key()
    for name in ("anne", "bert"):
        keys.save_public_key(federation.keys / f"{name}.pub", key)
    with assert_refused(ConfigError, kind="key in use", name="bert"):
        serve(federation, insecure=False)
    keys.save_public_key(federation.keys / "bert.pub", keys.new_key())
    nodes: Any = Table()
    roster = Roster(federation, nodes)
    roster.update()
    assert sorted(roster.names.values()) == ["anne", "bert"]
    keys.save_public_key(federation.keys / "cara.pub", key)
    for _ in range(3):
        roster.update()
    assert list(roster.names.values()) == ["bert"]
    assert sum("one key" in text for text in caplog.messages) == 1


def test_key_that_comes_back_is_admitted() -> None:
    """Flower refuses a key that a node had before: `federation remove`, and later `add`."""
    from chestfed.leaves.federation.flower.interior import Nodes, make_superlink

    nodes = Nodes(make_superlink(signed=True))
    first = nodes.register(b"key", "anne")
    nodes.unregister(first, b"key")
    second = nodes.register(b"key", "anne")
    assert nodes.statuses([second]) == {"anne": "registered"}


def test_old_key_is_used_until_the_new_is_known(chest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`federation rekey`, a restart, `federation add --replace`."""
    from chestfed.leaves.federation.flower import connection
    from chestfed.leaves.federation.flower import node as nodes
    from chestfed.leaves.federation.hospital.taking_part import explain_end

    commands, members = list[list[str]](), dict[bytes, str]()

    def start(words: list[str], **more: object) -> SimpleNamespace:
        commands.append(words)
        return SimpleNamespace(poll=lambda: 0)

    monkeypatch.setattr(nodes, "subprocess", SimpleNamespace(STDOUT=None, Popen=start))
    with serve_gate(members=members, now=lambda: datetime.datetime.now(datetime.UTC), **tls_of(chest)) as port:
        join(tmp_path / "anne", "anne", f"localhost:{port}", chest / "authority.crt")
        hospital = read_hospital(tmp_path / "anne")
        members[pem_of(hospital.path("key"))] = "anne"
        rekey(hospital.folder)
        node = nodes.Node(hospital, insecure=False)
        assert node.keep_alive() is None
        (note,) = connection.check_connection(hospital, insecure=False)
        assert "anne.pub" in note
        assert explain_end(hospital, 0, insecure=False).startswith(note)
        members.clear()
        with pytest.raises(connection.ConnectionFault) as caught:
            connection.check_connection(hospital, insecure=False)
        assert (caught.value.kind, hospital.old_key.exists()) == ("unknown key", True)
        members[pem_of(hospital.path("key"))] = "anne"
        assert node.keep_alive() == nodes.REKEYED
        assert explain_end(hospital, nodes.REKEYED, insecure=False) != explain_end(hospital, 0, insecure=False)
        assert node.keep_alive() == 0
        assert not hospital.old_key.exists()
    files = [Path(words[words.index("--auth-supernode-private-key") + 1]) for words in commands]
    assert files == [hospital.old_key, hospital.path("key"), hospital.path("key")]


def pem_of(file: Path) -> bytes:
    return keys.public_bytes(keys.read_key(file).public_key())


def test_watchdog_bites_an_idle_node() -> None:
    from chestfed.leaves.federation.hospital import taking_part

    clock, answers = Clock(), iter(["offline", "online", "offline", "", "offline", "offline", "offline"])
    watchdog, bites = taking_part.Watchdog(lambda: next(answers), clock.monotonic), list[bool]()
    for _ in range(7):
        clock.sleep(taking_part.WATCH)
        bites.append(watchdog.bites())
        assert not watchdog.bites()  # the server is asked now and then
    assert bites == [False, False, False, False, False, True, False]


def test_watchdog_waits_longer_each_time() -> None:
    from chestfed.leaves.federation.hospital import taking_part

    clock, status = Clock(), "registered"
    watchdog, bites = taking_part.Watchdog(lambda: status, clock.monotonic), list[int]()
    for second in range(31):
        status = "online" if second == 14 else "registered"
        clock.sleep(taking_part.WATCH)
        bites += [second] * watchdog.bites()
    assert bites == [1, 5, 13, 16, 20, 28]


LIVING = """
import sys, threading, time
from chestfed.leaves.federation.flower import interior, node

def fail(sign_of_life):
    threading.Thread(target=time.sleep, args=(600,)).start()  # as Flower's thread for HTTP
    raise OSError("an error of TLS")

interior.run_supernode = fail
sys.argv = ["node", str(__import__("os").getppid())]
node.main()
"""


def test_node_ends_with_its_main_thread() -> None:
    ended = subprocess.run([sys.executable, "-c", LIVING], timeout=300, capture_output=True, check=False)
    assert ended.returncode == 1
    assert b"an error of TLS" in ended.stderr


def test_node_holds_no_training_code() -> None:
    """Twenty hospitals on one machine: their nodes carry messages, for which PyTorch is 270 MiB too many."""
    program = "import sys, chestfed.leaves.federation.flower.interior, chestfed.leaves.federation.flower.node\n"
    program += "import flwr.supernode.cli\nprint(sorted({'torch', 'pandas', 'cv2', 'pyarrow'} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", program], timeout=300, capture_output=True, check=True, text=True)
    assert ended.stdout.strip() == "[]"


LOSING = """
import logging, signal, sys
from chestfed.leaves.federation.flower import interior, node

def lose(sign_of_life):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # as Flower's
    log = logging.getLogger("flwr")
    log.addHandler(interior.EndWithLostMessage())
    log.error("Connection attempt failed")
    print("lives", flush=True)
    log.error("Failed to receive message %s: %s", "x", "an error of TLS")
    print("lives on", flush=True)

interior.run_supernode = lose
sys.argv = ["node", str(__import__("os").getppid())]
node.main()
"""


def test_node_ends_with_a_lost_message() -> None:
    """Flower's would go on, counted as online, and the study wait for an answer to what never arrived."""
    from flwr.supernode import start_client_internal

    from chestfed.leaves.federation.flower.interior import EndWithLostMessage
    from chestfed.leaves.federation.flower.node import LOST

    ended = subprocess.run([sys.executable, "-c", LOSING], timeout=300, capture_output=True, check=False, text=True)
    assert (ended.returncode, ended.stdout.split("\n")[0]) == (LOST, "lives")
    assert "lives on" not in ended.stdout
    source = inspect.getsource(start_client_internal)
    assert all(f'"{text} %s: %s"' in source for text in EndWithLostMessage.TEXTS)
