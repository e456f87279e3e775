"""The files that a study leaves behind: one checked way to read each of them, and the clock of its rounds.

Seconds are not in `rounds.jsonl` because they differ between runs, while everything there is reproducible.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NotRequired, TypedDict

import numpy as np
import pandas as pd

from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.manifest import Part, find_damage
from chestfed.results.evaluation.labeled import Scored

RESULT: Final = "result.json"  #: of a model at a place: AUCs and intervals
SECONDS: Final = "seconds.jsonl"


class DiseaseCounts(TypedDict):
    """Images with and without a disease, and the share of positives among the labeled; None without labels."""

    positives: int
    negatives: int
    missing: int
    prevalence: float | None


class SiteCard(TypedDict):
    """A client, or the test images, in `sites.json`."""

    name: str
    role: str  #: client or test
    data: str  #: `Origin`
    images: int
    unreadable: int
    rows: int
    diseases: dict[str, DiseaseCounts]
    gray_levels: list[int]
    shown: list[list[str]]  #: the positive diseases of each small image
    weight: NotRequired[float]  #: in every mean of the largest K
    classes: NotRequired[list[int]]


class People(TypedDict):
    """Who is in the training or the test images of a hospital; `age` are quartiles in years."""

    images: int
    patients: int
    women: float | None
    age: tuple[float, float, float] | None
    views: dict[str, int]


class LabelPolicy(TypedDict):
    """Policy for uncertain and unmentioned labels, and repetitions of positives, by disease."""

    uncertain: dict[str, str]
    blank: dict[str, str]
    upsample: dict[str, int]


class HospitalFacts(TypedDict):
    """A hospital in `sites.json`."""

    site: str
    title: str
    license: str
    source: str
    citation: str
    reference_standard: str
    policy: LabelPolicy
    found: int
    left_out: dict[str, int]
    people: dict[str, People]


class Sites(TypedDict):
    """The content of `sites.json`."""

    sites: list[SiteCard]
    hospitals: list[HospitalFacts]


class Round(TypedDict):
    """A line of `rounds.jsonl`; `seconds` is added from its own file."""

    round: int
    stage: int
    loss: float
    bytes_up: int
    bytes_down: int
    images: int
    gradients: int
    seconds: NotRequired[float | None]
    drift: NotRequired[float]
    gradient_drift: NotRequired[float]
    auc: NotRequired[dict[str, float | None]]
    mean_auc: NotRequired[float | None]
    absent: NotRequired[list[str]]
    epsilon: NotRequired[float]
    epsilon_of_all: NotRequired[float]
    auc_of_last: NotRequired[float | None]
    auc_of_average: NotRequired[float | None]


def read_json_file(file: Path, *, optional: bool = False) -> Any:
    """The content of a JSON file; None if it may be missing and is."""
    if optional and not file.is_file():
        return None
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise make_damage_error(file, error) from None


@contextmanager
def expected(file: Path) -> Iterator[None]:
    """Name the file if its content is not what it should be."""
    try:
        yield
    except (KeyError, TypeError, IndexError, AttributeError, ValueError, OSError) as error:
        raise make_damage_error(file, f"unexpected content, {type(error).__name__}: {error}") from None


def make_damage_error(file: Path, why: object) -> ChestfedError:
    """The error about a file that cannot be read."""
    return ChestfedError(
        f"{file}: cannot be read ({why}). Restore the file, or remove {file.parent} and run the same study again."
    )


def check_files(
    folder: Path, part: Part, needed: Sequence[str], remedy: str = "Run the same `chestfed study` again"
) -> None:
    """Compare a folder and its files with its manifest.

    Raises `ChestfedError` if a file is damaged or missing, which `remedy` makes again, or if it holds another part.
    """
    try:
        bad = find_damage(folder, part, needed)
    except OSError as error:
        raise ChestfedError(f"{error.filename}: cannot be read: {error.strerror}") from None
    if bad:
        names = ", ".join(str(folder / name) for name in bad)
        text = f"{names}: damaged or missing. {remedy}: it makes again what is damaged."
        raise ChestfedError(text, kind="damaged or missing", files=tuple(bad))


def scored_frame(frame: pd.DataFrame, diseases: Sequence[str], patients: np.ndarray | None = None) -> Scored:
    """Predictions as arrays; the patients by their names in them, unless others are given.

    With a column `hospital`, which a study writes where it averages over hospitals, AUCs are means of the hospitals'.
    """
    scores, labels = (
        frame[[f"{part}_{disease}" for disease in diseases]].to_numpy(np.float64) for part in ("score", "label")
    )
    hospitals = frame["hospital"].to_numpy() if "hospital" in frame else None
    return Scored(scores, labels, frame["patient"].to_numpy() if patients is None else patients, diseases, hospitals)


def read_predictions(file: Path) -> pd.DataFrame:
    """Scores and labels as a study or an evaluation wrote them, checked.

    Raises `ConfigError` if the file cannot be read, a column or a score is missing, or a label is not 0, 1 or empty.
    """
    try:
        frame = pd.read_parquet(file, engine="pyarrow", page_checksum_verification=True)
    except FileNotFoundError:
        if not file.parent.exists():
            raise ConfigError(f"{file.parent}: no such folder") from None
        raise ConfigError(
            f"{file}: no such file. A finished study or an evaluation has it, unless a hospital of a federation keeps "
            "its scores (leaves.results: aucs): then there are AUCs and their intervals, and nothing else"
        ) from None
    except Exception as error:  # a damaged schema gives many kinds, KeyError and MemoryError among them
        reason = str(error) or type(error).__name__
        text = f"{file}: cannot be read: {reason}. Restore it, or run or score again"
        raise ConfigError(text, kind="cannot be read", file=file) from None
    scored = [name.removeprefix("score_") for name in frame.columns if name.startswith("score_")]
    needed = {"image", "patient", *(f"label_{name}" for name in scored)}
    if not scored or not needed <= set(frame.columns):
        text = f"{file}: not predictions of chestfed: image, patient, score_... and label_... are needed"
        raise ConfigError(text, kind="not predictions", file=file)
    for name in scored:
        try:
            score, label = (frame[f"{p}_{name}"].to_numpy(np.float64, na_value=np.nan) for p in ("score", "label"))
        except (TypeError, ValueError):
            raise ConfigError(f"{file}: score_{name} and label_{name} must be numbers") from None
        known = ~np.isnan(label)
        if not np.isin(label[known], (0, 1)).all():
            text = f"{file}: label_{name} has values other than 0, 1 and empty"
            raise ConfigError(text, kind="invalid label", file=file, disease=name)
        if missing := int((~np.isfinite(score[known])).sum()):
            text = f"{file}: score_{name} is empty or infinite for {missing} labeled images"
            raise ConfigError(text, kind="missing scores", file=file, disease=name, missing=missing)
    return frame


def read_rounds(file: Path) -> list[Round]:
    """The entries of `rounds.jsonl`; raises `ChestfedError` if the file is damaged."""
    try:
        entries = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise make_damage_error(file, error) from None
    if not all(isinstance(entry, dict) and "round" in entry for entry in entries):
        raise make_damage_error(file, "a line is not about a round")
    if not entries:
        raise make_damage_error(file, "it is empty")
    return entries


class RoundTimes:
    """The clock of one K, which starts on construction.

    If `resumed`, the run goes on from a saved state: the first `reached` names its last round, which is not timed.
    """

    def __init__(self, file: Path, *, resumed: bool) -> None:
        self._file = file
        self._resumed = resumed
        self._start = time.monotonic()

    def reached(self, number: int) -> None:
        """Round `number` (from 1) is done: write its duration."""
        if self._resumed:
            self._resumed = False
            return
        entry = {"round": number, "seconds": round(time.monotonic() - self._start, 4)}
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def next_round(self) -> None:
        """The next round begins now."""
        self._start = time.monotonic()


def read_round_times(file: Path) -> dict[int, float]:
    """Seconds by round; empty without the file, as after a resumed last round.

    A round repeated after an interruption has its last time. A half-written line, as after a power cut, is skipped.
    """
    if not file.is_file():
        return {}
    times: dict[int, float] = {}
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
            times[int(entry["round"])] = float(entry["seconds"])
        except (ValueError, KeyError, TypeError):
            continue
    return times
