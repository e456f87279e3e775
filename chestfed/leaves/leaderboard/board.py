"""The leaderboard: every submission verified, its AUCs computed again, compared, and shown on one page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, product
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pandas as pd

from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.provenance import Origin
from chestfed.leaves.leaderboard.benchmark import Benchmark, Split
from chestfed.leaves.leaderboard.submission import Submission, read_submission
from chestfed.reports.pages import figures
from chestfed.reports.pages.figures import Drawing, Picture
from chestfed.reports.pages.html import fill, read_template
from chestfed.results.evaluation.comparison import compare
from chestfed.results.evaluation.estimates import tidy
from chestfed.results.evaluation.intervals import DEFAULT
from chestfed.results.evaluation.intervals.interval import Interval
from chestfed.results.evaluation.intervals.methods import METHODS
from chestfed.results.evaluation.labeled import Scored
from chestfed.results.evaluation.power import LEVEL
from chestfed.results.tables.columns import DifferenceRow
from chestfed.results.tables.differences import list_differences
from chestfed.results.tables.frames import RESAMPLES, Row, list_estimates, list_records, make_differences
from chestfed.results.tables.grid import (
    Cell,
    Grid,
    Rows,
    make_grid,
    number,
    pair,
)
from chestfed.results.tables.predictions import Predictions
from chestfed.results.tables.views import drop_single_mean, make_difference_cell, make_disease_columns

#: Columns of the CSV. `what`: auc, gain (minus the method's own first K), versus (minus the baseline, both at last K).
COLUMNS: Final = (
    *(
        "benchmark",
        "data",
        "what",
        "hospital",
        "model",
        "reference",
        "k",
        "disease",
        "auc",
        "difference",
        "low",
        "high",
    ),
    *("p", "p_holm", "sd", "seeds", "positives", "negatives", "missing", "verified", "interval_method", "reason"),
)


@dataclass(frozen=True, eq=False)
class Entry:
    """A submission and the name that the page gives it. `models`: (hospital, K) -> its scores; none if unverified."""

    name: str
    submission: Submission
    models: Mapping[tuple[str, int], Predictions]


@dataclass(frozen=True, eq=False)
class Board:
    """Content of the page. `rows` has the columns of the CSV; `refused`: file -> why; `baseline` a method's name."""

    benchmark: Benchmark
    origin: Origin
    entries: tuple[Entry, ...]
    refused: dict[str, str]
    rows: pd.DataFrame
    baseline: str


def make_board(
    files: Sequence[Path], benchmark: Benchmark, splits: Mapping[str, Split], baseline: str | None = None
) -> Board:
    """Read, verify and compare; `baseline` is the method that the others are compared with, by default the first.

    Raises `ConfigError` (`unknown baseline`) if no submission has that name.
    """
    entries: dict[str, Entry] = {}
    refused: dict[str, str] = {}
    for file in files:
        try:
            submission = read_submission(file, benchmark)
            method = submission.header.method.name
            names = (method if place == 1 else f"{method} ({place})" for place in count(1))
            name = next(name for name in names if name not in entries)
            entries[name] = Entry(name, submission, _align_models(name, submission, benchmark, splits))
        except ChestfedError as error:
            refused[file.name] = f"{error.kind}: {error}"
    first = next(iter(entries), "") if baseline is None else baseline
    if baseline is not None and baseline not in entries:
        raise ConfigError(f"--baseline {baseline}: there are {', '.join(entries)}", kind="unknown baseline")
    submitted = [entry.submission.header.data for entry in entries.values()]
    origin = Origin.together([split.origin for split in splits.values()] or submitted)
    rows = [row for entry in entries.values() for row in _list_aucs(entry, benchmark)]
    rows += _list_differences(entries, first, benchmark) if benchmark.verifiable and entries else []
    head = {"benchmark": benchmark.name, "data": str(origin), "verified": benchmark.verifiable}
    table = tidy((row | head for row in rows), COLUMNS)
    return Board(benchmark, origin, tuple(entries.values()), refused, table, first)


def estimate_aucs(runs: Sequence[Scored]) -> list[dict[str, Any]]:
    """AUC of each disease and their mean, with 95% intervals over test patients and, of several runs, training seeds.

    Over seeds that is the comparison (`seeds_test`) with a model that knows nothing: its AUC is 0.5 with every seed,
    without variance or covariance, so that what is left is the variance of the mean AUC over seeds.
    """
    if len(runs) == 1:
        return list(list_estimates([Row.from_scores(0, (), runs[0], RESAMPLES)]))
    chance = [replace(run, scores=np.zeros_like(run.scores)) for run in runs]
    rows = []
    for contrast in compare(chance, runs):
        low, high = (None, None) if contrast.interval is None else (0.5 + end for end in contrast.interval)
        row = vars(contrast) | {"auc": contrast.auc_model, "low": low, "high": high, "p": None, "difference": None}
        rows.append(row | {"sd": contrast.seed_sd_model, "seeds": len(runs), "interval_method": "over seeds"})
    return rows


