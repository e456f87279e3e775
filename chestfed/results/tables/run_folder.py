"""The folder that a study leaves behind: what its files are called, and the one way to read them.

    runs/<pipeline>-<digest>/
        study.json                      identity: configuration, digests, versions
        sites.json, thumbnails.npz      what a report says of the sites
        trained_patients.parquet        keyed names of training patients
        k1/ k2/ ...                     per K: result.json, predictions.parquet, model.safetensors,
                                        rounds.jsonl, seconds.jsonl, time.json, made_with.json, manifest.json
        table.csv, significance.csv     AUCs and differences, and others of `VIEWS`
        federation.json                 of a study over hospitals: who took part
        manifest.json                   which run this is, and digests of the files beside it; each K has its own

Everything is read when it is asked for, and then kept; the manifest beside it is compared with the files before that.
"""

from __future__ import annotations

import operator
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from chestfed.core.bundled import advise_run, recognize
from chestfed.core.diseases import give_titles
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.manifest import MANIFEST, Part
from chestfed.core.provenance import Origin
from chestfed.results.evaluation.labeled import NO_ROTATION, Column, Rotation
from chestfed.results.evaluation.protocols import describe_hospitals
from chestfed.results.tables.files import RESULT as RESULT
from chestfed.results.tables.files import (
    SECONDS,
    Round,
    Sites,
    check_files,
    expected,
    make_damage_error,
    read_json_file,
    read_predictions,
    read_round_times,
    read_rounds,
    scored_frame,
)
from chestfed.results.tables.frames import TABLES, VIEWS, Row, read_row
from chestfed.results.tables.made_with import MADE_WITH

STUDY: Final = "study.json"
SITES: Final = "sites.json"
THUMBNAILS: Final = "thumbnails.npz"
#: Keyed names of the patients that the models are trained on; in no manifest, since it may be left out of a copy.
TRAINED: Final = "trained_patients.parquet"
HOSPITALS_FILE: Final = "hospitals.json"
FEDERATION: Final = "federation.json"  #: of a study over hospitals: who took part, on which machines
STAGE_1: Final = "stage_1.json"  #: AUCs of the network as stage 1 left it, where the test images are at hand
COMPARISON: Final = "comparison.json"
#: Files in the manifest of a run folder.
FILES: Final = (STUDY, SITES, THUMBNAILS, HOSPITALS_FILE, FEDERATION, STAGE_1, *TABLES)
#: In the folder of an evaluation.
EVALUATION: Final = "evaluation.json"
#: In the folder of a K; HOSPITALS is a folder, with one of each hospital.
HOSPITALS: Final = "hospitals"
#: In the folder of the largest K: what hospitals could do instead, by kind and hospital.
ALTERNATIVES: Final = "alternatives"
#: In the folder of an alternative at a hospital: what was chosen on its validation patients, and from what.
CHOICE: Final = "choice.json"
PREDICTIONS: Final = "predictions.parquet"
ROUNDS: Final = "rounds.jsonl"
TIME: Final = "time.json"
MODEL_FILE: Final = "model.safetensors"
MISTAKES: Final = "mistakes.npz"  #: of the largest K: small images that it misjudges
COMMON_FILE: Final = "common.safetensors"  #: of a personal algorithm: the model for images of no client
#: Counters of a round, over all clients.
COUNTERS: Final[tuple[Literal["bytes_up", "bytes_down", "images", "gradients"], ...]] = (
    *("bytes_up", "bytes_down"),
    *("images", "gradients"),
)
#: Files in the manifest of a K.
FILES_OF_K: Final = (RESULT, PREDICTIONS, MODEL_FILE, COMMON_FILE, ROUNDS, SECONDS, TIME, MISTAKES, CHOICE, MADE_WITH)
#: Files that every finished K has; predictions are missing where scores stay at a hospital.
NEEDED_OF_K: Final = (RESULT, MODEL_FILE, ROUNDS)


@dataclass(frozen=True)
class Settings:
    """A study as it was to be run: all that results read of a resolved pipeline."""

    ks: tuple[int, ...]  #: the K that were to be run
    seed: int
    algorithm: str
    method: str  #: its name in tables
    objective: str  #: its name and options, as `auc, margin 1.0`
    window: int  #: local steps per round
    resamples: int  #: of the intervals and comparisons; 0: none were wanted
    protocol: str  #: which images are scored
    #: Whether each K adds a hospital; else clients are parts of a hospital, or of a public collection.
    adds_hospitals: bool
    tests_first_hospital: bool  #: whether all test images are of the first hospital
    split: int = 0  #: number of the split of patients
    rotation: Rotation = NO_ROTATION  #: how patients differ between splits; of each number the most of any site
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
            method=str(configuration.get("method") or _name(federated["algorithm"])),
            objective=", ".join([_name(loss), *(f"{key} {value}" for key, value in options.items())]),
            window=int(federated["window"]),
            resamples=int(evaluation["resamples"]),
            protocol=evaluation["protocol"] + several if sites else "test images",
            adds_hospitals=adds,
            tests_first_hospital=adds and sum(site["test_fraction"] is not None for site in sites) < 2,
            split=int(configuration.get("split", 0)),
            rotation=Rotation(*map(max, zip(*map(_find_rotation, sites), strict=True))) if sites else NO_ROTATION,
            over_hospitals=several,
        )


