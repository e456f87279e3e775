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

from chestfed.leaves.federation.server.founding import create

ROOT = Path(__file__).parents[3]
SERVER, RUN = "server", "run"


class Loopback:
    """A federation in `home`, with `synthetic_hospitals`. A process is called `server`, `run`, or by its hospital."""

    def __init__(self, home: Path, hospitals: Sequence[str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.home, self.hospitals, self.folder = home, tuple(hospitals), home / "federation"
        create(self.folder, "loopback", f"localhost:{port}", home / "synthetic_hospitals")
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

    def process(self, name: str) -> int:
        """The number of a process."""
        return self._running[name].pid

    def look(self, name: str) -> dict[str, float]:
        """Resident memory in MiB and open files of a process, its children included."""
        try:
            family = [Path("/proc") / number for number in list_family(str(self._running[name].pid))]
            pages = sum(int((entry / "statm").read_text().split()[1]) for entry in family)
            files = sum(len(list((entry / "fd").iterdir())) for entry in family)
            return {"mib": round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1), "files": files}
        except (OSError, KeyError):  # it ends just now
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


def list_family(process: str) -> Iterator[str]:
    """The numbers of a process and of all that it has started, on Linux."""
    yield process
    for file in Path("/proc", process, "task").glob("*/children"):
        for child in file.read_text().split():
            yield from list_family(child)


@contextmanager
def loopback(
    home: Path,
    hospitals: Sequence[str],
    prepare: Callable[[Loopback], object] = lambda federation: None,
    present: Sequence[str] | None = None,
) -> Iterator[Loopback]:
    """A server and these hospitals, or those `present`, started after `prepare`; sample images if `home` has none."""
    if not (home / "synthetic_hospitals").exists():
        samples = [sys.executable, "-m", "chestfed", "samples", "--size", "tiny"]
        subprocess.run(samples, cwd=home, check=True, stdout=subprocess.DEVNULL)
    federation = Loopback(home, hospitals)
    prepare(federation)
    try:
        for name in (SERVER, *(hospitals if present is None else present)):
            federation.start(name)
        yield federation
    finally:
        federation.close()
