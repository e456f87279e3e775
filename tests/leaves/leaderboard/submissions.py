"""A small benchmark, runs on its test images, and files that were changed after they were written."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from chestfed.core.provenance import Origin
from chestfed.leaves.leaderboard.benchmark import Benchmark, Split, Target, digest_split
from chestfed.leaves.leaderboard.making import make_header, make_scores, open_runs
from chestfed.leaves.leaderboard.submission import HEADER, SCORES, SubmittedMethod, write_submission
from tests.results.tables.finished_runs import IMAGES, NAMES, labels_and_patients, write_run

Parts = dict[str, bytes]


def make_split() -> Split:
    """The test images of `write_run`."""
    labels, patients = labels_and_patients()
    frame = pd.DataFrame({"image": [f"{n:032x}" for n in range(IMAGES)], "patient": patients})
    for j, name in enumerate(NAMES):
        frame[f"label_{name}"] = labels[:, j]
    return Split(frame, np.arange(IMAGES), Origin.SYNTHETIC)


def make_benchmark(**changes: Any) -> Benchmark:
    frame = make_split().frame
    target = {"images": IMAGES, "patients": int(frame["patient"].nunique()), "digest": digest_split(frame, NAMES)}
    plain = {"name": "small-v1", "published": "2026-11-24", "title": "Small", "question": "Which?", "pipeline": "any"}
    targets = {"site0": Target(**target | changes.pop("target", {}))}
    return Benchmark(**plain | {"k": [1, 2], "diseases": [*NAMES], "targets": targets} | changes)


def submit(folder: Path, **method: str) -> Path:
    """A file of two seeds, whose runs are in the same folder."""
    runs = open_runs([write_run(folder / f"run-{seed}", seed=seed, compared=False) for seed in (1, 2)])
    header = make_header(runs, make_benchmark(), SubmittedMethod(**{"name": "ours", **method}))
    write_submission(folder / "ours.zip", header, make_scores(runs, make_benchmark(), {}))
    return folder / "ours.zip"


def read_parts(file: Path) -> Parts:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_parts(file: Path, parts: Parts) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return file


def forge(file: Path, change: Callable[[dict[str, Any], list[str]], None]) -> Path:
    """The file with another header and other lines of scores, and with all digests made anew."""
    parts = read_parts(file)
    header = json.loads(parts.pop(HEADER))
    del header["sha256"]
    lines = parts[SCORES].decode().splitlines() if SCORES in parts else []
    change(header, lines)
    if SCORES in parts:
        parts[SCORES] = "".join(f"{line}\n" for line in lines).encode()
    header["parts"] = {name: hashlib.sha256(part).hexdigest() for name, part in parts.items()}
    text = json.dumps(header, sort_keys=True, separators=(",", ":"))
    header["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    return write_parts(file, parts | {HEADER: json.dumps(header).encode()})
