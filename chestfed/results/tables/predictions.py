"""Stored predictions of finished models, from a study, an evaluation or a file, brought into the same order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from chestfed.core.checkpoint import write_atomically
from chestfed.core.errors import ConfigError
from chestfed.core.manifest import EVALUATED, short_digest
from chestfed.core.provenance import Origin
from chestfed.results.evaluation.labeled import NO_ROTATION, Rotation, Scored, number_names
from chestfed.results.evaluation.protocols import describe_hospitals
from chestfed.results.tables.columns import COMMON
from chestfed.results.tables.files import check_files, expected, read_json_file, read_predictions, scored_frame
from chestfed.results.tables.run_folder import EVALUATION, HOSPITALS, PREDICTIONS, STUDY, RunFolder


@dataclass(frozen=True)
class Predictions:
    """The scores that one model, trained with one or several seeds, gave the test images."""

    name: str  #: how tables call it
    kin: str  #: the same for runs that differ in their seed only
    #: One per split and seed: `image`, `patient`, and score and label of each disease; the rows of all of a split in
    #: the same order.
    frames: tuple[pd.DataFrame, ...]
    protocol: str  #: what was scored, or empty if it is not known
    origin: Origin | None  #: None if it is not known
    key: str | None = None  #: fingerprint of the key of the images' names; None if not written by chestfed
    #: The training seed of each frame; empty for a model that is taken as it is: of an evaluation, or a file.
    seeds: tuple[int, ...] = ()
    splits: tuple[int, ...] = ()  #: the split of the patients of each frame; empty: one
    rotation: Rotation = NO_ROTATION  #: as in `Scored`
    #: The columns `method`, `window`, `k` and `kind` of tables; empty for a model of elsewhere.
    about: Mapping[str, Any] = field(default_factory=dict)
    has_patients: bool = True  #: whether it is known whose the images are

    @property
    def diseases(self) -> tuple[str, ...]:
        """In the order of the columns."""
        names = self.frames[0].columns
        return tuple(name.removeprefix("score_") for name in names if name.startswith("score_"))

    @property
    def runs(self) -> list[tuple[int, int]]:
        """Split and seed of each frame; empty for a model that is taken as it is."""
        return list(zip(self.splits or (0,) * len(self.seeds), self.seeds, strict=True))

    def select_split(self, split: int) -> Predictions:
        """Those of one split."""
        if not self.splits:
            return self
        places = [place for place, number in enumerate(self.splits) if number == split]
        frames, seeds = tuple(self.frames[place] for place in places), tuple(self.seeds[place] for place in places)
        return replace(self, frames=frames, seeds=seeds, splits=(split,) * len(places))

    @property
    def tests(self) -> dict[int, pd.DataFrame]:
        """A frame of each split."""
        return {split: self.select_split(split).frames[0] for split in dict.fromkeys(self.splits or (0,))}

    @property
    def counts(self) -> tuple[int, int]:
        """Test images and their patients, in all splits together."""
        first, *others = self.tests.values()
        if not others:
            return len(first), first["patient"].nunique()
        images, patients = (set().union(*(part[name] for part in (first, *others))) for name in ("image", "patient"))
        return len(images), len(patients)

    def count_classes(self, disease: str) -> dict[str, int]:
        """Positive, negative and missing test images of a disease, and patients of either class, of all splits."""
        images = pd.concat(self.tests.values(), ignore_index=True).drop_duplicates("image")
        label, patient = images[f"label_{disease}"], images["patient"]
        return {
            "positives": int((label == 1).sum()),
            "negatives": int((label == 0).sum()),
            "missing": int(label.isna().sum()),
            "positive_patients": patient[label == 1].nunique(),
            "negative_patients": patient[label == 0].nunique(),
        }

    def scored(self, diseases: Sequence[str]) -> list[Scored]:
        """Scores, labels and patients as arrays, once per split and seed."""
        # In the order of the rows: sorting synthetic hospitals by name would draw other resamples than their study did.
        tests = self.tests
        numbers = number_names(np.concatenate([part["patient"].to_numpy() for part in tests.values()]))
        parts = np.split(numbers, np.cumsum([len(part) for part in tests.values()])[:-1])
        patients = dict(zip(tests, parts, strict=True))
        return [
            replace(
                scored_frame(frame, diseases, patients[split]), split=split * (len(tests) > 1), rotation=self.rotation
            )
            for split, frame in zip(self.splits or (0,) * len(self.frames), self.frames, strict=True)
        ]


def predictions_frame(
    images: Sequence[str], patients: Sequence[str], scored: Scored, groups: pd.DataFrame
) -> pd.DataFrame:
    """One row per image or study: keyed names, score and label of each disease, and subgroups, to recompute them.

    Also the hospital, where an AUC is the mean of the hospitals'.
    """
    columns: dict[str, object] = {"image": images, "patient": patients}
    if scored.hospitals is not None:
        columns["hospital"] = scored.hospitals
    for j, disease in enumerate(scored.diseases):
        columns |= {f"score_{disease}": scored.scores[:, j], f"label_{disease}": scored.labels[:, j]}
    return pd.concat([pd.DataFrame(columns), stored_groups(groups)], axis="columns")


def stored_groups(groups: pd.DataFrame) -> pd.DataFrame:
    """Columns of subgroups as predictions hold them."""
    return groups.astype("str").where(groups.notna()).add_prefix("group_")  # pandas 2 writes "nan" for what is missing


def write_predictions(path: Path, frame: pd.DataFrame) -> None:
    """Write them so that damage is found when they are read."""
    write_atomically(path, lambda temporary: frame.to_parquet(temporary, index=False, write_page_checksum=True))


def load_predictions(path: Path, k: int | None = None, place: str = "") -> Predictions:
    """Predictions of a run folder (its largest finished K, or `k`), a `kN` folder, an evaluation, or a file of them.

    `place`: a folder below that of the K, of a hospital that was scored besides the target.

    Raises `ConfigError` if the folder holds no predictions.
    """
    given, path = path, path.resolve()  # of `.` and of a file's bare name, the folder above is not in the name
    known = (path / PREDICTIONS, path / EVALUATION, path.parent / STUDY)
    if path.is_dir() and not any(file.is_file() for file in known):
        path = RunFolder.open(path).path
    folder = path.parent if not path.is_dir() else RunFolder(path).folder(k) if (path / STUDY).is_file() else path
    whole, number = (folder.parent / STUDY).is_file(), folder.name.removeprefix("k")
    if whole and number.isdigit():
        if k not in (None, int(number)):
            text = f"{path}: is of K={number}, not of K={k}; leave --k out, or give the run folder"
            raise ConfigError(text, kind="another K", k=int(number))
        run = RunFolder.open(folder.parent)
        checked = run.scored_folder(int(number), place) if place else run.folder(int(number))
        path = checked / PREDICTIONS if path.is_dir() else path
    elif (folder / EVALUATION).is_file():
        check_files(folder, EVALUATED, (PREDICTIONS, EVALUATION), "Score the model again with `chestfed evaluate`")
    elif folder.parent.name == HOSPITALS and (folder.parent.parent.parent / STUDY).is_file():
        run, of_k = RunFolder.open(folder.parent.parent.parent), folder.parent.parent.name
        run.scored_folder(int(of_k.removeprefix("k")), f"{HOSPITALS}/{folder.name}")
    frame = read_predictions(path / PREDICTIONS if path.is_dir() else path)
    evaluation, key = folder / EVALUATION, frame.attrs.get("key")
    if whole:
        return replace(_describe_run(run, int(number), frame), key=key)
    if evaluation.is_file():
        about = read_json_file(evaluation)
        with expected(evaluation):
            name, kin = f"{about['model']['name']} on {about['site']}", short_digest(str(folder))
            return Predictions(name, kin, (frame,), about["protocol"], Origin.read(about), key)
    protocol = str(frame.attrs.get("protocol", ""))
    if "hospital" in frame:
        protocol += describe_hospitals(frame["hospital"].nunique(), "mean")
    return Predictions(str(given), short_digest(str(path)), (frame,), protocol, Origin.read(frame.attrs), key)


def _describe_run(run: RunFolder, k: int, frame: pd.DataFrame) -> Predictions:
    """Predictions of one K of a study, which others of its kin differ from in seed or split."""
    settings = run.settings
    alike = {**run.configuration, "seed": None, "split": None, "k": None}
    split = f", split {settings.split}" if settings.split else ""
    return Predictions(
        f"{settings.method}, I={settings.window}, K={k}, seed {settings.seed}{split}",
        short_digest(json.dumps([alike, str(k)], sort_keys=True)),
        (frame,),
        settings.protocol,
        Origin.read(run.about),
        seeds=(settings.seed,),
        splits=(settings.split,),
        rotation=settings.rotation,
        about={"method": settings.method, "window": settings.window, "k": k, "kind": COMMON},
        has_patients=run.knows_patients,
    )


def group_seeds(runs: Sequence[Predictions]) -> list[Predictions]:
    """Runs that differ in their seed or split only become one model, at the place of the first.

    Raises `ConfigError` if a seed is given twice, the test images or their labels differ within a split, or splits have
    different seeds.
    """
    kin: dict[str, list[Predictions]] = {}
    for run in runs:
        kin.setdefault(run.kin, []).append(run)
    return [merge_seeds(members) for members in kin.values()]


def merge_seeds(members: Sequence[Predictions]) -> Predictions:
    """The splits and seeds of one model together, in their order.

    Raises `ConfigError` as `group_seeds`.
    """
    if len(members) == 1:
        return members[0]
    members = sorted(members, key=lambda member: (member.splits, member.seeds))
    twice = [name for name, count in Counter(member.name for member in members).items() if count > 1]
    if twice:
        text = f"{twice[0]}: given twice. A seed counts once, else the spread over the seeds is too small"
        raise ConfigError(text, kind="repeated seed", run=twice[0])
    first, groups = members[0], dict[tuple[int, ...], list[Predictions]]()
    for member in members:
        groups.setdefault(member.splits, []).append(member)
    counts = {split: len(parts) for (split,), parts in groups.items()} if len(groups) > 1 else {}
    if len(set(counts.values())) > 1:
        text = ", ".join(f"split {split} {count}" for split, count in counts.items())
        raise ConfigError(
            f"{first.name}: its splits have different numbers of training seeds: {text}. Train the same of each",
            kind="unequal splits",
            counts=counts,
        )
    frames = [align_rows(parts[0], member, first.diseases) for parts in groups.values() for member in parts]
    splits = f", {len(groups)} splits" if len(groups) > 1 else ""
    return replace(
        first,
        name=f"{first.name.rpartition(', seed ')[0] or first.name}, {len(members) // len(groups)} seeds{splits}",
        frames=tuple(frames),
        seeds=tuple(seed for member in members for seed in member.seeds),
        splits=tuple(split for member in members for split in member.splits),
    )


def align_splits(reference: Predictions, other: Predictions, diseases: Sequence[str]) -> Predictions:
    """The other with its rows in the order of the reference's images of the same split; raises as `align_rows`."""
    ours = reference.tests
    theirs = other.splits if len(ours) > 1 else (next(iter(ours)),) * len(other.frames)
    if {*theirs} != {*ours} or len(theirs) != len(other.frames):
        raise ConfigError(
            f"{reference.name} and {other.name} are of other splits of the patients: {[*ours]} and "
            f"{[*dict.fromkeys(other.splits)]}. Train both with the same",
            kind="other splits",
        )
    frames = [
        align_rows(reference.select_split(split), replace(other, frames=(frame,)), diseases)
        for split, frame in zip(theirs, other.frames, strict=True)
    ]
    return replace(other, frames=tuple(frames))


