"""Patients to be scored that the model was trained on: refused, or noted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from chestfed.core.errors import ConfigError
from chestfed.data.sites.table import SiteTable
from chestfed.results.tables.run_folder import find_run
from chestfed.studies.scoring.scorer import Scorer
from chestfed.studies.training.data.trained_patients import ADVICE, TrainedPatients, find_trained

_UNKNOWN: Final = "Whether the model was trained on some of these patients cannot be checked: "


@dataclass(frozen=True)
class Tested:
    """The number of scored patients that a model was trained on; None: it is unknown, or they are to train."""

    trained: int | None = None
    notes: tuple[str, ...] = ()


def check_tested(
    model: str | None, scorer: Scorer, table: SiteTable, scored: SiteTable, split: str, *, allow: bool = False
) -> Tested:
    """Count the patients of the rows `scored` of a site's `table` that the model was trained on.

    Raises `ConfigError` if there are some, unless `allow`, or `split` is train.
    """
    if split == "train":
        return Tested()
    run = find_run(model)
    if run is None:
        from_study = scorer.kind.startswith("chestfed model") and not table.phantoms
        return Tested(notes=(f"{_UNKNOWN}a model file alone does not say; its run folder does.",) * from_study)
    inside = [] if scorer.file is None else scorer.file.resolve().parents
    place = next((folder.name[1:] for folder in inside if folder.parent == run.path), "")
    patients = find_trained(run, table.cache_name, int(place) if place.isdigit() else None)
    if isinstance(patients, str):
        return Tested(notes=(f"{_UNKNOWN}{patients}.",))
    trained, count = len(patients.find_in(scored)), scored.frame["patient"].nunique()
    if trained and not allow:
        raise ConfigError(
            f"{scorer.name}: was trained on {trained:,} of the {count:,} patients of {table.name} to be scored. "
            f"{_describe_change(patients, table)}. {ADVICE}. With --allow-trained they are scored nevertheless, and "
            "the result says so",
            kind="trained patients",
            site=table.name,
            trained=trained,
            patients=count,
        )
    text = f"NOT A TEST: the model was trained on {trained:,} of the {count:,} patients scored."
    return Tested(trained, (text,) * bool(trained))


def advise_untrained(model: str | None, table: SiteTable, split: str) -> str:
    """Why a split of a site is no test of a model in a run folder; empty if it is one."""
    run, rows = find_run(model), table.select(split)
    patients = None if run is None else find_trained(run, table.cache_name)
    if patients is None:
        return ""
    if isinstance(patients, str):
        return f"whether it was trained on some of these patients cannot be checked: {patients}"
    trained = len(patients.find_in(rows))
    if not trained:
        return ""
    return (
        f"split {split} is no test: the study trained on {trained:,} of its {rows.frame['patient'].nunique():,} "
        f"patients. {_describe_change(patients, table)}. {ADVICE}"
    )


def _describe_change(patients: TrainedPatients, table: SiteTable) -> str:
    """Where the patients that were trained on are today."""
    there, trains = len(patients.find_in(table)), len(patients.find_in(table.select("train")))
    return (
        f"Of the {len(patients.names):,} patients that it was trained on there, {trains:,} are in the split train "
        f"today, {there - trains:,} in others, and {len(patients.names) - there:,} are not in the table"
    )
