"""The page is served as long as the command runs, and no longer."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chestfed.app.commands.machine.ui import ui
from chestfed.core.errors import ChestfedError
from chestfed.reports.tracking.store import create_store
from tests.cases import assert_refused
from tests.command_line import call

SERVER = """
import subprocess, sys, time
from pathlib import Path
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(900)"])
Path(sys.argv[1]).write_text(str(worker.pid))
time.sleep(900)
"""
SLOW_SERVER = """
import sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
while not Path(sys.argv[2]).exists():
    time.sleep(0.01)
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
COMMAND = "import os, sys; from chestfed.app.commands.machine.ui import serve; serve(sys.argv[1:], dict(os.environ))"


def is_there(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks Linux for its processes")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_command_leaves_no_server(tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "worker"
    command = subprocess.Popen(
        [sys.executable, "-c", COMMAND, sys.executable, "-c", SERVER, str(file)],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored in the background
    )
    try:
        until = time.monotonic() + 300
        while not (file.exists() and file.read_text()) and time.monotonic() < until:
            time.sleep(0.05)
        worker = int(file.read_text())
        assert is_there(worker)
        os.kill(command.pid, number)
        assert command.wait(300) != 0
        until = time.monotonic() + 300
        while is_there(worker) and time.monotonic() < until:
            time.sleep(0.05)
        assert not is_there(worker)
    finally:
        command.kill()


@pytest.mark.slow
def test_broken_store_or_taken_port_refused(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("not a database")
    result = call("ui", "--out", tmp_path)
    assert result.code == 1
    assert "mlflow.db: MLflow cannot open it: (sqlite3.DatabaseError) file is not a database" in result.err
    whole = tmp_path / "whole"
    whole.mkdir()
    create_store(whole / "mlflow.db")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with assert_refused(ChestfedError, "port in use", port=port):
            ui(whole, port)


def test_address_is_shown_once_it_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server here answers after the command has asked it in vain."""
    create_store(tmp_path / "mlflow.db")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    asked, shown = [], []
    real = http.client.HTTPConnection.request

    def request(connection: http.client.HTTPConnection, *words: str) -> None:
        asked.append(words)
        real(connection, *words)

    def answer(console: object, text: str, **about: object) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        real(connection, "GET", "/health")
        shown.append((text, connection.getresponse().status, len(asked)))
        raise KeyboardInterrupt

    popen = subprocess.Popen
    late = [sys.executable, "-c", SLOW_SERVER, str(port), str(tmp_path / "go")]
    monkeypatch.setattr(subprocess, "Popen", lambda command, **how: popen(late, **how))
    monkeypatch.setattr(http.client.HTTPConnection, "request", request)
    monkeypatch.setattr("chestfed.app.commands.machine.ui.time.sleep", lambda seconds: (tmp_path / "go").touch())
    monkeypatch.setattr("chestfed.app.commands.machine.ui.show_answer", answer)
    with pytest.raises(KeyboardInterrupt):
        ui(tmp_path, port)
    ((text, status, times),) = shown
    assert f"http://127.0.0.1:{port}" in text
    assert status == 200
    assert times >= 2
