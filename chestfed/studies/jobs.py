"""`chestfed study --jobs N`: several studies, or several models of one, at a time, each in a process of its own.

A process trains its study, its K or a hospital's own data, and writes the run folder. The command's own process shows
how far each is and, when one is done, runs it again: everything is found in the folder, and MLflow has one writer.
"""

from __future__ import annotations

import os
import queue
import signal
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from operator import methodcaller

from chestfed.core.errors import ChestfedError, ChestfedWarning, ConfigError
from chestfed.core.plugins import find_fault
from chestfed.core.processes import stopping
from chestfed.core.processes.workers import WorkerContext, end_with_parent
from chestfed.learning.engines.declaration import IN_PROCESS
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.running import Executor, Job, Studies, refuse_failed, train
from chestfed.studies.training.assemble import Deployment
from chestfed.studies.training.reporting import Reporters, StepReporter, current, warn
from chestfed.studies.training.run import StudyResult, run_study, train_alone, train_k

#: A job's label; a bar to show, or a warning; and how it ended: "" is well, None: it has not.
_Shown = tuple[str, int, int, str, str]
_Message = tuple[str, _Shown | str | None, str | None]
#: Seconds that the processes of an interrupted command have to save their state.
_GRACE = 60.0


class Jobs(Executor):
    """Several studies, or several K of one, at a time."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once

    def check(self, studies: Studies) -> None:
        pipeline = studies.pipeline
        if len(studies.variants) == 1 and len(pipeline.k) == 1 and not _trains_alone(pipeline):
            raise ConfigError(
                f"--jobs {self.at_once}: this is a single run. --jobs needs several K, seeds, methods, windows or "
                "held-out sites"
            )
        refuse_engine(studies)
        WorkerContext().preload("chestfed.studies.preloaded")

    def __call__(self, jobs: Sequence[Job], deployment: Deployment) -> list[StudyResult]:
        several = f"{len(jobs)} studies" if len(jobs) > 1 else _count_models(jobs[0].experiment.pipeline)
        text = f"{several}, {self.at_once} at a time"
        current().tell(lambda reporter: reporter.divided(text))
        if len(jobs) > 1:
            return train(jobs, run_jobs(jobs, self.at_once), deployment)
        return train(jobs, jobs, deployment, partial(run_models, jobs[0], self.at_once))


def _trains_alone(pipeline: Pipeline) -> bool:
    """Whether hospitals train models of their own data."""
    return pipeline.alternatives is not None and pipeline.alternatives.own_data


def _count_models(pipeline: Pipeline) -> str:
    return f"{len(pipeline.k)} K{' and own data' if _trains_alone(pipeline) else ''}"


def refuse_engine(studies: Studies) -> None:
    """Raise `ConfigError` if the clients of one study are in several processes already."""
    if studies.engine.name != IN_PROCESS.name:
        text = f"--jobs and --cluster train each study in one process: not with engine {studies.engine.name}"
        raise ConfigError(text)


class _Sender(StepReporter):
    """Sends what has progressed to the command's process."""

    def __init__(self, label: str, messages: Queue[_Message]) -> None:
        self._label, self._messages = label, messages

    def progressed(self, name: str, done: int, total: int, note: str = "", unit: str = "") -> None:
        name = name.removesuffix(f": {self._label}")  # `stage 2: K=4` of the job K=4
        self._messages.put((self._label, (f"{self._label}: {name}", done, total, note, unit), None))


def run_jobs(jobs: Sequence[Job], at_once: int) -> Iterator[Job]:
    """Train all jobs, `at_once` at a time, and yield each when it is done.

    Raises `ChestfedError` after all have ended, if some failed: which, and why. The others are finished.
    """
    context = WorkerContext()
    messages: Queue[_Message] = context.Queue()
    waiting, running, failed = list(jobs), dict[str, BaseProcess](), dict[str, str]()
    by_label = {job.label: job for job in jobs}
    places = list(range(at_once))
    held: dict[str, int] = {}
    try:
        while waiting or running:
            while waiting and places:
                job = waiting.pop(0)
                held[job.label] = places.pop(0)
                local_job = replace(job, experiment=job.experiment.at(held[job.label]))
                process = context.Process(target=_work, args=(local_job, messages))
                process.start()
                running[job.label] = process
            label, shown, ended = _next(messages, running)
            if isinstance(shown, str):
                warn(f"{label}: {shown}")
            elif shown is not None:
                current().tell(methodcaller("progressed", *shown))
            if ended is None:
                continue
            running.pop(label).join()
            places.append(held.pop(label))
            if ended:
                failed[label] = ended
                warn(f"{label} failed: {ended}")
            else:
                yield by_label[label]
    finally:
        _stop(running.values())
    refuse_failed(failed, len(jobs))


def run_models(job: Job, at_once: int, ks: Sequence[int], hospitals: Sequence[str]) -> None:
    """Train the K of a study and the hospitals' own data, `at_once` at a time; what takes longest begins.

    The largest K is first, and makes stage 1, for which the other K would wait; hospitals have a stage 1 of their own.

    Raises as `run_jobs`.
    """
    models = [replace(job, label=f"K={k}", k=k) for k in sorted(ks, reverse=True)]
    models[1:1] = [replace(job, label=f"{name}, own data", hospital=name) for name in hospitals]
    for _ in run_jobs(models, at_once):
        pass


def _next(messages: Queue[_Message], running: dict[str, BaseProcess]) -> _Message:
    """The next message, or one for a process that has ended without a word."""
    while True:
        with suppress(queue.Empty):
            return messages.get(timeout=0.5)
        for label, process in running.items():
            if not process.is_alive():  # and it sent nothing: killed, or out of memory
                with suppress(queue.Empty):
                    return messages.get(timeout=0.5)
                return label, None, f"its process ended with exit code {process.exitcode}"


def _work(job: Job, messages: Queue[_Message]) -> None:
    """Train one study, or one K of it; runs in a process of its own."""
    end_with_parent()
    stopping.ignore_signals()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the parent's word alone, else a terminal's Ctrl-C would be a second
    _send_warnings(job.label, messages)
    job.experiment.machine.take()
    try:
        about = (job.experiment, job.name, job.out)
        reporters = Reporters([_Sender(job.label, messages)])
        with stopping.handle_signals():
            if job.k is not None:
                train_k(*about, job.k, reporters)
            elif job.hospital is not None:
                train_alone(*about, job.hospital, reporters)
            else:
                run_study(*about, reporters)
        ended = ""
    except stopping.Stopped:
        ended = "stopped"
    except ChestfedError as error:
        ended = str(error)
    except Exception as error:
        if ended := find_fault(error):
            return
        ended = f"{type(error).__name__}: {error}"
        raise  # with the traceback on stderr: it is a bug
    finally:
        messages.put((job.label, None, ended))


def _send_warnings(label: str, messages: Queue[_Message]) -> None:
    """Send warnings to the command's process, without the folder of the code that Python would print."""

    def send(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        ours = issubclass(category, ChestfedWarning) or category is UserWarning
        messages.put((label, f"{'warning' if ours else category.__name__}: {message}", None))

    warnings.simplefilter("default", ChestfedWarning)
    warnings.showwarning = send


def _stop(processes: Iterable[BaseProcess]) -> None:
    """End what still runs: the command was interrupted, or has failed."""
    alive = [process for process in processes if process.is_alive()]
    for number in (process.pid for process in alive if process.pid is not None):
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGTERM)
    for process in alive:
        process.join(_GRACE)
        process.kill()
