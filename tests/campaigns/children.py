"""Commands in forks of one process that has imported everything: a command starts at once, and can be killed."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import pytest

from chestfed.app.cli import main
from tests.studies.training.test_damage import SAME, study_in
from tests.studies.training.tiny_studies import SETTINGS

STUDY = ("study", *(word for setting in SETTINGS for word in ("--set", setting)))
T = TypeVar("T")


@dataclass(frozen=True)
class Campaign:
    """Where commands run, and the output folder of an undisturbed study there."""

    home: Path
    sound: Path


def sample_cases(cases: Iterable[T], every: int, name: Callable[[T], str] = str) -> list[Any]:
    """Parameters of a test: each `every`-th case always runs, the others with `-m campaign`."""
    return [
        pytest.param(case, id=name(case), marks=[pytest.mark.campaign] if number % every else [])
        for number, case in enumerate(cases)
    ]


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code (-9: killed, or it took too long), its output, and seconds of CPU time."""

    code: int
    text: str
    seconds: float

    def check(self, *codes: int) -> None:
        """Fail unless it ended with one of these codes and without a traceback."""
        assert self.code in codes, self.text[-300:]
        assert "Traceback" not in self.text, self.text[-300:]


@dataclass(frozen=True)
class Child:
    """A command at work, and what it prints: through a pipe, for a limit on files is one of the faults."""

    number: int
    printed: list[bytes]
    reader: threading.Thread


def start(words: tuple[str, ...], folder: Path, before: Callable[[], object] = lambda: None) -> Child:
    """Start `chestfed WORDS` in a folder, after `before`."""
    source, sink = os.pipe()
    number = os.fork()
    if number:
        os.close(sink)
        printed: list[bytes] = []
        reader = threading.Thread(target=_read_all, args=(source, printed), daemon=True)
        reader.start()
        return Child(number, printed, reader)
    code = 99
    try:
        os.setsid()
        os.chdir(folder)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        sys.stdout, sys.stderr = (os.fdopen(n, "w", buffering=1, closefd=False) for n in (1, 2))
        before()
        with patch.object(sys, "argv", ["chestfed", *words]), _one_thread():
            main()
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _one_thread() -> AbstractContextManager[object]:
    """For a fork: if its parent's torch has computed in several threads, the fork hangs as soon as it does so too."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    return patch.object(os, "cpu_count", return_value=1)


def wait(
    child: Child,
    limit: float = 300,
    kill_after: float = float("inf"),
    counted_from: Callable[[], bool] = lambda: True,
) -> Ended:
    """Wait for a command; it is killed after `kill_after` seconds of CPU time, or as too slow after `limit`.

    The seconds until it is killed count from when `counted_from` is first true. On a busy machine CPU time says where
    in its work a command is. One that only waits is too slow after ten times the limit.
    """
    began, seconds, counted = time.monotonic(), 0.0, float("inf")
    while True:
        seconds = _cpu_seconds(child.number, seconds)
        if counted == float("inf") and counted_from():
            counted = seconds
        done, status = os.waitpid(child.number, os.WNOHANG)
        if done:
            break
        if seconds > min(limit, counted + kill_after) or time.monotonic() - began > 10 * limit:
            with suppress(ProcessLookupError):
                os.killpg(child.number, signal.SIGKILL)
            _, status = os.waitpid(child.number, 0)
            break
        time.sleep(0.01)
    child.reader.join(10)
    return Ended(os.waitstatus_to_exitcode(status), b"".join(child.printed).decode(errors="replace"), seconds)


def _cpu_seconds(number: int, before: float) -> float:
    """Of a process that runs or has ended and was not waited for; `before` where the system does not say."""
    try:
        words = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return before
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def run(
    words: tuple[str, ...], folder: Path, before: Callable[[], object] = lambda: None, limit: float = 120.0
) -> Ended:
    """Run `chestfed WORDS` to its end."""
    return wait(start(words, folder, before), limit)


def import_modules(words: tuple[str, ...], folder: Path, before: Callable[[], object] = lambda: None) -> None:
    """Run `before` and a command in a child, and import here what they imported: later children need not."""
    names = folder / "modules.json"

    def call() -> None:
        before()
        try:
            with patch.object(sys, "argv", ["chestfed", *words]), _one_thread():
                main()
        finally:
            names.write_text(json.dumps(sorted(sys.modules)))

    wait(start((), folder, call), limit=600).check(0)
    for name in json.loads(names.read_text()):
        with suppress(Exception):  # of modules that are made and not imported
            importlib.import_module(name)
    names.unlink()


def make_store(out: Path) -> None:
    """MLflow's store in a folder, with a run."""
    from chestfed.reports.tracking.store import Store, local_store

    Store(local_store(out), out / "artifacts").start_run("x", {})


def rerun(campaign: Campaign, words: tuple[str, ...]) -> None:
    """Start a study again, without the fault: it must end with the files of the undisturbed one."""
    out = campaign.home / words[words.index("--out") + 1]
    run(words, campaign.home, limit=300).check(0)
    assert list_differences(out, campaign.sound) == []


def list_differences(out: Path, sound: Path) -> list[str]:
    """Files that are not those of the undisturbed study."""
    names = (*SAME, "hospitals.csv")
    folder, reference = study_in(out), study_in(sound)
    return [name for name in names if (folder / name).read_bytes() != (reference / name).read_bytes()]


def _read_all(source: int, printed: list[bytes]) -> None:
    while part := os.read(source, 65536):
        printed.append(part)
    os.close(source)