def align_rows(reference: Predictions, other: Predictions, diseases: Sequence[str]) -> pd.DataFrame:
    """The other's rows in the order of the reference's images.

    Raises `ConfigError` if they are not of the same images, or that cannot be checked, or if labels of the diseases
    differ.
    """
    if reference.key and other.key and reference.key != other.key:
        raise ConfigError(
            f"{reference.name} and {other.name} name their images with different keys ({reference.key} and "
            f"{other.key}), so their images cannot be matched. Score one of them again with the other's key: "
            "$CHESTFED_KEY_FILE names a key file, and `chestfed key` shows which key this machine uses",
            kind="different keys",
        )
    ours, (theirs,) = reference.frames[0], other.frames
    own_images, other_images = Counter(ours["image"]), Counter(theirs["image"])
    if own_images != other_images:
        left, right = sum((own_images - other_images).values()), sum((other_images - own_images).values())
        raise ConfigError(
            f"{reference.name} and {other.name} are not about the same images: {left} of {len(ours)} and {right} of "
            f"{len(theirs)} differ. Score both on the same site, split and protocol (`chestfed evaluate`)",
            kind="other images",
            differ=(left, right),
        )
    if (ours["image"].to_numpy() != theirs["image"].to_numpy()).any():
        labels = [name for name in ours.columns if name.startswith("label_") and name in theirs.columns]
        keys = ["image", "patient", *labels]
        order = theirs.sort_values(keys, kind="stable").index
        place = ours.sort_values(keys, kind="stable").index
        theirs = theirs.loc[order].set_axis(place).sort_index().reset_index(drop=True)
    columns = [f"label_{name}" for name in diseases]
    first, second = (frame.reindex(columns=columns).to_numpy(float) for frame in (ours, theirs))
    if not np.array_equal(first, second, equal_nan=True):
        text = f"{reference.name} and {other.name}: their labels differ. Are label files and policy the same?"
        raise ConfigError(text, kind="other labels")
    return theirs
