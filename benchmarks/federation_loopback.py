"""The sample hospitals and a server as processes of this machine, over TLS on loopback; they can be killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from chestfed._version import __version__
from chestfed.federation.founding import found

ROOT = Path(__file__).parents[1]
SERVER, RUN = "server", "run"


class Loopback:
    """A federation in `home`, with `synthetic_hospitals`. A process is called `server`, `run`, or by its hospital."""

    def __init__(self, home: Path, hospitals: Sequence[str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.home, self.hospitals, self.folder = home, tuple(hospitals), home / "federation"
        found(self.folder, "loopback", f"localhost:{port}", hospitals, __version__, home / "synthetic_hospitals")
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._words = {name: ["federation", "hospital", str(self.folder / "hospitals" / name)] for name in hospitals}
        self._words[SERVER] = ["federation", "server", str(self.folder)]

    def study(self, pipeline: Path, words: Sequence[str]) -> None:
        """What `run` is from now on: `chestfed federation run` with these further words."""
        self._words[RUN] = ["federation", "run", str(pipeline), "--federation", str(self.folder), *words]

    def start(self, name: str) -> None:
        """Start a process; what it prints is appended to `NAME.log`."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        with (self.home / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", "chestfed", *self._words[name]],
                cwd=self.home,
                env=environment,
                stdout=log,
                stderr=log,
            )

    def kill(self, name: str) -> None:
        """End a process at once, as `kill -9`; its children end with it by themselves."""
        self._running[name].send_signal(signal.SIGKILL)
        self._running.pop(name).wait()

    def ended(self, name: str) -> int | None:
        """The exit status of a process; None while it runs."""
        return self._running[name].poll()

    def look(self, name: str) -> dict[str, float]:
        """Resident memory in MiB and open files of a process, its children included."""
        try:
            process = psutil.Process(self._running[name].pid)
            family = [process, *process.children(recursive=True)]
            mib = sum(one.memory_info().rss for one in family) / 2**20
            return {"mib": round(mib, 1), "files": sum(one.num_fds() for one in family)}
        except (psutil.Error, KeyError):  # it ends just now
            return {}

    def close(self) -> None:
        """End all."""
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def loopback(
    home: Path, hospitals: Sequence[str], prepare: Callable[[Loopback], object] = lambda federation: None
) -> Iterator[Loopback]:
    """A server and these hospitals, started after `prepare`; sample images are written first if `home` has none."""
    if not (home / "synthetic_hospitals").exists():
        samples = [sys.executable, "-m", "chestfed", "samples", "--size", "tiny"]
        subprocess.run(samples, cwd=home, check=True, stdout=subprocess.DEVNULL)
    federation = Loopback(home, hospitals)
    prepare(federation)
    try:
        for name in (SERVER, *hospitals):
            federation.start(name)
        yield federation
    finally:
        federation.close()
