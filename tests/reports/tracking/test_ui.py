"""The page is served as long as the command runs, and no longer."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chestfed.reports.tracking.store import create_store
from tests.command_line import call

SERVER = """
import subprocess, sys, time
from pathlib import Path
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(900)"])
Path(sys.argv[1]).write_text(str(worker.pid))
time.sleep(900)
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
        result = call("ui", "--out", whole, "--port", port)
    assert result.code == 1
    assert f"port {port} of this machine cannot be used" in result.err