def _align_models(
    name: str, submission: Submission, benchmark: Benchmark, splits: Mapping[str, Split]
) -> dict[tuple[str, int], Predictions]:
    """The submitted scores beside the labels of this installation."""
    models, seeds = {}, tuple(submission.header.seeds)
    columns = [f"score_{disease}" for disease in benchmark.diseases]
    for (hospital, split), k in product(splits.items(), benchmark.k):
        images = split.frame["image"].to_list()
        scores = [submission.align_scores(hospital, k, seed, images) for seed in seeds]
        frames = tuple(split.frame.join(pd.DataFrame(values, columns=columns)) for values in scores)
        title = name if k == benchmark.k[-1] else f"{name}, K={k}"
        models[hospital, k] = Predictions(title, name, frames, "", split.origin, seeds=seeds)
    return models


def _list_aucs(entry: Entry, benchmark: Benchmark) -> Iterator[dict[str, Any]]:
    """The estimates of a method: computed here, or as submitted where images have no scores."""
    for hospital, k in product(benchmark.targets, benchmark.k):
        head: dict[str, Any] = {"what": "auc", "model": entry.name, "hospital": hospital, "k": k}
        if benchmark.verifiable:
            estimates = estimate_aucs(entry.models[hospital, k].scored(benchmark.diseases))
        else:
            header, rows = entry.submission.header, entry.submission.rows
            estimates = list(list_estimates([rows[hospital, k, seed] for seed in header.seeds]))
            head["reason"] = "as submitted"
        yield from (row | head for row in estimates)


def _list_differences(entries: Mapping[str, Entry], baseline: str, benchmark: Benchmark) -> list[dict[str, Any]]:
    """Every method minus its own first K, and minus the baseline; Holm over all methods and hospitals of each kind."""
    first, last, rows = benchmark.k[0], benchmark.k[-1], list[dict[str, Any]]()
    for hospital, entry in product(benchmark.targets, entries.values()):
        models = {"gain": entry.models[hospital, first], "versus": entries[baseline].models[hospital, last]}
        if entry.name == baseline:
            del models["versus"]
        for view, reference in models.items():
            rows += list_differences([reference, entry.models[hospital, last]], RESAMPLES, view=view, hospital=hospital)
    frame = make_differences(rows).rename(columns={"view": "what", "seeds_model": "seeds", "seed_sd_model": "sd"})
    return list_records(frame.assign(k=last))


# ---- the page ----------------------------------------------------------------------------------------------------


def render_board(board: Board) -> str:
    """One page that needs no other file."""
    benchmark, tables = board.benchmark, []
    first, last = benchmark.k[0], benchmark.k[-1]
    for hospital in benchmark.targets:
        about = "below it the 95% interval, and the standard deviation over training seeds"
        tables += _make_grids(board, hospital, "auc", f"AUC at {hospital}, trained at {last} hospitals; {about}")
        about = "below it its 95% interval, p, and p by Holm"
        tables += _make_grids(board, hospital, "gain", f"K={last} minus K={first} of the same method; {about}")
        tables += _make_grids(board, hospital, "versus", f"K={last} minus that of {board.baseline}; {about}")
    targets = benchmark.targets if board.entries else {}
    counts = [
        f"{name}: {part.images:,} images of {part.patients:,} patients" for name, part in benchmark.targets.items()
    ]
    digests = [f"{name} {digest}" for name, digest in benchmark.digests.items() if digest]
    facts = {
        "benchmark": benchmark.name,
        "test images": "; ".join(counts),
        "digests of the splits": "; ".join(digests) or "none: images are not disclosed",
        "intervals": f"{METHODS[DEFAULT].about}; with several seeds over test patients and training seeds",
    }
    refused = ((name, [reason]) for name, reason in board.refused.items())
    return fill(
        "leaderboard.html",
        "chestfed.leaves.leaderboard",
        style=read_template("page.css"),
        title=f"Leaderboard: {benchmark.title}",
        skip_to="ranking",
        command="chestfed leaderboard",
        tag=board.origin.tag,
        mark=board.origin.sentence,
        facts=facts,
        answer=" ".join(_answer(board, hospital) for hospital in targets) or "No submission was accepted.",
        gains=" ".join(_state_differences(board, hospital, "gain") for hospital in targets),
        pictures=_draw_differences(board),
        benchmark=benchmark,
        tables=[*tables, _make_cost_grid(board)],
        entries=board.entries,
        refused=make_grid("refused", "Not ranked", ("file", "why"), refused, "told") if board.refused else None,
    )


def _select_means(board: Board, hospital: str, what: str) -> pd.DataFrame:
    """The rows of the mean over the diseases at the last K, a method each."""
    rows = board.rows.query("hospital == @hospital and what == @what and k == @board.benchmark.k[-1]")
    return rows[rows["disease"] == "mean"]


