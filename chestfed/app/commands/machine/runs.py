"""`chestfed runs`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from chestfed.core.console import command, open_console, say, text_table
from chestfed.core.output import add_result


def runs(
    folder: Annotated[Path, typer.Argument(help="Output folder of studies: their --out.")] = Path("runs"),
) -> None:
    """List the studies in an output folder: date, gain of the largest K with its interval, and state.

    A run is named in other commands by its name or a part of it that no other has, such as its digest.

    Example:

        chestfed runs
    """
    rows, console = list(_list_studies(folder)), open_console()
    add_result(runs=rows)
    if not rows:
        say(console, f"{folder}: no studies. Run one: {command('study')}")
        return
    cells = [(row["name"], row["date"], row["state"], row["gain"]) for row in rows]
    console.print(text_table("", ("name", "date", "state", "gain"), (), cells, light=True))
    say(console, f"a page of one: {command('report', rows[0]['name'])}")


def _list_studies(folder: Path) -> Iterator[dict[str, Any]]:
    """The latest first."""
    from chestfed.core.bundled import list_runs
    from chestfed.core.errors import ChestfedError

    studies = sorted(list_runs(folder).values(), key=lambda path: -path.stat().st_mtime)
    for path in studies:
        date = datetime.fromtimestamp(path.stat().st_mtime).strftime("%Y-%m-%d %H:%M")  # noqa: DTZ006 (user's clock)
        try:
            state, gain = _describe_study(path)
        except ChestfedError:
            state, gain = "damaged", ""
        yield {"name": path.name, "date": date, "state": state, "gain": gain}


def _describe_study(path: Path) -> tuple[str, str]:
    from chestfed.results.evaluation.intervals.interval import Interval
    from chestfed.results.tables.collect import read_comparison
    from chestfed.results.tables.frames import list_records, read_differences, select
    from chestfed.results.tables.grid import pair, signed
    from chestfed.results.tables.run_folder import COMPARISON, RunFolder

    if (path / COMPARISON).is_file():
        results = read_comparison(path)
        state, differences = f"{len(results.seeds)} seeds", results.gains("study")
    else:
        run = RunFolder.open(path)
        missing = [k for k in run.settings.ks if k not in run.ks]
        state = f"{len(run.ks)} of {len(run.settings.ks)} K" if missing else "finished"
        differences = select(read_differences(path), "study")
    mean = next(iter(list_records(differences)[-1:]), None)
    if mean is None or mean["difference"] is None:
        return state, ""
    interval = "" if mean["low"] is None else f" {pair(Interval(mean['low'], mean['high']), 3, signed)}"
    return state, f"{signed(mean['difference'])}{interval}".replace("−", "-")
