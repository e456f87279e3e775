"""The machine that a figure was measured on."""

from __future__ import annotations

import platform
from pathlib import Path


def processor() -> str:
    """Name of the processor, as Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    return next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")), platform.processor())
