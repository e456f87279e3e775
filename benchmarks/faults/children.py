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
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from chestfed.cli import main

#: Makes any study of the sample hospitals take seconds.
SMALL = (
    *("samples.size=tiny", "model.blocks=[1]", "pretrain.epochs=0.5", "pretrain.batch_size=4"),
    *("federated.batch_size=2", "federated.window=2", "federated.stage_steps=4", "evaluation.resamples=20"),
    *("runtime.threads=1", "preprocess.size=64", "k=[1,2]", "evaluation.every=1"),
)
STUDY = ("study", *(word for setting in SMALL for word in ("--set", setting)))


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code (-9: killed, or it took too long), its output, and seconds of CPU time."""

    code: int
    text: str
    seconds: float

    @property
    def told(self) -> bool:
        """Whether it did its work or gave one message: no traceback, no report of a defect, not endless."""
        return self.code in (0, 1, 2) and "Traceback" not in self.text


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


def import_what_is_used(words: tuple[str, ...], folder: Path, before: Callable[[], object] = lambda: None) -> None:
    """Run `before` and a command in a child, and import here what they imported: later children need not."""
    listed = folder / "modules.json"

    def call() -> None:
        before()
        try:
            with patch.object(sys, "argv", ["chestfed", *words]), _one_thread():
                main()
        finally:
            listed.write_text(json.dumps(sorted(sys.modules)))

    ended = wait(start((), folder, call), limit=600)
    if ended.code:
        raise SystemExit(ended.text)
    for name in json.loads(listed.read_text()):
        with suppress(Exception):  # of modules that are made and not imported
            importlib.import_module(name)
    listed.unlink()


def _read_all(source: int, printed: list[bytes]) -> None:
    while part := os.read(source, 65536):
        printed.append(part)
    os.close(source)
