"""The versions and the processor that each K was trained with: two K are to differ in their hospitals alone."""

from __future__ import annotations

import functools
import platform
from collections.abc import Sequence
from pathlib import Path

from chestfed.core.checkpoint import read_json, write_json
from chestfed.core.errors import ChestfedError
from chestfed.results.tables.made_with import MADE_WITH, Maker, find_differences, read_makers
from chestfed.studies.experiment.device import Machine
from chestfed.studies.training.identity import software_versions


def describe_maker(machine: Machine) -> Maker:
    """Versions of the software that trains here, and the processor."""
    processor = _read_processor() if machine.device.type == "cpu" else machine.name
    return {**software_versions(), "processor": processor}


def note_maker(folder: Path, machine: Machine, *, resumed: bool) -> None:
    """Write what trains the K of a folder; one that is resumed keeps what trained it before."""
    stored = read_json(folder / MADE_WITH).get("made_with", []) if resumed else []
    maker = describe_maker(machine)
    if maker not in stored:
        write_json(folder / MADE_WITH, {"made_with": [*stored, maker]})


def refuse_other_versions(folder: Path, ks: Sequence[int], machine: Machine) -> None:
    """Refuse to continue a study of which some K were trained with other versions or on another processor.

    Raises `ChestfedError` if there are such K.
    """
    makers = read_makers(folder, ks)
    differences = find_differences(
        [*((f"K={k}", every) for k, every in makers.items()), ("here", [describe_maker(machine)])]
    )
    if differences:
        text = "; ".join(differences)
        raise ChestfedError(
            f"{folder}: with --strict every K is trained alike: {text}. Use those versions, choose another --out to "
            "train all K again, or leave --strict out to have it said beside the result",
            kind="other versions",
            folder=folder.name,
            differences=differences,
        )


@functools.cache
def _read_processor() -> str:
    """The name of the processor, as far as the system says."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
