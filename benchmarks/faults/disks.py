"""Disks that are full, read-only or gone, and folders of somebody else: one message, and nothing is lost."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.faults.children import STUDY, Ended, run
from benchmarks.faults.kills import differences

_NOBODY = 65534


def rows(home: Path, sound: Path, every: int) -> Iterator[tuple[str, bool, str]]:
    """One row per case; where a study can be started again without the fault, it must end as the sound one."""
    sizes = (0, 100, 1_000, 4_096, 10_000, 20_000, 40_000, 60_000, 80_000, 100_000)
    cases = [(size, tracking) for size in sizes for tracking in ((), ("--no-tracking",))]
    for size, tracking in cases[::every]:
        words = (*STUDY, "--out", "full", *tracking)
        ended = run(words, home, partial(_no_file_above, size))
        name = f"no file above {size:,} bytes, {'without' if tracking else 'with'} MLflow"
        yield _row(name, ended, home, sound, words)
    yield from _places(home)
    for after in (0.5, 1.0, 2.0, 4.0):
        words = (*STUDY, "--out", "vanishing", "--no-tracking")
        threading.Timer(after, lambda: shutil.rmtree(home / "vanishing", ignore_errors=True)).start()
        ended = run(words, home)
        time.sleep(0.2)
        yield _row(f"the output folder vanishes after {after} s", ended, home, sound, words)
    if os.geteuid() == 0:
        yield from _of_somebody_else(home, sound)


def _places(home: Path) -> Iterator[tuple[str, bool, str]]:
    (home / "file").write_text("x")
    cases = {
        "--out is a file": ("--out", "file"),
        "--out is below a file": ("--out", "file/below"),
        "--out is a device": ("--out", "/dev/null"),
        "--out is in /proc": ("--out", "/proc/x"),
        "--cache is a file": ("--cache", "file", "--out", "o"),
        "--cache is below a file": ("--cache", "file/below", "--out", "o"),
        "the name of --out is too long": ("--out", "x" * 300),
    }
    for name, words in cases.items():
        ended = run((*STUDY, *words, "--no-tracking"), home)
        good = ended.told and ended.code == 1
        yield name, good, "" if good else f"exit {ended.code}: {ended.text[-300:]}"


def _of_somebody_else(home: Path, sound: Path) -> Iterator[tuple[str, bool, str]]:
    """Run as a user who may read everything and write only where it is said."""
    for path in (home, *home.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    copy = home / "finished"
    shutil.copytree(sound, copy)
    cases: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
        "a finished study, all read-only": (("--out", "finished", "--no-tracking"), ()),
        "a finished study with MLflow, all read-only": (("--out", "finished"), ()),
        "a new output folder that cannot be made": (("--out", "new"), ()),
        "a new cache that cannot be made": (("--out", "mine", "--cache", "new", "--no-tracking"), ("mine",)),
        "a complete cache, read-only": (("--out", "mine", "--no-tracking"), ("mine",)),
        "one K read-only": (("--out", "part", "--no-tracking"), ("part",)),
    }
    shutil.copytree(sound, home / "part")
    for name, (words, writable) in cases.items():
        for folder in writable:
            (home / folder).mkdir(exist_ok=True)
            for path in (home / folder, *(home / folder).rglob("*")):
                os.chown(path, _NOBODY, _NOBODY)
        if "part" in writable:
            (k2,) = (home / "part").glob("*/k2")
            os.chown(k2, 0, 0)
            (k2 / "result.json").unlink()
        ended = run((*STUDY, *words), home, partial(os.setuid, _NOBODY))
        yield name, ended.told, "" if ended.told else f"exit {ended.code}: {ended.text[-300:]}"
    for path in (home, *home.rglob("*")):
        os.chown(path, 0, 0)


def _row(name: str, ended: Ended, home: Path, sound: Path, words: tuple[str, ...]) -> tuple[str, bool, str]:
    wrong = [] if ended.told else [f"exit {ended.code}: {ended.text[-300:]}"]
    again, out = run(words, home, limit=300), home / words[words.index("--out") + 1]
    wrong += differences(out, sound) if again.code == 0 else [f"afterwards exit {again.code}: {again.text[-300:]}"]
    shutil.rmtree(out, ignore_errors=True)
    return name, not wrong, "; ".join(wrong)


def _no_file_above(size: int) -> None:
    """As a full disk: writing beyond so many bytes of a file fails."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


_Before = Callable[[], object]
