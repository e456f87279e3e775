"""The folder that a study leaves behind: what its files are called, and the one way to read them.

    runs/<pipeline>-<digest>/
        study.json                      identity: configuration, digests, versions
        sites.json, thumbnails.npz      what a report says of the sites
        k1/ k2/ ...                     per K: result.json, predictions.parquet, model.safetensors,
                                        rounds.jsonl, seconds.jsonl, time.json, manifest.json
        table.csv, significance.csv     AUCs and differences, and others of `VIEWS`
        federation.json                 of a study over hospitals: who took part
        manifest.json                   which run this is, and digests of the files beside it; each K has its own

Everything is read when it is asked for, and then kept; the manifest beside it is compared with the files before that.
"""

from __future__ import annotations

import json
import operator
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from chestfed.core.diseases import give_titles
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.manifest import MANIFEST, Part, find_damage
from chestfed.core.provenance import Origin
from chestfed.evaluation.labeled import Column, Scored
from chestfed.evaluation.protocols import describe_hospitals
from chestfed.results.table import Row
from chestfed.results.timing import SECONDS, read_round_times

STUDY: Final = "study.json"
SITES: Final = "sites.json"
THUMBNAILS: Final = "thumbnails.npz"
HOSPITALS_FILE: Final = "hospitals.json"
FEDERATION: Final = "federation.json"  #: of a study over hospitals: who took part, on which machines
COMPARISON: Final = "comparison.json"
#: View of results (`frames`) -> its files of estimates and of differences, if it has these.
VIEWS: Final = {
    "study": ("table.csv", "significance.csv"),
    "hospitals": ("hospitals.csv", "hospital_gains.csv"),
    "alternatives": ("alternatives.csv", "alternative_gains.csv"),
    "seeds": ("results.csv", ""),
    "held_out": ("held_out.csv", ""),
}
TABLES: Final = tuple(name for pair in VIEWS.values() for name in pair if name)
#: What the manifest of a run folder is about.
FILES: Final = (STUDY, SITES, THUMBNAILS, HOSPITALS_FILE, FEDERATION, *TABLES)
#: In the folder of an evaluation.
EVALUATION: Final = "evaluation.json"
#: In the folder of a K; HOSPITALS is a folder, with one of each hospital.
HOSPITALS: Final = "hospitals"
#: In the folder of the largest K: what hospitals could do instead, by kind and hospital.
ALTERNATIVES: Final = "alternatives"
OWN_DATA, FINE_TUNED, CENTRALIZED = "own_data", "fine_tuned", "centralized"
RESULT: Final = "result.json"
PREDICTIONS: Final = "predictions.parquet"
ROUNDS: Final = "rounds.jsonl"
TIME: Final = "time.json"
MODEL_FILE: Final = "model.safetensors"
#: What the manifest of a K is about.
FILES_OF_K: Final = (RESULT, PREDICTIONS, MODEL_FILE, ROUNDS, SECONDS, TIME)
#: What no finished K is without; predictions are missing where scores stay at a hospital.
NEEDED_OF_K: Final = (RESULT, MODEL_FILE, ROUNDS)


@dataclass(frozen=True)
class Settings:
    """A study as it was to be run: all that results read of a resolved pipeline."""

    ks: tuple[int, ...]  #: the K that were to be run
    seed: int
    algorithm: str
    objective: str  #: its name and options, as `auc, margin 1.0`
    window: int  #: local steps per round
    resamples: int  #: of the intervals and comparisons; 0: none were wanted
    protocol: str  #: which images are scored
    #: Whether each K adds a hospital; else clients are parts of a hospital, or of a public collection.
    adds_hospitals: bool
    tests_first_hospital: bool  #: whether all test images are of the first hospital
    local_lr: float | None = None  #: `federated.local_lr`, the step size with which stage 2 begins
    over_hospitals: str = ""  #: what an AUC is that is over several hospitals: `describe_hospitals`

    @property
    def where(self) -> str:
        """Where the AUCs are measured, for captions."""
        return "at the first hospital" if self.tests_first_hospital else "on the test images"

    @classmethod
    def of(cls, configuration: Mapping[str, Any]) -> Settings:
        """From the `configuration` of a `study.json`."""
        federated, evaluation = configuration["federated"], configuration["evaluation"]
        sites, loss = configuration.get("sites") or [], federated.get("objective")
        options = {key: value for key, value in loss.items() if key != "name"} if isinstance(loss, Mapping) else {}
        adds = len(sites) > 1 and all(site["clients"] == 1 for site in sites)
        tested = 1 if configuration.get("held_out") else sum(site["test_fraction"] is not None for site in sites)
        several = describe_hospitals(tested, evaluation["over_hospitals"]) if tested > 1 else ""
        return cls(
            ks=tuple(configuration["k"]),
            seed=int(configuration["seed"]),
            algorithm=_name(federated["algorithm"]),
            objective=", ".join([_name(loss), *(f"{key} {value}" for key, value in options.items())]),
            window=int(federated["window"]),
            resamples=int(evaluation["resamples"]),
            protocol=evaluation["protocol"] + several if sites else "test images",
            adds_hospitals=adds,
            tests_first_hospital=adds and sum(site["test_fraction"] is not None for site in sites) < 2,
            local_lr=federated.get("local_lr"),
            over_hospitals=several,
        )


