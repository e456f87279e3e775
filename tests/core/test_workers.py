"""Worker processes end with their parent, however it ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.processes.workers import cores, limit_time, parallel_map
from tests.cases import assert_refused
from tests.core.worker_jobs import (
    blocks_interrupts,
    double,
    double_or_end,
    double_or_stick,
    gone,
    large_or_end,
    results_of_a_child,
)

PARENT = """
import multiprocessing, sys, time
from concurrent.futures import ProcessPoolExecutor
from chestfed.core.processes.workers import start_worker

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(2, mp_context=context, initializer=start_worker)
    futures = [pool.submit(time.sleep, 0.2) for _ in range(2)]
    for future in futures:
        future.result()
    print(*pool._processes, flush=True)
    time.sleep(900)
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
    deadline = time.monotonic() + 300
    while any(map(is_running, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, workers))


def test_pools_start_workers_alike() -> None:
    """A pool without the initializer would leave orphans."""
    import chestfed

    users = [
        file
        for file in Path(chestfed.__file__).parent.rglob("*.py")
        if "ProcessPoolExecutor(" in file.read_text(encoding="utf-8")
    ]
    assert {file.name for file in users} == {"workers.py"}
    for file in users:
        assert file.read_text(encoding="utf-8").count("initializer=start_worker") == 1, file


def test_results_keep_the_order_of_jobs() -> None:
    jobs = list(range(100))
    assert (
        list(parallel_map(double, jobs, 2, small=1)) == list(parallel_map(double, jobs, 1)) == [2 * job for job in jobs]
    )


def test_crashed_job_is_reported() -> None:
    jobs = [*range(3, 11), *range(50, 74)]  # sixteen chunks; after the first crash eight of them go alone
    expected = [-job if job % 50 == 7 else 2 * job for job in jobs]
    assert list(parallel_map(double_or_end, jobs, 2, small=1, chunk=2, crashed=gone)) == expected


@pytest.mark.slow
def test_slow_job_is_reported() -> None:
    jobs = list(range(54, 60))
    expected = [-job if job == 57 else 2 * job for job in jobs]
    assert list(parallel_map(double_or_stick, jobs, 2, small=1, chunk=3, crashed=gone)) == expected
    with limit_time(1e-3):  # not in a process of somebody else
        time.sleep(0.1)


@pytest.mark.slow
def test_crash_spares_large_results() -> None:
    results = list(parallel_map(large_or_end, range(20), 2, small=1, chunk=4, crashed=lambda _: b""))
    assert [number for number, result in enumerate(results) if not result] == [5]


def test_unhandled_crash_is_an_error() -> None:
    with assert_refused(ChestfedError, "worker ended"):
        list(parallel_map(double_or_end, list(range(10)), 2, small=1))


@pytest.mark.slow
def test_script_without_main_guard_runs_once(tmp_path: Path) -> None:
    script = (
        "from tests.core.worker_jobs import blocks_interrupts, double, double_or_end, gone\n"
        "from chestfed.core.processes.workers import parallel_map\n"
        "print('started')\n"
        "for work in (double, double_or_end):\n"
        "    print(sum(parallel_map(work, list(range(8)), 2, small=1, chunk=4, crashed=gone)))\n"
    )
    (tmp_path / "script.py").write_text(script)
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert result.stdout.split() == ["started", "56", str(56 - 3 * 7)], result.stderr


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals cannot be blocked here")
def test_interrupt_does_not_reach_a_worker() -> None:
    assert set(parallel_map(blocks_interrupts, [0, 1], 2, small=1)) == {True}
    assert not blocks_interrupts(0)


def test_foreign_pool_process_works_alone() -> None:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(results_of_a_child, ([1, 2, 3],)) == [2, 4, 6]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no CPU sets")
def test_only_assigned_cores_count(monkeypatch: pytest.MonkeyPatch) -> None:
    given = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(given)})
    try:
        assert cores() == 1
    finally:
        os.sched_setaffinity(0, given)
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    assert cores() == 1
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "x")
    with assert_refused(ConfigError, "not a number", variable="LOKY_MAX_CPU_COUNT"):
        cores()
