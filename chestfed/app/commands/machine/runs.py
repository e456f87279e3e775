"""`chestfed runs`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from chestfed.core.console import command, open_console, plural, say, show_answer, text_table
from chestfed.core.errors import ConfigError

_Numbers = tuple[float | None, float | None, float | None]
_NONE: _Numbers = (None, None, None)
_DEFAULT = Path("runs")


def runs(
    folder: Annotated[Path, typer.Argument(help="Output folder of studies: their --out.")] = _DEFAULT,
) -> None:
    """List the studies in an output folder: date, gain of the largest K with its interval, and state.

    A run is named in other commands by its name or a part of it that no other has, such as its digest.

    Example:

        chestfed runs
    """
    if not folder.is_dir() and folder != _DEFAULT:
        raise ConfigError(f"{folder}: no such folder", kind="missing folder", folder=folder)
    rows, console = list(_list_studies(folder)), open_console()
    if not rows:
        show_answer(console, f"{folder}: no studies. Run one: {command('study')}", runs=[])
        return
    cells = [(row["name"], row["date"], row["state"], row["gain"]) for row in rows]
    console.print(text_table("", ("name", "date", "state", "gain"), (), cells, light=True))
    latest = rows[0]["name"] if folder == _DEFAULT else folder / rows[0]["name"]  # names are looked up in `runs`
    say(console, f"a page of one: {command('report', latest)}")
    numbers = [{**row, "gain": row.pop("difference")} for row in rows]
    show_answer(console, f"{plural(len(rows), 'run')} in {folder}, the latest: {rows[0]['name']}", runs=numbers)


def _list_studies(folder: Path) -> Iterator[dict[str, Any]]:
    """The latest first."""
    from chestfed.core.bundled import list_runs
    from chestfed.core.errors import ChestfedError

    studies = sorted(list_runs(folder).values(), key=lambda path: -path.stat().st_mtime)
    for path in studies:
        date = datetime.fromtimestamp(path.stat().st_mtime).strftime("%Y-%m-%d %H:%M")  # noqa: DTZ006 (user's clock)
        try:
            state, numbers = _describe_study(path)
        except ChestfedError:
            state, numbers = "damaged", _NONE
        yield {"name": path.name, "date": date, "state": state, "gain": _format_gain(*numbers)} | dict(
            zip(("difference", "low", "high"), numbers, strict=True)
        )


def _format_gain(difference: float | None, low: float | None, high: float | None) -> str:
    from chestfed.results.evaluation.intervals.interval import Interval
    from chestfed.results.tables.grid import pair, signed

    if difference is None:
        return ""
    interval = "" if low is None or high is None else f" {pair(Interval(low, high), 3, signed)}"
    return f"{signed(difference)}{interval}".replace("−", "-")


def _describe_study(path: Path) -> tuple[str, _Numbers]:
    """The state, and the gain of the largest K with its interval."""
    from chestfed.results.tables.collect import read_comparison
    from chestfed.results.tables.frames import list_stored_gains
    from chestfed.results.tables.run_folder import COMPARISON, RunFolder

    if (path / COMPARISON).is_file():
        results = read_comparison(path)
        state, is_quick = results.repeats or "1 seed", results.about.get("quick")
    else:
        run = RunFolder.open(path)
        missing = [k for k in run.settings.ks if k not in run.ks]
        state = f"{len(run.ks)} of {len(run.settings.ks)} K" if missing else "finished"
        is_quick = run.configuration.get("quick")
    state += ", quick" if is_quick else ""
    mean = next(iter(list_stored_gains(path, "study")[-1:]), None)
    if mean is None or mean["difference"] is None:
        return state, _NONE
    return state, (mean["difference"], mean["low"], mean["high"])
