"""A finished study's run folder, read and checked."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from chestfed.core.errors import ChestfedError
from chestfed.core.provenance import Origin
from chestfed.evaluation.auc import auc_per_disease
from chestfed.evaluation.labelled import numbered
from chestfed.results.table import Row, StudyTable, as_json
from chestfed.results.timing import SECONDS, read_round_times

#: The trained network of one K, in its folder `kN` and among the artifacts of an MLflow run.
MODEL_FILE = "model.safetensors"


@dataclass(frozen=True)
class KResult:
    """What one K left behind.

    Attributes
    ----------
    scores, labels
        float64 `[n, J]`; labels in {0, 1, NaN}.
    patients
        int `[n]`, running numbers.
    rounds
        The entries of `rounds.jsonl`, each with its `seconds`, or None where they are not known.
    time
        Seconds of training, and whether that was only its last part; empty in folders of earlier versions.
    """

    k: int
    clients: tuple[str, ...]
    scores: np.ndarray
    labels: np.ndarray
    patients: np.ndarray
    rounds: list[dict[str, Any]]
    time: dict[str, Any]


@dataclass(frozen=True)
class RunFolder:
    """All of a finished study. `sites` is None, and `thumbnails` empty, in folders of earlier versions."""

    path: Path
    study: dict[str, Any]
    table: dict[str, Any]
    diseases: tuple[str, ...]
    results: tuple[KResult, ...]
    sites: dict[str, Any] | None
    thumbnails: dict[str, np.ndarray]

    @property
    def origin(self) -> Origin:
        """Of all sites together."""
        return Origin.read(self.study) or Origin.REAL


def read_run_folder(path: Path) -> RunFolder:
    """Read the folder of a finished study.

    Raises
    ------
    ChestfedError
        If it is no run folder, the study is not finished, or a file is missing, damaged or of another study; with what
        to do.
    """
    if not (path / "study.json").is_file():
        raise ChestfedError(_no_run_folder(path))
    try:
        return _read(path)
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise ChestfedError(
            f"{path}: a file of this study has not the content that it should have ({type(error).__name__}: {error}). "
            "Remove the folder, or the part kN that is concerned, and run the same `chestfed study` again."
        ) from None


def read_one_k(folder: Path, row: Row, table: StudyTable) -> RunFolder:
    """The finished K in `folder` as if it were the only one of its study, which need not be finished; without sites.

    Raises
    ------
    ChestfedError
        If a file is missing or damaged.
    """
    alone = as_json(replace(table, rows=(row,)))
    diseases = tuple(result.disease for result in row.diseases)
    result = _k_result(folder, alone["rows"][0], diseases)
    return RunFolder(folder, table.origin.keys(), alone, diseases, (result,), None, {})


def _read(path: Path) -> RunFolder:
    study = _json(path / "study.json")
    wanted = list(study["configuration"]["k"])
    unfinished = [k for k in wanted if not (path / f"k{k}" / "result.json").is_file()]
    if unfinished or not (path / "table.json").is_file():
        still = ", ".join(f"K={k}" for k in unfinished) or "its table"
        raise ChestfedError(
            f"{path}: this study is not finished, {still} is still to come. The same `chestfed study` command goes on "
            "where it was; make the report then."
        )
    table = _json(path / "table.json")
    if [row["k"] for row in table["rows"]] != wanted:
        raise ChestfedError(f"{path / 'table.json'}: not all K of the study are in it. Run the same study again.")
    diseases = tuple(table["rows"][0]["diseases"])
    results = tuple(_k_result(path / f"k{row['k']}", row, diseases) for row in table["rows"])
    first = results[0]
    for other in results[1:]:
        same_labels = np.array_equal(first.labels, other.labels, equal_nan=True)
        if not (same_labels and np.array_equal(first.patients, other.patients)):
            raise ChestfedError(
                f"{path}: K={first.k} and K={other.k} were not scored on the same test images. Remove the folder and "
                "run the same study again."
            )
    sites = _json(path / "sites.json") if (path / "sites.json").is_file() else None
    return RunFolder(path, study, table, diseases, results, sites, _thumbnails(path / "thumbnails.npz"))


def _k_result(folder: Path, row: dict[str, Any], diseases: tuple[str, ...]) -> KResult:
    file = folder / "predictions.parquet"
    try:
        frame = pd.read_parquet(file)
    except (OSError, ValueError) as error:  # pyarrow's errors are among them
        raise ChestfedError(_damaged(file, error)) from None
    scores = frame[[f"score_{disease}" for disease in diseases]].to_numpy(np.float64)
    labels = frame[[f"label_{disease}" for disease in diseases]].to_numpy(np.float64)
    for found in auc_per_disease(scores, labels, diseases):
        expected = row["diseases"][found.disease]["auc"]
        if (found.auc is None) != (expected is None) or abs((found.auc or 0) - (expected or 0)) > 1e-9:
            raise ChestfedError(
                f"{file}: its AUC of {found.disease} is {found.auc}, but table.json says {expected}. They are not of "
                f"the same run: remove {folder} and run the same study again."
            )
    time = _json(folder / "time.json") if (folder / "time.json").is_file() else {}
    seconds = read_round_times(folder / SECONDS)
    rounds = [{**entry, "seconds": seconds.get(entry["round"])} for entry in _rounds(folder / "rounds.jsonl")]
    return KResult(row["k"], tuple(row["clients"]), scores, labels, numbered(frame["patient"].to_numpy()), rounds, time)


def _rounds(file: Path) -> list[dict[str, Any]]:
    try:
        entries = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise ChestfedError(_damaged(file, error)) from None
    if not entries:
        raise ChestfedError(_damaged(file, "it is empty"))
    return entries


def _json(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ChestfedError(_damaged(file, error)) from None


def _thumbnails(file: Path) -> dict[str, np.ndarray]:
    if not file.is_file():
        return {}
    try:
        with np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ChestfedError(_damaged(file, error)) from None


def _damaged(file: Path, why: object) -> str:
    return f"{file}: cannot be read ({why}). Remove {file.parent} and run the same study again, or restore the file."


def _no_run_folder(path: Path) -> str:
    if not path.is_dir():
        return f"{path}: there is no such folder. Give a run folder, such as runs/synthetic-NAME-DIGEST."
    if (path / "comparison.json").is_file():
        return f"{path}: this is a comparison of several studies. Give the folder of one of those listed there."
    inside = sorted(file.parent.name for file in path.glob("*/study.json"))
    if inside:
        return f"{path} holds several run folders; give one of them: {', '.join(inside)}"
    return f"{path}: this is no run folder, it has no study.json. `chestfed study` prints the folder that it writes to."
