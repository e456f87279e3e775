"""`chestfed samples`."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from chestfed.errors import ConfigError


def run_command(console: Console, out: Path, seed: int, size: str) -> None:
    """Write the synthetic hospitals and say what they hold."""
    from chestfed.commands.progress import Bars
    from chestfed.samples import SIZES, is_complete, write_hospitals

    if size not in SIZES:
        raise ConfigError(f"--size {size}: choose one of {', '.join(SIZES)}")
    if is_complete(out, seed=seed, size=size):
        console.print(f"{out} already holds these hospitals; nothing to do", highlight=False)
        return
    with Bars(console) as bars:
        summaries = write_hospitals(out, seed=seed, size=size, progress=bars.drawing)
    for summary in summaries:
        console.print(str(summary), highlight=False, soft_wrap=True)
    console.print(f"SYNTHETIC phantoms, no patients: written to {out}", highlight=False, soft_wrap=True)
