"""What a hospital does when Flower loses an answer, and how much of Flower's interior is used."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chestfed.federation.parcels import Parcel

line = pytest.importorskip("chestfed.federation.flower.line", reason="needs chestfed[flower]", exc_type=ImportError)


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
    def hold(self, token: str) -> Iterator[Any]:
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


def test_one_module_uses_flowers_interior() -> None:
    package, private = Path(line.__file__).parents[2], dict[str, set[str]]()
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            module = str(node.module) if isinstance(node, ast.ImportFrom) else ""
            if module.startswith("flwr.") and module not in ("flwr.app", "flwr.serverapp"):
                private.setdefault(file.name, set()).add(module)
    assert list(private) == ["interior.py"]
    assert len(private["interior.py"]) < 10
