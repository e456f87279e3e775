"""`python -m chestfed.leaves.federation.flower.node`: Flower's SuperNode as a child of `chestfed federation hospital`.

It keeps the connection to the server while its parent trains, and ends with its parent, however that ends.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, SupportsIndex

from chestfed.leaves.federation.keys import read_secret

if TYPE_CHECKING:  # the child, of which a hospital has one, holds neither PyTorch nor pandas
    from chestfed.leaves.federation.settings import Hospital

#: Most seconds between two looks for messages or two tries to connect, and between two signs of life, of which the
#: server misses two before it takes the node for gone. Flower's 3 and 30 would make a round longer, and a hospital that
#: was killed wait for a minute.
LOOK, SIGN_OF_LIFE = 1.0, 15
#: Exit status of a node that has lost a message on the way; and, in its place, of one that is followed by a node with
#: another key.
LOST, REKEYED = 3, -1000
#: Memory of a message goes back to the system at once (glibc): one that only carries does not need it again soon.
LEAN = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "1000000"}
#: Nothing is sent to Flower's makers, and no release is looked up.
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}


class Node:
    """The child process, started again whenever it ends; `port` and `secret` are those of its loopback interface."""

    def __init__(self, hospital: Hospital, *, insecure: bool) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="chestfed-node-")
        self.secret = secrets.token_bytes(32)
        file = Path(self._folder.name) / "secret"
        file.touch(mode=0o600)
        file.write_bytes(self.secret)
        self.port = hospital.file.port or _free_port()
        tls = ["--insecure"] if insecure else ["--root-certificates", str(hospital.path("authority"))]
        self._hospital, self._insecure, self._key = hospital, insecure, ""
        self._command = [
            *(sys.executable, "-m", "chestfed.leaves.federation.flower.node", str(os.getpid())),
            *("--superlink", hospital.file.server, *tls),
            *("--isolation", "process", "--host", "127.0.0.1", "--port", str(self.port)),
            *("--superexec-auth-secret-file", str(file)),
        ]
        self._log = hospital.path("state") / "node.log"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None

    def keep_alive(self) -> int | None:
        """Start the child if it is not running; the exit status of one that has ended since the last call."""
        from chestfed.leaves.federation.flower.connection import choose_key

        ended = None if self._process is None else self._process.poll()
        if self._process is None or ended is not None:
            former, file = self._key, choose_key(self._hospital, insecure=self._insecure)
            self._key = read_secret(file)
            command = [*self._command, "--auth-supernode-private-key", str(file)]
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    command, stdout=log, stderr=subprocess.STDOUT, env={**LEAN, **os.environ, **QUIET}
                )
            if ended is not None and former != self._key:
                return REKEYED
        return ended

    def restart(self) -> None:
        """End the child, which lives and does not work; `keep_alive` starts it again."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._folder.cleanup()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Run the SuperNode; the first argument is the parent's process number, the others are Flower's."""
    parent = int(sys.argv.pop(1))
    os.environ.update(QUIET)
    from chestfed.leaves.federation.flower.interior import EndWithLostMessage, run_supernode

    sleep = time.sleep

    def nap(seconds: float | SupportsIndex) -> None:
        sleep(min(float(seconds), LOOK))

    time.sleep = nap  # between Flower's looks, and its tries to connect
    threading.Thread(target=_end_with, args=(parent, sleep), daemon=True).start()
    status = 1
    try:
        run_supernode(SIGN_OF_LIFE)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:  # after an error of TLS, say, Flower's main thread ends, and others keep the process for ever
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(LOST if EndWithLostMessage.lost else status)


def _end_with(parent: int, sleep: Callable[[float], None]) -> None:
    """End this process when its parent has ended, however that ended."""
    while os.getppid() == parent:
        sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)  # Flower tells the server
    sleep(10.0)
    os._exit(1)


if __name__ == "__main__":
    main()