def _find_rotation(site: Mapping[str, Any]) -> Rotation:
    """How the patients of a site differ between splits."""
    test, validation = float(site["test_fraction"] or 0), float(site.get("validation_fraction") or 0)
    share = test or validation
    return Rotation(test / ((1 - test) * (1 - validation)), (1 - share) / share if share else 0.0)


def _name(part: Any) -> str:
    return str(part["name"] if isinstance(part, Mapping) else part or "")


@dataclass(frozen=True, eq=False)
class RunFolder:
    """A study, finished or not, in its run folder. `RunFolder.open` checks first that it is one."""

    path: Path
    _cache: dict[Path, Any] = field(default_factory=dict, repr=False)

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
            raise _explain_folder(folder, inside)
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
        """Origin of all sites together."""
        return Origin(self.about["data"])

    @property
    def configuration(self) -> dict[str, Any]:
        """The resolved pipeline as plain data."""
        return self.about["configuration"]

    @property
    def pipeline_file(self) -> dict[str, Any]:
        """The resolved configuration in the form of a pipeline's file, whose only method is that of the study."""
        method_keys = ("method", "tuning", "federated")
        data = {key: value for key, value in self.configuration.items() if key not in method_keys}
        federated = dict(self.configuration["federated"])
        parts = {key: federated.pop(key) for key in ("algorithm", "objective") if key in federated}
        name = {"name": self.configuration["method"]} if "method" in self.configuration else {}
        tuning = {"tuning": self.configuration["tuning"]} if self.configuration.get("tuning") else {}
        return {**data, "methods": [name | parts | tuning], "federated": federated}

    @cached_property
    def settings(self) -> Settings:
        """Settings that tables, pages and names need of the configuration."""
        with expected(self.path / STUDY):
            return Settings.of(self.configuration)

    @property
    def knows_patients(self) -> bool:
        """Whether it is known whose the test images are; a public collection without that counts each image as one."""
        scored = self.about["scored"]
        return not self.configuration.get("collection") or scored["images"] != scored["patients"]

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
            raise ConfigError(f"k={k!r}: give a whole number", kind="not a number of clients") from None
        finished = self.ks
        if not finished:
            text = "no K of this study is finished yet; run `chestfed study` again to resume"
            raise ConfigError(f"{self.path}: {text}", kind="nothing finished")
        if k is not None and k not in finished:
            names = ", ".join(f"K={number}" for number in finished)
            text = f"K={k} does not exist or is not finished; finished: {names}"
            raise ConfigError(f"{self.path}: {text}", kind="no such K", k=k, finished=finished)
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
        self._load_once(folder / MANIFEST, lambda _: check_files(folder, Part(self.digest, place), needed))
        return folder

    def row(self, k: int | None = None) -> Row:
        """AUCs and intervals of a K, from its `result.json`."""
        return self._load_once(self.folder(k) / RESULT, lambda file: read_row(file.parent))

    @property
    def scores_stay(self) -> bool:
        """Whether there are AUCs alone for some K: the scores stayed at a hospital."""
        return any(self.row(k).scores_stay for k in self.ks)

    @property
    def diseases(self) -> tuple[str, ...]:
        """In the order of the table."""
        return tuple(auc.disease for auc in self.row().diseases)

    def predictions(self, k: int | None = None) -> pd.DataFrame:
        """One row per test image: keyed names of image and patient, and score and label of each disease."""
        return self._load_once(self.folder(k) / PREDICTIONS, read_predictions)

    def columns(self, k: int | None = None) -> list[Column]:
        """The labeled test images of each disease."""
        return self._load_once(self.folder(k), lambda _: self._columns(k))

    def _columns(self, k: int | None) -> list[Column]:
        row, frame = self.row(k), self.predictions(k)
        with expected(self.folder(k) / PREDICTIONS):
            return scored_frame(frame, [estimate.disease for estimate in row.diseases]).columns()

    def rounds(self, k: int | None = None) -> list[Round]:
        """The entries of `rounds.jsonl`, each with its `seconds`, or None where they are not known."""
        folder = self.folder(k)
        seconds = read_round_times(folder / SECONDS)
        entries: list[Round] = self._load_once(folder / ROUNDS, read_rounds)
        return [{**entry, "seconds": seconds.get(entry["round"])} for entry in entries]

    def costs(self, k: int | None = None) -> dict[str, int]:
        """Stage 2 of a K: its `rounds`, and sums of `COUNTERS` over all rounds and clients."""
        rounds = self.rounds(k)
        return {"rounds": len(rounds)} | {name: sum(entry[name] for entry in rounds) for name in COUNTERS}

    def time(self, k: int | None = None) -> dict[str, Any]:
        """Seconds of training, and whether that was only its last part."""
        content: dict[str, Any] = read_json_file(self.folder(k) / TIME)
        return content

    @cached_property
    def sites(self) -> Sites:
        """Counts, prevalences and gray levels of the sites."""
        content: Sites = read_json_file(self.path / SITES)
        return content

    @cached_property
    def thumbnails(self) -> dict[str, np.ndarray]:
        """Small images by the number of their site; empty if the images are at other hospitals."""
        return _read_arrays(self.path / THUMBNAILS)

    @cached_property
    def mistakes(self) -> dict[str, np.ndarray]:
        """Test images that the largest K misjudges (`training.data.mistakes`); empty if they are not at hand."""
        return _read_arrays(self.folder() / MISTAKES)

    @cached_property
    def hospitals(self) -> dict[str, Any]:
        """Hospitals that every K is scored on (`hospitals.json`); empty if only the target was scored."""
        return read_json_file(self.path / HOSPITALS_FILE, optional=True) or {}

    @cached_property
    def stage_1(self) -> dict[str, float | None]:
        """AUC of each disease and `mean` after stage 1 alone (`stage_1.json`); empty if it was not scored."""
        return (read_json_file(self.path / STAGE_1, optional=True) or {}).get("auc", {})

    @cached_property
    def federation(self) -> dict[str, Any] | None:
        """Participants of a study over hospitals, with their machines (`federation.json`); else None."""
        return read_json_file(self.path / FEDERATION, optional=True)

    def check_finished(self) -> None:
        """Make sure that all K are done and their files undamaged.

        Raises `ChestfedError` if not; with what to do.
        """
        unfinished = tuple(k for k in self.settings.ks if k not in self.ks)
        missing = ", ".join(f"K={k}" for k in unfinished)
        if missing or not (self.path / VIEWS["study"][0]).is_file():
            raise ChestfedError(
                f"{self.path}: this study is not finished: {missing or 'its table'} is missing. Run the same "
                "`chestfed study` command to resume it; make the report then.",
                kind="not finished",
                missing=unfinished,
            )
        for k in self.settings.ks:
            self.folder(k)

    def _load_once(self, place: Path, read: Callable[[Path], Any]) -> Any:
        if place not in self._cache:
            self._cache[place] = read(place)
        return self._cache[place]


