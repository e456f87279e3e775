"""From finished run folders to the content of a submission: checked, and without what must not leave."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from chestfed.core.errors import ChestfedError
from chestfed.core.provenance import Origin
from chestfed.core.pseudonyms import key_for
from chestfed.leaves.leaderboard.benchmark import Benchmark, Split, check_split
from chestfed.leaves.leaderboard.submission import Header, SubmittedMethod, SubmittedResult, SubmittedRun
from chestfed.results.tables.frames import read_row
from chestfed.results.tables.predictions import load_predictions
from chestfed.results.tables.run_folder import HOSPITALS, RunFolder


def open_runs(folders: Sequence[Path]) -> list[RunFolder]:
    """The finished and undamaged runs of one study, one per training seed.

    Raises `ChestfedError` (`run cannot be submitted`, `different studies`).
    """
    runs = []
    for folder in folders:
        try:
            runs.append(RunFolder.open(folder))
            runs[-1].check_finished()
        except ChestfedError as error:
            raise ChestfedError(str(error), kind="run cannot be submitted", run=folder.name) from None
    studies = [run.configuration | {"seed": None, "title": None} for run in runs]
    seeds = [run.settings.seed for run in runs]
    if any(study != studies[0] for study in studies) or len(set(seeds)) < len(seeds):
        text = "the runs are to differ in their training seed alone: submit one method, each seed once"
        raise ChestfedError(f"{text}. Their seeds: {seeds}", kind="different studies", seeds=seeds)
    return runs


def make_header(runs: Sequence[RunFolder], benchmark: Benchmark, method: SubmittedMethod) -> Header:
    """Make the header of a submission; with the AUCs where images have no scores.

    Raises `ChestfedError` of the kinds `K is missing` and `not scored`; `pydantic.ValidationError` for a wrong method.
    """
    for run, k in product(runs, benchmark.k):
        if k not in run.ks:
            text = f"{run.path}: K={k} was not run, which {benchmark.name} needs; train with k={benchmark.k}"
            raise ChestfedError(text, kind="K is missing", k=k)
    return Header(
        benchmark=benchmark.name,
        splits=benchmark.digests,
        data=Origin.together(run.origin for run in runs),
        method=method,
        runs=[_describe_run(run, benchmark.k) for run in runs],
        configuration=strip_places(runs[0].configuration | {"seed": None}),
        results=[] if benchmark.verifiable else list(_list_results(runs, benchmark)),
    )


def make_scores(runs: Sequence[RunFolder], benchmark: Benchmark, splits: Mapping[str, Split]) -> pd.DataFrame:
    """The rows of `scores.csv`: equal images, which have equal scores, are one row.

    `splits` name the images of real patients, whose names in a run were made with a secret key; of synthetic hospitals
    none are needed.

    Raises `ChestfedError` as `check_split`, `not scored` and `other key`; `ConfigError` if there are no scores.
    """
    parts, columns = [], [f"score_{disease}" for disease in benchmark.diseases]
    for run, k, hospital in product(runs, benchmark.k, benchmark.targets):
        frame = load_predictions(run.path, k, _find_place(run, hospital)).frames[0]
        if missing := [name for name in columns if name not in frame]:
            raise ChestfedError(f"{run.path}: no {', '.join(missing)}", kind="not scored", hospital=hospital)
        if split := splits.get(hospital):
            key = key_for(public=split.phantoms)
            frame = frame.assign(image=frame["image"].map(split.translate_names(key)))
        if frame["image"].isna().any():
            text = "its images are not those in --data, or were named with another key: set $CHESTFED_KEY_FILE to it"
            raise ChestfedError(f"{run.path}: {text}", kind="other key", hospital=hospital)
        check_split(benchmark, hospital, frame)
        scores = frame.groupby("image")[columns].mean()
        scores = scores.rename(columns=lambda name: name.removeprefix("score_")).reset_index()
        parts.append(scores.assign(hospital=hospital, k=k, seed=run.settings.seed))
    return pd.concat(parts, ignore_index=True)[["hospital", "k", "seed", "image", *benchmark.diseases]]


def strip_places(value: Any) -> Any:
    """Plain data in which every absolute path has become its last part."""
    if isinstance(value, dict):
        return {key: strip_places(part) for key, part in value.items()}
    if isinstance(value, list):
        return [strip_places(part) for part in value]
    if isinstance(value, str) and re.match(r"(/|~|\\\\|[A-Za-z]:[\\/]|file:)", value):
        return re.split(r"[\\/]", value.rstrip("\\/"))[-1]
    return value


def _describe_run(run: RunFolder, ks: Sequence[int]) -> SubmittedRun:
    costs = {str(k): run.costs(k) for k in ks}
    about = {name: run.about[name] for name in ("results_version", "machine", "versions")}
    return SubmittedRun(seed=run.settings.seed, digest=run.digest, costs=costs, **about)


def _find_place(run: RunFolder, hospital: str) -> str:
    """The folder below that of a K with the scores at a hospital; empty for the test set of the study itself."""
    tested = {entry["name"]: entry["is_test_set"] for entry in run.hospitals.get("hospitals", [])}
    if tested and hospital not in tested:
        raise ChestfedError(f"{run.path}: nothing was scored at {hospital}", kind="not scored", hospital=hospital)
    return "" if tested.get(hospital, True) else f"{HOSPITALS}/{hospital}"


def _list_results(runs: Sequence[RunFolder], benchmark: Benchmark) -> Iterator[SubmittedResult]:
    for run, k, hospital in product(runs, benchmark.k, benchmark.targets):
        place = _find_place(run, hospital)
        row = read_row(run.scored_folder(k, place)) if place else run.row(k)
        yield SubmittedResult(hospital=hospital, seed=run.settings.seed, row=replace(row, clients=()).to_plain())