def _name(part: Any) -> str:
    return str(part["name"] if isinstance(part, Mapping) else part or "")


@dataclass(frozen=True, eq=False)
class RunFolder:
    """A study, finished or not, in its run folder. `RunFolder.open` checks first that it is one."""

    path: Path
    _kept: dict[Path, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """Open a run folder, or the only one inside a folder of them, such as `runs`.

        Raises `ConfigError` if it is not one, or holds several: then they are named; `ChestfedError` if a file of it is
        damaged.
        """
        folder = Path(path)
        inside = sorted(file.parent for file in folder.glob(f"*/{STUDY}"))
        if not (folder / STUDY).is_file() and len(inside) == 1:
            (folder,) = inside
        if not (folder / STUDY).is_file():
            raise ConfigError(_not_a_run_folder(folder, inside))
        check_files(folder, Part(None, "."), (STUDY,))
        run = cls(folder)
        with expected(folder / STUDY):  # what is damaged is named before anything is made of it
            run.title, run.settings, run.origin  # noqa: B018
            give_titles(run.configuration.get("titles", {}))
        return run

    # ---- what was to be run -------------------------------------------------------------------------------------

    @cached_property
    def about(self) -> dict[str, Any]:
        """All of `study.json`."""
        return read_json_file(self.path / STUDY)

    @property
    def digest(self) -> str:
        """The identity of the study."""
        with expected(self.path / STUDY):
            return str(self.about["digest"])

    @property
    def title(self) -> str:
        """As in the tables."""
        return str(self.about["title"])

    @property
    def origin(self) -> Origin:
        """Of all sites together."""
        return Origin(self.about["data"])

    @property
    def configuration(self) -> dict[str, Any]:
        """The resolved pipeline as plain data."""
        return self.about["configuration"]

    @property
    def pipeline_file(self) -> dict[str, Any]:
        """The resolved configuration in the form of a pipeline's file, whose only method is that of the study."""
        data = {key: value for key, value in self.configuration.items() if key not in ("method", "federated")}
        federated = dict(self.configuration["federated"])
        parts = {key: federated.pop(key) for key in ("algorithm", "objective") if key in federated}
        name = {"name": self.configuration["method"]} if "method" in self.configuration else {}
        return {**data, "methods": [name | parts], "federated": federated}

    @cached_property
    def settings(self) -> Settings:
        """What tables, pages and names need of the configuration."""
        with expected(self.path / STUDY):
            return Settings.of(self.configuration)

    @property
    def pipeline_name(self) -> str:
        """From the folder's name, `<pipeline>-<digest>`; `study` if it was renamed."""
        name = self.path.resolve().name.removeprefix(self.origin.prefix)
        end = f"-{self.digest}"
        return name.removesuffix(end) if name.endswith(end) else "study"

    # ---- what came of it ----------------------------------------------------------------------------------------

    @property
    def ks(self) -> tuple[int, ...]:
        """The finished K, rising."""
        names = (file.parent.name[1:] for file in self.path.glob(f"k*/{RESULT}"))
        return tuple(sorted(int(name) for name in names if name.isdigit()))

    def folder(self, k: int | None = None) -> Path:
        """The folder of a K, by default of the largest that is finished.

        Raises `ConfigError` if that K does not exist or is not finished; `ChestfedError` if a file in it is damaged or
        missing, or the folder holds another K, or one of another run.
        """
        try:
            k = None if k is None else int(operator.index(k))
        except TypeError:
            raise ConfigError(f"k={k!r}: give a whole number") from None
        finished = self.ks
        if not finished:
            raise ConfigError(f"{self.path}: no K of this study is finished yet; run `chestfed study` again to resume")
        if k is not None and k not in finished:
            names = ", ".join(f"K={one}" for one in finished)
            raise ConfigError(f"{self.path}: K={k} does not exist or is not finished; finished: {names}")
        return self.part(f"k{finished[-1] if k is None else k}", NEEDED_OF_K)

    def scored_folder(self, k: int, place: str) -> Path:
        """A folder below that of a K with the result at a hospital, such as `hospitals/NAME`; raises as `folder`."""
        folder = self.folder(k) / place
        if not (folder / RESULT).is_file():
            raise ChestfedError(f"{folder}: nothing was scored there yet. Run the same `chestfed study` command again.")
        return self.part(f"k{k}/{place}", (RESULT,))

    def part(self, place: str, needed: Sequence[str]) -> Path:
        """A folder of this run, checked."""
        folder = self.path / place
        self._once(folder / MANIFEST, lambda _: check_files(folder, Part(self.digest, place), needed))
        return folder

    def row(self, k: int | None = None) -> Row:
        """AUCs and intervals of a K, from its `result.json`."""
        return self._once(self.folder(k) / RESULT, lambda file: read_row(file.parent))

    @property
    def scores_stay(self) -> bool:
        """Whether there are AUCs alone for some K: the scores stayed at a hospital."""
        return any(self.row(k).scores_stay for k in self.ks)

    @property
    def diseases(self) -> tuple[str, ...]:
        """In the order of the table."""
        return tuple(one.disease for one in self.row().diseases)

    def predictions(self, k: int | None = None) -> pd.DataFrame:
        """One row per test image: keyed names of image and patient, and score and label of each disease."""
        return self._once(self.folder(k) / PREDICTIONS, read_predictions)

    def columns(self, k: int | None = None) -> list[Column]:
        """The labeled test images of each disease."""
        return self._once(self.folder(k), lambda _: self._columns(k))

    def _columns(self, k: int | None) -> list[Column]:
        row, found = self.row(k), self.predictions(k)
        with expected(self.folder(k) / PREDICTIONS):
            return scored_frame(found, [one.disease for one in row.diseases]).columns()

    def rounds(self, k: int | None = None) -> list[dict[str, Any]]:
        """The entries of `rounds.jsonl`, each with its `seconds`, or None where they are not known."""
        folder = self.folder(k)
        seconds = read_round_times(folder / SECONDS)
        entries = self._once(folder / ROUNDS, _lines)
        return [{**entry, "seconds": seconds.get(entry["round"])} for entry in entries]

    def time(self, k: int | None = None) -> dict[str, Any]:
        """Seconds of training, and whether that was only its last part."""
        content: dict[str, Any] = read_json_file(self.folder(k) / TIME)
        return content

    @cached_property
    def sites(self) -> dict[str, Any]:
        """Counts, prevalences and gray levels of the sites."""
        content: dict[str, Any] = read_json_file(self.path / SITES)
        return content

    @cached_property
    def thumbnails(self) -> dict[str, np.ndarray]:
        """Small images by the number of their site; empty if the images are at other hospitals."""
        file = self.path / THUMBNAILS
        if not file.is_file():
            return {}
        try:
            with np.load(file, allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise _damaged(file, error) from None

    @cached_property
    def hospitals(self) -> dict[str, Any]:
        """Whose own held-out patients every K is scored on (`hospitals.json`); empty if only the target was scored."""
        return read_json_file(self.path / HOSPITALS_FILE, optional=True) or {}

    @cached_property
    def federation(self) -> dict[str, Any] | None:
        """Of a study over hospitals who took part, on which machines (`federation.json`); else None."""
        return read_json_file(self.path / FEDERATION, optional=True)

    def check_finished(self) -> None:
        """Make sure that all K are done and their files undamaged.

        Raises `ChestfedError` if not; with what to do.
        """
        missing = ", ".join(f"K={k}" for k in self.settings.ks if k not in self.ks)
        if missing or not (self.path / VIEWS["study"][0]).is_file():
            raise ChestfedError(
                f"{self.path}: this study is not finished: {missing or 'its table'} is missing. Run the same "
                "`chestfed study` command to resume it; make the report then."
            )
        for k in self.settings.ks:
            self.folder(k)

    def _once(self, place: Path, read: Callable[[Path], Any]) -> Any:
        if place not in self._kept:
            self._kept[place] = read(place)
        return self._kept[place]


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
        raise ChestfedError(f"{names}: damaged or missing. {remedy}: it makes again what is damaged.")


def read_row(folder: Path) -> Row:
    """The result in a folder of one K, or of one hospital that was scored besides."""
    plain = read_json_file(folder / RESULT)
    with expected(folder / RESULT):
        return Row.from_plain(plain)


def scored_frame(found: pd.DataFrame, diseases: Sequence[str], patients: np.ndarray | None = None) -> Scored:
    """Predictions as arrays; the patients by their names in them, unless others are given.

    With a column `hospital`, which a study writes where it averages over hospitals, AUCs are means of the hospitals'.
    """
    scores, labels = (found[[f"{part}_{one}" for one in diseases]].to_numpy(np.float64) for part in ("score", "label"))
    hospitals = found["hospital"].to_numpy() if "hospital" in found else None
    return Scored(scores, labels, found["patient"].to_numpy() if patients is None else patients, diseases, hospitals)


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
        raise ConfigError(f"{file}: cannot be read: {reason}. Restore it, or run or score again") from None
    scored = [name.removeprefix("score_") for name in frame.columns if name.startswith("score_")]
    needed = {"image", "patient", *(f"label_{name}" for name in scored)}
    if not scored or not needed <= set(frame.columns):
        raise ConfigError(f"{file}: not predictions of chestfed: image, patient, score_... and label_... are needed")
    for name in scored:
        try:
            score, label = (frame[f"{p}_{name}"].to_numpy(np.float64, na_value=np.nan) for p in ("score", "label"))
        except (TypeError, ValueError):
            raise ConfigError(f"{file}: score_{name} and label_{name} must be numbers") from None
        known = ~np.isnan(label)
        if not np.isin(label[known], (0, 1)).all():
            raise ConfigError(f"{file}: label_{name} has values other than 0, 1 and empty")
        if missing := int((~np.isfinite(score[known])).sum()):
            raise ConfigError(f"{file}: score_{name} is empty or infinite for {missing} labeled images")
    return frame


def _lines(file: Path) -> list[dict[str, Any]]:
    try:
        entries = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise _damaged(file, error) from None
    if not all(isinstance(entry, dict) and "round" in entry for entry in entries):
        raise _damaged(file, "a line is not about a round")
    if not entries:
        raise _damaged(file, "it is empty")
    return entries


def read_json_file(file: Path, *, optional: bool = False) -> Any:
    """The content of a JSON file; None if it may be missing and is."""
    if optional and not file.is_file():
        return None
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(file, error) from None


@contextmanager
def expected(file: Path) -> Iterator[None]:
    """Name the file if its content is not what it should be."""
    try:
        yield
    except (KeyError, TypeError, IndexError, AttributeError, ValueError, OSError) as error:
        raise _damaged(file, f"unexpected content, {type(error).__name__}: {error}") from None


def _damaged(file: Path, why: object) -> ChestfedError:
    return ChestfedError(
        f"{file}: cannot be read ({why}). Restore the file, or remove {file.parent} and run the same study again."
    )


def _not_a_run_folder(path: Path, inside: Sequence[Path]) -> str:
    if not path.is_dir():
        return f"{path}: no such folder. Give a run folder, such as runs/synthetic-NAME-DIGEST."
    if (path / COMPARISON).is_file():
        with expected(path / COMPARISON):
            names = dict.fromkeys(str(one["folder"]) for one in read_json_file(path / COMPARISON)["runs"])
        return f"{path}: this is a comparison of several studies. Give folders of these, beside it: {', '.join(names)}"
    if inside:
        names = dict.fromkeys(file.parent.name for file in sorted(path.glob(f"*/{COMPARISON}")))
        together = f"; of several studies together: {', '.join(names)}" if names else ""
        each = ", ".join(folder.name for folder in inside)
        return f"{path} holds {len(inside)} studies; open one of them: {each}{together}"
    return f"{path}: not the run folder of a study: it has no {STUDY}. `chestfed study` prints the folder it writes to."