def _answer(board: Board, hospital: str) -> str:
    """Which method has the highest mean AUC at a hospital, and whether it differs from the baseline."""
    rows = _select_means(board, hospital, "auc").dropna(subset="auc")
    if rows.empty:
        return f"At {hospital} no mean AUC is defined."
    best = rows["model"][rows["auc"] == rows["auc"].max()]
    start = f"{', '.join(best)} {'has' if len(best) == 1 else 'have'} the highest mean AUC at {hospital}"
    return f"{start}, {number(rows['auc'].max())}. {_state_differences(board, hospital, 'versus')}".rstrip()


def _state_differences(board: Board, hospital: str, what: str) -> str:
    """Methods that are higher or lower than the baseline, or than their own first K, by the corrected p; "" without."""
    rows = _select_means(board, hospital, what).dropna(subset="difference")
    if rows.empty:
        return ""
    first, last = board.benchmark.k[0], board.benchmark.k[-1]
    start = f"Against {board.baseline}" if what == "versus" else f"K={last} against K={first} at {hospital}"
    clear = rows[rows["p_holm"].astype(float) < LEVEL]
    methods = {
        "higher": clear["model"][clear["difference"] > 0],
        "lower": clear["model"][clear["difference"] < 0],
        "no significant difference": rows["model"].drop(clear.index),
    }
    parts = [f"{how} with {', '.join(names)}" for how, names in methods.items() if len(names)]
    return f"{start}, after Holm's correction: {'; '.join(parts)}."


def _draw_differences(board: Board) -> list[Picture]:
    """Per hospital the mean AUCs minus that of the baseline; of a single method minus that of its first K."""
    pictures, what = [], "versus" if len(board.entries) > 1 else "gain"
    first, last = board.benchmark.k[0], board.benchmark.k[-1]
    minus = f"minus that of {board.baseline}" if what == "versus" else f"with K={last} minus K={first}"
    for hospital in board.benchmark.targets:
        rows = _select_means(board, hospital, what).dropna(subset="difference")
        if rows.empty:
            continue
        title, size = f"Mean AUC at {hospital} {minus}", (4.8, 1.8 + 0.3 * len(rows))
        with Drawing(board.origin, f"{what}-{hospital}", title, size, long_names=True) as drawing:
            figures.forest(
                drawing.axes, rows.assign(name=rows["model"]), "difference of the mean AUC,\nwith 95% interval"
            )
            for row in rows.to_dict("records"):
                drawing.say(f"{row['model']} {row['difference']:+.3f}")
        pictures.append(drawing.picture(f"{title}, with 95% intervals"))
    return pictures


def _make_grids(board: Board, hospital: str, what: str, caption: str) -> list[Grid]:
    """A line per method, of AUCs the highest mean first; none without rows."""
    table = board.rows.query("hospital == @hospital and what == @what and k == @board.benchmark.k[-1]")
    parts = table.groupby("model", sort=False)
    methods = [(str(name), drop_single_mean(list_records(part))) for name, part in parts]
    if what == "auc":
        methods.sort(key=lambda item: -(item[1][-1]["auc"] or 0.0))
    lines: Rows = []
    for place, (name, rows) in enumerate(methods, 1):
        note = () if board.benchmark.verifiable else ("not verifiable",)
        head = f"{place}. {name}" if what == "auc" else name
        cells = map(_make_auc_cell if what == "auc" else _make_difference_cell, rows)
        lines.append((head, [*cells, Cell(str(rows[0]["seeds"]), note)]))
    if not methods:
        return []
    heads: list[str | Cell] = ["method", *make_disease_columns(methods[0][1]), "seeds"]
    return [make_grid(f"{what}-{hospital}", caption, heads, lines)]


def _make_difference_cell(row: Mapping[str, Any]) -> Cell:
    return make_difference_cell(cast(DifferenceRow, row))


def _make_auc_cell(row: Mapping[str, Any]) -> Cell:
    below = [] if row["low"] is None else [pair(Interval(row["low"], row["high"]))]
    below += [] if row["sd"] is None else [f"±{row['sd']:.3f}"]
    return Cell(number(row["auc"]), tuple(below))


def _make_cost_grid(board: Board) -> Grid:
    units = {"rounds": 1, "gradients": 1, "images": 1, "bytes_up": 1e6, "bytes_down": 1e6}
    lines: Rows = []
    for entry in board.entries:
        costs = [run.costs.get(str(board.benchmark.k[-1]), {}) for run in entry.submission.header.runs]
        means = {name: np.mean([cost.get(name, np.nan) for cost in costs]) / unit for name, unit in units.items()}
        lines.append((entry.name, [f"{mean:,.{2 * (units[name] > 1)}f}" for name, mean in means.items()]))
    heads = ("method", "rounds", "gradients", "images", "MB up", "MB down")
    caption = f"Cost of stage 2 at K={board.benchmark.k[-1]} as submitted, over all clients; mean over seeds"
    return make_grid("costs", caption, heads, lines)
