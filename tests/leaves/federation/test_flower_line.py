"""What a hospital does when Flower loses an answer, and how much of Flower's interior is used."""

from __future__ import annotations

import ast
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from chestfed.core.errors import ChestfedError
from chestfed.learning.engines.messages.wire import Packed
from chestfed.leaves.federation.parcels import Parcel, Undelivered
from chestfed.leaves.federation.settings import read_federation
from tests.leaves.federation.straight_line import Clock

line = pytest.importorskip(
    "chestfed.leaves.federation.flower.line", reason="needs chestfed[flower]", exc_type=ImportError
)


class LostError(Exception):
    """As Flower has many."""


class Node:
    """A node that has two messages, and loses the answer to the first."""

    def __init__(self) -> None:
        self.waiting, self.delivered, self.open = ["first", "second"], list[str](), 0

    @contextmanager
    def tasks(self, kind: str, secret: bytes) -> Iterator[Any]:
        yield SimpleNamespace(take=lambda: self.waiting.pop(0) if self.waiting else None)

    @contextmanager
    def hold(self, token: str, patience: float) -> Iterator[Any]:
        def push(messages: list[str]) -> None:
            if token == "first":
                raise LostError
            self.delivered += messages

        question = SimpleNamespace(content=None, has_error=lambda: False)
        self.open += 1
        try:
            yield SimpleNamespace(pull_messages=lambda tickets: [question], push_messages=push)
        finally:
            self.open -= 1


def test_hospital_survives_lost_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    node, answers = Node(), iter([Parcel({"answer": "lost"}), Parcel({"answer": "delivered"})])
    monkeypatch.setattr(line, "from_record", lambda content, sender: Parcel({}))
    monkeypatch.setattr(line, "to_record", lambda parcel: parcel.values["answer"])
    monkeypatch.setattr(line, "Message", lambda content, reply_to: content)
    line.answer_messages(node, b"secret", lambda question: next(answers), lambda: not node.waiting)
    assert (node.delivered, node.open) == (["delivered"], 0)


ECHO = """
import sys
from pathlib import Path
from chestfed.leaves.federation.flower.interior import Interfaces
from chestfed.leaves.federation.flower.line import answer_messages
from chestfed.leaves.federation.flower.node import Node
from chestfed.leaves.federation.parcels import Parcel, Undelivered
from chestfed.leaves.federation.settings import read_hospital

def echo(parcel):
    return Parcel({"to": "me"}, parcel.packed)

node = Node(read_hospital(Path(sys.argv[1])), insecure=False)
interfaces = Interfaces(f"127.0.0.1:{node.port}", None)
answer_messages(interfaces, node.secret, echo, lambda: node.keep_alive() == -1)
"""


@pytest.mark.slow
def test_parcels_cross_a_server(tmp_path: Path) -> None:
    """A server and a hospital over TLS, which answers what it was asked."""
    server = line.locate_server
    with run_processes(tmp_path, [sys.executable, "-c", ECHO, str(tmp_path / "anne")]) as federation:
        carrier = line.FlowerLine(server(federation, insecure=False))
        while "anne" not in wait_for(carrier.online):
            pass
        for size in (10, 2_000_000):  # one piece, and several
            numbers = {"float32": np.arange(size, dtype=np.float32)}
            ticket = carrier.send("anne", Parcel({}, Packed(b"head", numbers)), 100.0)
            replies = dict[str, Any]()
            while not replies:
                replies = carrier.receive([ticket])
            assert replies[ticket].values == {"to": "me"}
            assert replies[ticket].packed.header == b"head"
            assert np.array_equal(replies[ticket].packed.arrays["float32"], numbers["float32"])
        carrier.close()


@contextmanager
def run_processes(home: Path, hospital: list[str]) -> Iterator[Any]:
    """A server, and a hospital by this command."""
    from chestfed.leaves.federation.server.founding import add, create, join

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"localhost:{probe.getsockname()[1]}"
    create(home / "server", "echo", address)
    public, _ = join(home / "anne", "anne", address, home / "server" / "authority.crt")
    add(home / "server", "anne", public)
    words = [sys.executable, "-m", "chestfed", "federation", "server", str(home / "server")]
    processes = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in (words, hospital)]
    try:
        yield read_federation(home / "server")
    finally:
        for process in processes:
            process.terminate()
            process.wait()


def wait_for(look: Callable[[], dict[str, str]]) -> dict[str, str]:
    """Who is online; nobody while the server starts."""
    try:
        return look()
    except (ChestfedError, line.httpx.HTTPError):
        return {}


def test_message_of_an_ended_run_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from chestfed.leaves.federation.flower import interior

    clock, here = Clock(), [True, False, False, True, False, False]
    monkeypatch.setattr(interior, "time", clock)
    client: Any = SimpleNamespace(PullObject=lambda request: SimpleNamespace(object_available=here.pop(0)))
    interior.limit_patience(client, 10.0)
    for _ in range(5):
        client.PullObject(None)
        clock.sleep(4.0)  # 12 seconds from part to part are too long, 8 are not
    clock.sleep(4.0)
    with pytest.raises(Undelivered):
        client.PullObject(None)


def test_one_module_uses_flowers_interior() -> None:
    package, private = Path(line.__file__).parents[3], dict[str, set[str]]()
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            module = str(node.module) if isinstance(node, ast.ImportFrom) else ""
            if module.startswith("flwr.") and module not in ("flwr.app", "flwr.serverapp"):
                private.setdefault(file.name, set()).add(module)
    assert list(private) == ["interior.py"]
    assert len(private["interior.py"]) < 11