def find_run(model: str | None) -> RunFolder | None:
    """The run folder that a model is in; `model` is one, a `kN` folder or a model file in one, or None: in memory."""
    if model is None:
        return None
    path = Path(model).resolve()  # of `.`, the folders above are not in the name
    folder = next((folder for folder in (path, *path.parents[:2]) if (folder / STUDY).is_file()), None)
    return None if folder is None else RunFolder.open(folder)


def _explain_folder(path: Path, inside: Sequence[Path]) -> ConfigError:
    """Why a folder is not that of one study; `inside` are the studies in it."""
    if not path.exists():
        advice, close = advise_run(path)
        text = f"{path}: no such folder, and no run of this name. {advice}. `chestfed runs` lists all"
        return ConfigError(text.replace("?.", "?"), kind="no such folder", suggestion=close)
    if (path / COMPARISON).is_file():
        with expected(path / COMPARISON):
            runs = read_json_file(path / COMPARISON)["about"]["runs"]
            names = tuple(dict.fromkeys(str(run["folder"]) for run in runs))
        text = f"{path}: this is a comparison of several studies. Give folders of these, beside it: {', '.join(names)}"
        return ConfigError(text, kind="comparison of studies", studies=names)
    what, command = recognize(path)
    if what:
        text = f"{path}: {what}, where a run is expected. {what.capitalize()} is for `{command}`"
        return ConfigError(text, kind="not a run", suggestion=command)
    if inside:
        comparisons = tuple(dict.fromkeys(file.parent.name for file in sorted(path.glob(f"*/{COMPARISON}"))))
        together = f"; of several studies together: {', '.join(comparisons)}" if comparisons else ""
        studies = tuple(folder.name for folder in inside)
        text = f"{path} holds {len(studies)} studies; open one of them: {', '.join(studies)}{together}"
        return ConfigError(text, kind="several studies", studies=studies, comparisons=comparisons)
    text = f"not the run folder of a study: it has no {STUDY}. `chestfed study` prints the folder it writes to."
    return ConfigError(f"{path}: {text}", kind="not a run folder")


def _read_arrays(file: Path) -> dict[str, np.ndarray]:
    if not file.is_file():
        return {}
    try:
        with np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise make_damage_error(file, error) from None
