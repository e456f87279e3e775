"""What a hospital does when Flower loses an answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from chestfed.federation.parcels import Parcel

line = pytest.importorskip("chestfed.federation.flower.line", reason="needs chestfed[flower]", exc_type=ImportError)


class Client:
    """A node that has two messages."""

    def __init__(self) -> None:
        self.tasks = ["first", "second"]
        self.closed = 0

    def AcquireTask(self, request: Any) -> Any:
        token = self.tasks.pop(0) if self.tasks else ""
        return SimpleNamespace(HasField=lambda name: bool(token), token=token)

    def close(self) -> None:
        self.closed += 1


def test_hospital_survives_lost_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

    client, heart, delivered = Client(), SimpleNamespace(start=lambda: None, stop=lambda: None), list[str]()
    answers = iter([Parcel({"answer": "lost"}), Parcel({"answer": "delivered"})])

    def push(client: Any, message: Any, context: Any) -> None:
        if "lost" in message:
            raise ObjectPushError("object", 1, "session")
        delivered.append(message)

    monkeypatch.setattr(line, "RuntimeHttpClient", SimpleNamespace(from_server_address=lambda *a, **k: client))
    monkeypatch.setattr(line, "_make_heartbeat", lambda client: heart)
    monkeypatch.setattr(line, "pull_task_input", lambda client: (SimpleNamespace(content=None), None, None, None))
    monkeypatch.setattr(line, "from_record", lambda content, sender: Parcel({}))
    monkeypatch.setattr(line, "to_record", lambda parcel: parcel.values["answer"])
    monkeypatch.setattr(line, "Message", lambda content, reply_to: content)
    monkeypatch.setattr(line, "push_message", push)
    monkeypatch.setattr(line, "push_task_output", lambda *words: None)
    monkeypatch.setattr(line, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda seconds: None))
    line.answer_messages(1, b"secret", lambda question: next(answers), lambda: not client.tasks)
    assert delivered == ["delivered"]
    assert client.closed == 3
