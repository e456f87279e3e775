"""Worker processes end with their parent, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PARENT = """
import multiprocessing, sys, time
from concurrent.futures import ProcessPoolExecutor
from chestfed.workers import start_worker

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(2, mp_context=context, initializer=start_worker)
    futures = [pool.submit(time.sleep, 0.2) for _ in range(2)]
    for future in futures:
        future.result()
    print(*pool._processes, flush=True)
    time.sleep(600)
"""


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_workers_of_a_killed_parent_end(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    parent = subprocess.Popen([sys.executable, str(tmp_path / "parent.py")], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    workers = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(workers) == 2
    assert all(map(is_running, workers))
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 30
    while any(map(is_running, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, workers))


def test_the_pools_of_the_package_start_their_workers_so() -> None:
    """A pool without the initializer would leave orphans."""
    import chestfed

    users = [
        file
        for file in Path(chestfed.__file__).parent.rglob("*.py")
        if "ProcessPoolExecutor(" in file.read_text(encoding="utf-8")
    ]
    assert len(users) == 3
    for file in users:
        assert file.read_text(encoding="utf-8").count("initializer=start_worker") == 1, file
