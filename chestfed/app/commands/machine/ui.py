"""`chestfed ui`."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer

from chestfed.core.console import open_console, say, show_answer
from chestfed.core.errors import ChestfedError, first_line

_HOST: Final = "127.0.0.1"
#: Seconds that a server may take to end.
_SECONDS: Final = 10


def ui(
    out: Annotated[Path, typer.Option(help="Output folder of the studies.")] = Path("runs"),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on this machine.")] = 5000,
) -> None:
    """Start MLflow's web page on this machine for the studies in an output folder. Ctrl-C stops it.

    Example:

        chestfed ui --out runs --port 5001
    """
    if not (out / "mlflow.db").exists():
        text = f"{out} has no MLflow store yet: run `chestfed study` first, or give its --out folder"
        raise ChestfedError(text, kind="no store", folder=str(out))
    from chestfed.reports.tracking.store import find_page, local_store

    try:
        address = f"http://{_HOST}:{port}{find_page(local_store(out))}"
    except Exception as error:  # MLflow's, or its database's: of another version, locked, or damaged
        raise ChestfedError(f"{out / 'mlflow.db'}: MLflow cannot open it: {first_line(error)}") from None
    try:
        socket.create_server((_HOST, port)).close()
    except OSError as error:
        text = f"port {port} of this machine cannot be used: {error.strerror}. "
        text += f"Take a free one, such as --port {_find_port()}, or stop the program that uses it"
        raise ChestfedError(text, kind="port in use", port=port) from None
    say(open_console(), "MLflow is starting; Ctrl-C stops it")
    artifacts = (out / "mlflow-artifacts").resolve().as_uri()
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", local_store(out)]
    command += ["--default-artifact-root", artifacts, "--host", _HOST, "--port", str(port)]
    command += ["--workers", "1"]  # one reader: more processes would only start later and take more memory
    command += ["--uvicorn-opts", "--log-level warning"]  # not a line per request
    # Runners of MLflow's own jobs, which evaluate language models, would be several more processes.
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    quiet |= {"MLFLOW_LOGGING_LEVEL": "WARNING", "PYTHONWARNINGS": "ignore"}

    def show_when_ready(server: subprocess.Popen[bytes]) -> None:
        if _wait_for_answer(port, server):
            show_answer(open_console(), f"MLflow on {address}", address=address)

    status = serve(command, {**os.environ, **quiet}, show_when_ready)
    if status not in (0, -signal.SIGINT, -signal.SIGTERM, 130):
        raise ChestfedError(f"MLflow stopped with status {status}", kind="server stopped", status=status)


def _find_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.create_server((_HOST, 0)) as free:
        return int(free.getsockname()[1])


def _wait_for_answer(port: int, server: subprocess.Popen[bytes]) -> bool:
    """Wait until the page of a server answers, or the server has ended; returns whether it answers."""
    while server.poll() is None:
        connection = http.client.HTTPConnection(_HOST, port, timeout=_SECONDS)
        try:
            connection.request("GET", "/health")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            time.sleep(0.1)
        else:
            return True
        finally:
            connection.close()
    return False


def serve(
    command: list[str],
    environment: dict[str, str],
    when_started: Callable[[subprocess.Popen[bytes]], None] = lambda server: None,
) -> int:
    """Run a server until it ends, and return its status. Whatever ends this process but a kill (-9) ends the server.

    `when_started` is called with the server's process once it has been started. A server is several processes: on POSIX
    they are a group of their own, which is ended as a whole.
    """
    before = signal.signal(signal.SIGTERM, _leave)
    server = subprocess.Popen(command, env=environment, start_new_session=os.name != "nt")
    try:
        when_started(server)
        return server.wait()
    finally:
        signal.signal(signal.SIGTERM, before)
        _stop(server, signal.SIGTERM)
        try:
            server.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            _stop(server, signal.SIGKILL if os.name != "nt" else signal.SIGTERM)


def _leave(number: int, _: object) -> None:
    sys.exit(128 + number)


def _stop(server: subprocess.Popen[bytes], number: int) -> None:
    if os.name == "nt":
        server.terminate()
        return
    with contextlib.suppress(ProcessLookupError):  # all of them have ended
        os.killpg(server.pid, number)
