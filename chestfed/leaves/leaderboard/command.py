"""`chestfed submit` and `chestfed leaderboard`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chestfed.app.commands import options
from chestfed.core.console import command, open_console, plural, say, show_answer
from chestfed.core.errors import ConfigError

if TYPE_CHECKING:
    from chestfed.app.commands.progress import Bars
    from chestfed.leaves.leaderboard.benchmark import Progress

#: What `SubmittedMethod` takes, by its keys.
_RULES = {
    "name": "1 to 80 characters in one line, of which the first is a letter or digit",
    "authors": "at most 300 characters",
    "url": "an address that begins with http:// or https:// and has no spaces, of at most 300 characters",
    "notes": "at most 2,000 characters",
}

BenchmarkName = Annotated[str, typer.Option("--benchmark", metavar="NAME", help="Benchmark, or its YAML.")]
Data = Annotated[Path | None, options.optional(help="Folder of the sites' folders. Default: as for a study.")]


def submit(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Run folders of one method, one per training seed.", show_default=False),
    ],
    benchmark: BenchmarkName = "samples-v2",
    method: Annotated[str | None, options.optional(help="Name on the page. Default: the algorithm.")] = None,
    authors: Annotated[str, options.optional(help="Shown on the page.")] = "",
    url: Annotated[str, options.optional(help="Address of a paper or code, shown on the page.")] = "",
    notes: Annotated[str, options.optional(help="Shown on the page.")] = "",
    out: Annotated[Path | None, options.optional(help="The file. Default: BENCHMARK-METHOD.zip.")] = None,
    data: Data = None,
    cache: options.Cache = options.AUTO,
) -> None:
    """Write the one file that a method is submitted to a benchmark with.

    It has the score of every test image, named by its content, or AUCs alone where data sets forbid that. What else is
    in it: docs/leaderboard.md.

    Example:

        chestfed submit runs/synthetic-source_addition_samples-0123456789ab --method "codasca, window 4"
    """
    import pandas as pd
    from pydantic import ValidationError

    from chestfed.app.commands.progress import Bars
    from chestfed.core.provenance import Origin
    from chestfed.leaves.leaderboard.benchmark import load_benchmark, load_splits
    from chestfed.leaves.leaderboard.making import make_header, make_scores, open_runs
    from chestfed.leaves.leaderboard.submission import SubmittedMethod, write_submission

    console, folders = open_console(), open_runs(runs)
    try:
        about = SubmittedMethod(name=method or folders[0].settings.algorithm, authors=authors, url=url, notes=notes)
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        option = {"name": "method"}.get(key, key)
        raise typer.BadParameter(f"--{option}: give {_RULES[key]}") from None
    chosen, file = load_benchmark(benchmark)
    header, scores = make_header(folders, chosen, about), pd.DataFrame()
    if chosen.verifiable:
        with Bars(console) as bars:
            real = header.data is not Origin.SYNTHETIC
            splits = load_splits(chosen, file, data, cache, _show(bars)) if real else {}
            scores = make_scores(folders, chosen, splits)
    word = re.sub(r"\W+", "-", about.name.lower())
    target = out or Path(f"{chosen.name}-{word}.zip")
    write_submission(target, header, scores)
    rows = f"{len(scores):,} rows of scores" if len(scores) else "AUCs alone, which cannot be verified"
    say(console, f"{chosen.name}: {about.name}, {plural(len(folders), 'seed')}, {rows}")
    say(console, f"next: {command('leaderboard', target.parent, '--benchmark', benchmark)}")
    show_answer(console, f"written to {target}", file=str(target), seeds=len(folders), rows=len(scores))


def leaderboard(
    folder: Annotated[Path | None, typer.Argument(help="Folder of submissions.", show_default=False)] = None,
    benchmark: BenchmarkName = "samples-v2",
    output: Annotated[
        Path | None, options.optional(help="The page, with a CSV beside it. Default: leaderboard.html in the folder.")
    ] = None,
    baseline: Annotated[
        str | None, options.optional(metavar="METHOD", help="Method to compare with. Default: that of the first file.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="End with exit code 2 if a file is refused.")] = False,
    datasheet: Annotated[
        str | None,
        options.optional(metavar="NAME", help="Write this benchmark's Croissant datasheet instead."),
    ] = None,
    data: Data = None,
    cache: options.Cache = options.AUTO,
) -> None:
    """Verify the submissions in a folder, compute their AUCs again, and write one page and a CSV.

    Labels are read from the data set itself, on this machine. A file that is damaged or of other images is refused.

    Example:

        chestfed leaderboard submissions --output leaderboard.html
    """
    from chestfed.core.checkpoint import write_json, write_text
    from chestfed.leaves.leaderboard.benchmark import load_benchmark, load_splits

    console = open_console()
    if datasheet is not None:
        from chestfed.leaves.leaderboard.datasheet import make_datasheet

        chosen, file = load_benchmark(datasheet)
        target = output or Path(f"{chosen.name}.json")
        write_json(target, make_datasheet(chosen, file))
        show_answer(console, f"written to {target}", file=str(target))
        return
    chosen, file = load_benchmark(benchmark)
    files = [] if folder is None else sorted(file for file in folder.glob("*.zip") if file.is_file())
    if folder is None or not files:
        what = "no submission (*.zip) there" if folder is None or folder.is_dir() else "no such folder"
        raise ConfigError(f"{folder or 'FOLDER'}: {what}", kind="no submission")
    from chestfed.app.commands.progress import Bars
    from chestfed.leaves.leaderboard.board import make_board, render_board
    from chestfed.results.evaluation.estimates import as_csv

    with Bars(console) as bars:
        splits = load_splits(chosen, file, data, cache, _show(bars)) if chosen.verifiable else {}
    board, page = make_board(files, chosen, splits, baseline), output or folder / "leaderboard.html"
    write_text(page, render_board(board))
    write_text(page.with_suffix(".csv"), as_csv(board.rows))
    for name, reason in board.refused.items():
        say(console, f"refused: {name}: {reason}", "yellow")
    say(console, f"written to {page} and {page.with_suffix('.csv').name}")
    text = f"{chosen.name}: {plural(len(board.entries), 'submission')}, {len(board.refused)} refused"
    counts = {"page": str(page), "submissions": len(board.entries), "refused": len(board.refused)}
    show_answer(console, text, **counts)
    if strict and board.refused:
        raise typer.Exit(2)


def _show(bars: Bars) -> Progress:
    def show(what: str, done: int, total: int) -> None:
        if what == "drawing":
            bars.drawing(done, total)
        else:
            bars.decoding(what, done, total)

    return show
