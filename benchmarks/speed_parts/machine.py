"""The machine that a figure was measured on, and the memory that a process took."""

from __future__ import annotations

import multiprocessing
import platform
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Found = TypeVar("Found")


def processor() -> str:
    """Name of the processor, as Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    return next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")), platform.processor())


def peak_of(process: int | str = "self") -> int:
    """The most memory that a process has held so far, in MiB; 0 where Linux does not tell it.

    `getrusage` counts what the process held from which this one was started.
    """
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")), 0)


def alone(work: Callable[..., Found], *arguments: object) -> Found:
    """What it returns in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)
