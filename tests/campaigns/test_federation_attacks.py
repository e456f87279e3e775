"""What the server of a federation refuses: attacks on a server over TLS on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import resource
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs chestfed[flower]")
pytest.importorskip("httpx", reason="needs chestfed[flower]")

import httpx
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest, RegisterNodeFleetRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from chestfed.core.bundled import bundled
from chestfed.core.errors import ChestfedError
from chestfed.leaves.federation import keys
from chestfed.leaves.federation.flower.line import locate_server
from chestfed.leaves.federation.flower.records import RAW, from_record
from chestfed.leaves.federation.server.founding import add, create, join
from chestfed.leaves.federation.settings import Federation, Hospital, read_federation, read_hospital
from tests.leaves.federation.loopback import RUN, SERVER, loopback
from tests.studies.training.tiny_studies import SMALL

pytestmark = pytest.mark.campaign
Attack = Callable[[Federation], str]


@contextmanager
def run_server(home: Path) -> Iterator[Federation]:
    """A server with one hospital."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"localhost:{probe.getsockname()[1]}"
        probe.close()
        folder = home / "attacked"
        create(folder, "attacked", address)
        public, _ = join(home / "anne", "anne", address, folder / "authority.crt")
        add(folder, "anne", public)
        federation = read_federation(folder)
        command = [sys.executable, "-m", "chestfed", "federation", "server", str(folder)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        (home / "pid").write_text(str(server.pid))
        try:
            for _ in range(240):
                time.sleep(0.5)
                try:
                    locate_server(federation, insecure=False).nodes()
                    break
                except ChestfedError:
                    pass
            yield federation
        finally:
            server.terminate()
            server.wait()


def connect_client(federation: Federation, key: keys.Key) -> FleetHttpClient:
    """A hospital's side of the connection, with any key."""
    sign = NodeAuthHttpInterceptor(key, key.public_key())
    return FleetHttpClient.from_server_address(
        federation.local_address, False, federation.authority.read_bytes(), interceptors=[sign]
    )


def read_status(send: Callable[[], object]) -> str:
    """The refusal of a request, or that there was none."""
    try:
        send()
    except httpx.HTTPStatusError as error:
        return f"HTTP {error.response.status_code}"
    except (httpx.TransportError, ssl.SSLError) as error:
        return f"{type(error).__name__}: {str(error)[:60]}"
    return "NOT REFUSED"


def other_authority(federation: Federation) -> str:
    """A hospital that trusts another authority does not talk to this server."""
    return read_status(lambda: httpx.get(f"https://{federation.local_address}/health"))


def plain_text(federation: Federation) -> str:
    """HTTP without TLS."""
    return read_status(lambda: httpx.get(f"http://{federation.local_address}/health").raise_for_status())


def no_key(federation: Federation) -> str:
    """A request to the hospitals' interface without a signature."""
    context = ssl.create_default_context(cafile=str(federation.authority))
    headers = {"content-type": PROTOBUF_MEDIA_TYPE}
    content = PullMessagesRequest(node=Node(node_id=1)).SerializeToString()
    url = f"https://{federation.local_address}/v1/fleet/pull-messages"
    return read_status(lambda: httpx.post(url, content=content, headers=headers, verify=context).raise_for_status())


def unknown_key(federation: Federation) -> str:
    """A node with a key that the federation's file does not list."""
    key = keys.new_key()
    mine = public_key_to_bytes(key.public_key())
    with connect_client(federation, key) as client:
        return read_status(lambda: client.ActivateNode(ActivateNodeRequest(public_key=mine, heartbeat_interval=30)))


def registers_itself(federation: Federation) -> str:
    """The same node tries to have its key listed."""
    key = keys.new_key()
    mine = public_key_to_bytes(key.public_key())
    with connect_client(federation, key) as client:
        return read_status(lambda: client.RegisterNode(RegisterNodeFleetRequest(public_key=mine)))


def as_operator(route: str) -> Attack:
    """A request to an interface that only the operator may use."""

    def attack(federation: Federation) -> str:
        context = ssl.create_default_context(cafile=str(federation.authority))
        url = f"https://{federation.local_address}{route}"
        return read_status(lambda: httpx.post(url, content=b"", verify=context).raise_for_status())

    return attack


def raw(headers: bytes) -> Attack:
    """A request whose headers alone are sent."""

    def attack(federation: Federation) -> str:
        host, port = federation.local_address.split(":")
        context = ssl.create_default_context(cafile=str(federation.authority))
        plain = socket.create_connection((host, int(port)), timeout=20)
        with plain, context.wrap_socket(plain, server_hostname=host) as secure:
            secure.sendall(b"POST /v1/fleet/push-object HTTP/1.1\r\nhost: x\r\n" + headers + b"\r\n\r\n")
            answer = secure.recv(100).split(b"\r\n")[0].decode()
        return "NOT REFUSED" if " 200 " in answer else answer.replace("/1.1", "")

    return attack


def endless_header(federation: Federation) -> str:
    """A header of 100 MiB that does not end; others must be answered meanwhile."""
    host, port = federation.local_address.split(":")
    context, sent = ssl.create_default_context(cafile=str(federation.authority)), 0
    plain = socket.create_connection((host, int(port)), timeout=60)
    with plain, context.wrap_socket(plain, server_hostname=host) as secure, contextlib.suppress(OSError):
        secure.sendall(b"GET /health HTTP/1.1\r\nx: ")
        while sent < 100:
            secure.sendall(b"a" * 2**20)
            sent += 1
    began = time.monotonic()
    locate_server(federation, insecure=False).nodes()
    seconds = time.monotonic() - began
    return "ended" if sent < 100 and seconds < 10 else f"NOT REFUSED: {sent} MiB, answered after {seconds:.1f} s"


def make_record(array: Array) -> RecordDict:
    """A hospital's message with this array."""
    text = ConfigRecord({"json": json.dumps({"values": {}, "header": ""})})
    return RecordDict({"text": text, "numbers": ArrayRecord({array.dtype: array})})


def payload(record: Callable[[], RecordDict]) -> Attack:
    """A message that reached the study."""

    def attack(federation: Federation) -> str:
        try:
            from_record(record(), "anne")
        except ChestfedError as error:
            return error.kind
        return "NOT REFUSED"

    return attack


#: Attack -> what it does, and how the refusal begins.
ATTACKS: dict[str, tuple[Attack, str]] = {
    "wrong authority": (other_authority, "ConnectError: [SSL: CERTIFICATE_VERIFY_FAILED]"),
    "no TLS": (plain_text, "RemoteProtocolError"),
    "no node key": (no_key, "HTTP 401"),
    "unknown node key": (unknown_key, "HTTP 401"),
    "unknown node registers itself": (registers_itself, "HTTP 401"),
    "registers a node by the operator's interface": (as_operator("/v1/control/register-node"), "HTTP 403"),
    "starts a run": (as_operator("/v1/control/start-run"), "HTTP 403"),
    "takes the study's task": (as_operator("/v1/runtime/acquire-task"), "HTTP 403"),
    "message of 10 GB announced": (raw(b"content-length: 10000000000"), "HTTP 401"),
    "message of unknown length": (raw(b"transfer-encoding: chunked"), "HTTP 401"),
    "header without end": (endless_header, "ended"),
    "pickle as bytes": (
        payload(lambda: make_record(Array("float32", (1,), "pickle", pickle.dumps(np.zeros(1, np.float32))))),
        "foreign numbers",
    ),
    "array of objects": (payload(lambda: make_record(Array(np.zeros(1, "float32")))), "foreign numbers"),
    "array that announces 10 GB": (
        payload(lambda: make_record(Array("float32", (2_500_000_000,), RAW, b"0000"))),
        "foreign numbers",
    ),
    "foreign records": (payload(lambda: RecordDict({"text": ConfigRecord({"json": "{}"})})), "foreign records"),
}


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A server with one hospital; after all attacks it must still answer its operator."""
    with run_server(tmp_path_factory.mktemp("server")) as federation:
        yield federation
        assert locate_server(federation, insecure=False).nodes() is not None


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused(federation: Federation, name: str) -> None:
    attack, refusal = ATTACKS[name]
    outcome = attack(federation)
    assert outcome.startswith(refusal), outcome


def test_stalled_uploads_take_no_memory(federation: Federation) -> None:
    """Sixteen uploads of 60 MiB without a key, which are sent as far as the server takes them and never finished."""

    def resident() -> float:
        pages = Path("/proc", (federation.folder.parent / "pid").read_text(), "statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20

    before, held = resident(), list[ssl.SSLSocket]()
    host, port = federation.local_address.split(":")
    context = ssl.create_default_context(cafile=str(federation.authority))
    for _ in range(16):
        secure = context.wrap_socket(socket.create_connection((host, int(port)), timeout=5), server_hostname=host)
        secure.sendall(b"POST /v1/fleet/push-object HTTP/1.1\r\nhost: x\r\ncontent-length: 62914560\r\n\r\n")
        with contextlib.suppress(OSError):
            for _ in range(60):
                secure.sendall(bytes(2**20))
        held.append(secure)
    grown = resident() - before
    for secure in held:
        secure.close()
    assert grown < 100


def test_faults_of_a_connection_are_named(federation: Federation, tmp_path: Path) -> None:
    from chestfed.leaves.federation.flower import connection

    home = federation.folder.parent / "anne"
    anne = read_hospital(home)
    assert connection.check_connection(anne, insecure=False) == []

    def read_kind(hospital: Hospital) -> str:
        with pytest.raises(connection.ConnectionFault) as caught:
            connection.check_connection(hospital, insecure=False)
        return caught.value.kind

    def changed(**values: str) -> Hospital:
        return Hospital(home, anne.file.model_copy(update=values))

    keys.save_key(tmp_path / "other.key", keys.new_key())
    assert read_kind(changed(key=str(tmp_path / "other.key"))) == "unknown key"
    assert read_kind(changed(hospital="bert")) == "name"
    create(tmp_path / "other", "other", "localhost:1")
    assert read_kind(changed(authority=str(tmp_path / "other" / "authority.crt"))) == "another authority"
    assert read_kind(changed(server="localhost:1")) == "not there"


#: Connections that send nothing, those of them that complete TLS, open files that the server begins with, and seconds
#: after which closed connections are opened again.
SILENT, IN_TLS, FILES, AGAIN = 1200, 100, 512, 10.0


class Crowd:
    """Connections that send nothing, opened again if they were closed, until it is stopped."""

    def __init__(self, port: int, authority: Path) -> None:
        self.opened, self._stopped = 0, threading.Event()
        self._port, self._context = port, ssl.create_default_context(cafile=str(authority))
        self._thread = threading.Thread(target=self._stand, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _stand(self) -> None:
        held: list[socket.socket | None] = [None] * SILENT
        while not self._stopped.is_set():
            for place, connection in enumerate(held):
                if connection is None or is_closed(connection):
                    with contextlib.suppress(OSError):
                        held[place] = self._open(in_tls=place % (SILENT // IN_TLS) == 0)
                        self.opened += 1
            self._stopped.wait(AGAIN)
        for connection in filter(None, held):
            connection.close()

    def _open(self, *, in_tls: bool) -> socket.socket:
        plain = socket.create_connection(("localhost", self._port), timeout=5)
        connection = self._context.wrap_socket(plain, server_hostname="localhost") if in_tls else plain
        connection.setblocking(False)
        return connection


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True


def test_silent_connections_stop_no_study(tmp_path: Path) -> None:
    """1,200 of them, of the hospitals' own address, from before hospitals connect to the end of the study."""
    hospitals = ("chexpert", "padchest", "vindr")
    sites = "".join(f"  - config: {name}.yaml\n" for name in hospitals)
    base = bundled("pipelines") / "source_addition_samples.yaml"
    (tmp_path / "study.yaml").write_text(f"extends: {base}\ntitle: Crowd\nsites:\n{sites}k: [3]\n")
    settings = [word for setting in SMALL for word in ("--set", setting)]
    with loopback(tmp_path, hospitals, present=()) as federation:
        server = federation.process(SERVER)
        resource.prlimit(server, resource.RLIMIT_NOFILE, (FILES, 4096))  # before it raises its limit
        address = read_federation(federation.folder).local_address
        wait_for_port(address)
        crowd = Crowd(int(address.rpartition(":")[2]), federation.folder / "authority.crt")
        time.sleep(5)
        for name in hospitals:
            federation.start(name)
        federation.study(tmp_path / "study.yaml", ["--out", "runs", "--no-tracking", *settings])
        federation.start(RUN)
        began = time.monotonic()
        while federation.ended(RUN) is None:
            assert time.monotonic() < began + 900, "the study does not end"
            time.sleep(1)
        crowd.stop()
        assert federation.ended(RUN) == 0
        assert crowd.opened > SILENT
        assert len(list(Path("/proc", str(server), "fd").iterdir())) < FILES


def wait_for_port(address: str) -> None:
    """Until the server listens."""
    host, _, port = address.rpartition(":")
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=5):
            return
        time.sleep(0.2)
    raise AssertionError(address)
