"""Where the running study stands, for `status`, `stop` and Prometheus: one small file in the federation's folder."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError

from chestfed.core.bundled import install_command
from chestfed.core.checkpoint import write_json
from chestfed.core.config import StrictModel
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.training.loop import History
from chestfed.studies.training.reporting import Reporter

FILE = "running.json"
#: Events after which the study waits for a hospital, or the server.
WAITING = ("away", "late", "undelivered", "waits", "failed", "lost")


class Running(StrictModel, frozen=False):
    """The file: which study, since when, where it is, and by hospital the event for which it waits, with its time."""

    title: str
    process: int
    since: str
    stage_1: list[int] | None = None  #: finished steps, and all
    k: int | None = None
    round: int = 0
    rounds: int
    waits_for: dict[str, list[str]] = Field({})


class Progress(Reporter):
    """Writes the file on every event, and removes it at the end; with a port it also serves metrics on loopback.

    Raises
    ------
    ConfigError
        If metrics are asked for and prometheus_client is not installed, or the port is taken.
    """

    name = "the file of the running study"

    def __init__(self, folder: Path, pipeline: Pipeline, port: int | None = None) -> None:
        self._file, self._metrics = folder / FILE, None if port is None else _Metrics(port)
        self._about = Running(title=pipeline.title, process=os.getpid(), since=_now(), rounds=pipeline.federated.rounds)

    @property
    def port(self) -> int | None:
        """Where metrics are served, on loopback; None: nowhere."""
        return None if self._metrics is None else self._metrics.port

    def __enter__(self) -> Self:
        self._write()
        return self

    def __exit__(self, *error: object) -> None:
        self._file.unlink(missing_ok=True)

    def pretraining(self, step: int, steps: int, loss: float) -> None:
        """See `Reporter`."""
        self._about.waits_for, self._about.stage_1 = {}, [step, steps]
        self._write()

    def k_started(self, k: int) -> None:
        """See `Reporter`."""
        self._about.k, self._about.round = k, 0
        self._write()

    def round_done(self, k: int, history: History, rounds: int) -> None:
        """See `Reporter`."""
        about = self._about
        about.waits_for, about.k, about.round, about.rounds = {}, k, len(history), rounds
        self._write()
        if self._metrics is not None:
            self._metrics.count_round(k, history)

    def event(self, hospital: str, event: str, details: str) -> None:
        """Take in an event of the conversation with the hospitals."""
        waits = self._about.waits_for
        if event in WAITING:
            waits[hospital] = [f"{event}{f' ({details})' if details else ''}", _now()]
        else:
            waits.pop(hospital, None)
        self._write()
        if self._metrics is not None:
            self._metrics.count_event(hospital, event, waits)

    def _write(self) -> None:
        write_json(self._file, self._about.model_dump())


class _Metrics:
    """Gauges and counters of prometheus_client."""

    def __init__(self, port: int) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
        except ImportError:
            raise ConfigError(f"--metrics: {install_command('metrics')}", kind="no prometheus_client") from None
        registry = CollectorRegistry()
        self._k = Gauge("chestfed_k", "Hospitals that train together.", registry=registry)
        self._round = Gauge("chestfed_round", "Finished rounds of this K.", registry=registry)
        self._loss = Gauge("chestfed_loss", "Mean loss of the last round.", registry=registry)
        self._up = Counter("chestfed_bytes_up", "Bytes of updates.", registry=registry)
        self._down = Counter("chestfed_bytes_down", "Bytes of models.", registry=registry)
        self._events = Counter("chestfed_events", "Events by hospital.", ["hospital", "event"], registry=registry)
        self._waits = Gauge("chestfed_waits_for", "1: the study waits for it.", ["hospital"], registry=registry)
        try:
            self.port = start_http_server(port, addr="127.0.0.1", registry=registry)[0].server_port
        except OSError as error:
            raise ConfigError(f"--metrics {port}: {error.strerror}; choose another port", kind="port taken") from None

    def count_round(self, k: int, history: History) -> None:
        last = history[-1]
        self._k.set(k)
        self._round.set(len(history))
        self._loss.set(last["loss"])
        self._up.inc(last["bytes_up"])
        self._down.inc(last["bytes_down"])
        self._waits.clear()

    def count_event(self, hospital: str, event: str, waits: Mapping[str, object]) -> None:
        self._events.labels(hospital, event).inc()
        self._waits.labels(hospital).set(hospital in waits)


def read_progress(folder: Path) -> Running | None:
    """Where the running study of a federation stands; None: none runs on this machine.

    Raises
    ------
    ConfigError
        If the file is damaged.
    """
    file = folder / FILE
    if not file.exists():
        return None
    try:
        progress = Running.model_validate_json(file.read_bytes())
        os.kill(progress.process, 0)
    except ValidationError:
        raise ConfigError(f"{file}: damaged; delete it", kind="damaged file", file=str(file)) from None
    except ProcessLookupError:  # it was killed
        return None
    return progress


def stop_study(folder: Path) -> str:
    """Ask the running study to stop where it can be resumed; its title.

    Raises
    ------
    ChestfedError
        If none runs on this machine.
    """
    progress = read_progress(folder)
    if progress is None:
        raise ChestfedError(f"{folder}: no study of this federation is running on this machine", kind="no study")
    os.kill(progress.process, signal.SIGTERM)
    return progress.title


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
