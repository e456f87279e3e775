"""Worker processes: one thread each, none outlives its parent; a long list of jobs on several.

They are not forks of the parent, which may have threads, and do not import its main module: a script that uses
chestfed needs no `if __name__ == "__main__":`, and does not run again in each of them. On Linux they are forks of one
server, which has imported once what all of them need; elsewhere each is spawned.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.processes import stopping

if sys.platform == "linux":
    from multiprocessing.context import ForkServerContext as _Context
    from multiprocessing.context import ForkServerProcess as _Process
else:
    from multiprocessing.context import SpawnContext as _Context
    from multiprocessing.context import SpawnProcess as _Process

Job = TypeVar("Job")
Result = TypeVar("Result")

_STARTING = threading.Lock()
_PRELOADED: list[str] = []
_IS_WORKER = threading.Event()


class _Worker(_Process):
    """A process that leaves the parent's main module alone, and has its environment as it is now."""

    _environment: dict[str, str] | None = None

    def start(self) -> None:
        """Start the process."""
        self._environment = dict(os.environ)  # a server has that of its own start
        super().start()

    def run(self) -> None:
        """Run in the process."""
        if self._environment is not None and self._environment != os.environ:
            os.environ.clear()
            os.environ.update(self._environment)
        super().run()

    @staticmethod
    def _Popen(process_obj: BaseProcess) -> Any:
        with _hide_main_module(), stopping.block_signals():  # Ctrl-C is the parent's, while it imports too
            return _Process._Popen(process_obj)

    def terminate(self) -> None:
        """Called when another worker has died: this one ignores SIGTERM, and its result is not read."""
        self.kill()


class WorkerContext(_Context):
    """Starts processes that do not import the parent's main module."""

    Process = _Worker

    def preload(self, *modules: str) -> None:
        """Have these modules imported once for all processes to come, beginning now; the first call counts.

        Without it what is imported once is the module of the first work of `parallel_map`.
        """
        if sys.platform == "linux" and not _PRELOADED:
            from multiprocessing import forkserver, resource_tracker

            _PRELOADED.extend(modules)
            resource_tracker.ensure_running()  # which unblocks signals once it runs
            with _hide_main_module(), stopping.block_signals():
                self.set_forkserver_preload(_PRELOADED)
                forkserver.ensure_running()


@contextmanager
def _hide_main_module() -> Iterator[None]:
    """While a process is started its main module looks empty, so that the process has none to import."""
    with _STARTING:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


def start_worker() -> None:
    """Initializer of every process pool.

    The processes share the cores already, so OpenCV gets one thread. Signals that ask to end are the parent's alone.
    """
    import cv2

    _IS_WORKER.set()
    stopping.ignore_signals()
    cv2.setNumThreads(1)
    end_with_parent()


def end_with_parent() -> None:
    """End this process when its parent ends: one that is killed outright cannot stop its children itself."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), name="parent's end", daemon=True).start()


@contextmanager
def limit_time(seconds: float) -> Iterator[None]:
    """End this process after so many seconds, if `parallel_map` has started it, which reports the job and continues.

    Code in C that keeps Python's lock lets no thread and no signal handler of Python stop it; `faulthandler` can.
    """
    if not _IS_WORKER.is_set():
        yield
        return
    with Path(os.devnull).open("w") as nowhere:
        faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def cores() -> int:
    """Processor cores that this process may use: of a Slurm job or a container those that it was given."""
    from joblib import cpu_count  # costs as much as 0.2 s

    try:
        return int(cpu_count())
    except ValueError:
        raise ConfigError(
            f"LOKY_MAX_CPU_COUNT: '{os.environ.get('LOKY_MAX_CPU_COUNT')}' is not a number",
            kind="not a number",
            variable="LOKY_MAX_CPU_COUNT",
        ) from None


def parallel_map(
    work: Callable[[Job], Result],
    jobs: Sequence[Job],
    workers: int | None = None,
    *,
    small: int = 64,
    chunk: int = 8,
    what: str = "this",
    crashed: Callable[[Job], Result] | None = None,
) -> Generator[Result]:
    """The results of the jobs, in their order, from `workers` processes (default: one per core).

    Fewer than `small` jobs, or one worker, run in this process, as do all jobs in a process that multiprocessing
    started: it may not have children. At most four chunks per worker are in flight.

    Parameters
    ----------
    work
        Importable from a module, and not from the main one: it is sent to spawned processes.
    crashed
        The result of a job that ends its process (a library that crashes on a damaged file, or no memory); without
        it such a job ends everything.

    Raises
    ------
    ChestfedError
        If a job ended its process.
    """
    alone = len(jobs) < small or multiprocessing.parent_process() is not None
    workers = 1 if alone else workers or cores()
    if workers == 1:
        yield from map(work, jobs)
        return
    WorkerContext().preload(getattr(work, "func", work).__module__)
    chunks = [jobs[start : start + chunk] for start in range(0, len(jobs), chunk)]
    done = 0
    while done < len(chunks):
        try:
            for results in _run_pool(partial(_run_all, work), chunks[done:], workers):
                done += 1
                yield from results
        except BrokenProcessPool:
            if crashed is None or not _can_start():
                text = "a worker process ended unexpectedly, perhaps for lack of memory. Fewer workers need less"
                raise ChestfedError(f"{what}: {text}", kind="worker ended") from None
            # Which of the chunks in flight did it is not known: each goes alone, then all on as before.
            for part in chunks[done : done + 4 * workers]:
                yield from _run_alone(work, part, crashed)
                done += 1


def _run_pool(
    work: Callable[[Sequence[Job]], list[Result]], chunks: Sequence[Sequence[Job]], workers: int
) -> Iterator[list[Result]]:
    with ProcessPoolExecutor(workers, mp_context=WorkerContext(), initializer=start_worker) as pool:
        waiting: deque[Future[list[Result]]] = deque()
        try:
            for part in chunks:
                waiting.append(pool.submit(work, part))
                if len(waiting) >= 4 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _run_all(work: Callable[[Job], Result], jobs: Sequence[Job]) -> list[Result]:
    return [work(job) for job in jobs]


def _can_start() -> bool:
    """Whether a worker process can be started at all."""
    try:
        return next(_run_pool(partial(_run_all, bool), [[1]], 1)) == [True]
    except BrokenProcessPool:
        return False


def _run_alone(work: Callable[[Job], Result], jobs: Sequence[Job], crashed: Callable[[Job], Result]) -> list[Result]:
    """Jobs in a process of their own; if that ends, each in one of its own."""
    try:
        return next(_run_pool(partial(_run_all, work), [jobs], 1))
    except BrokenProcessPool:
        if len(jobs) == 1:
            return [crashed(jobs[0])]
        return [result for job in jobs for result in _run_alone(work, [job], crashed)]
