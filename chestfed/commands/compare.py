"""`chestfed compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from chestfed.results import predictions, significance


def run_command(
    console: Console, runs: Sequence[Path], k: int | None, out: Path | None, *, group: bool, resamples: int
) -> None:
    """Compare the stored predictions of the runs with those of the first, print and write."""
    found = [predictions.read_run(path, k) for path in runs]
    if group:
        found = predictions.group_seeds(found)
    compared = significance.compare_with_first(found, resamples)
    folder = out or significance.paired_folder(compared, Path("runs") / "paired")
    folder.mkdir(parents=True, exist_ok=True)
    significance.write(compared, folder, "differences")
    console.print(significance.render(compared))
    console.print(f"written to {folder}: differences.csv, differences.json", highlight=False, soft_wrap=True)
