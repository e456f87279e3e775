"""The study that a model was trained in: its run folder, and what its configuration says of a site."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chestfed.core.errors import ConfigError
from chestfed.results.tables.run_folder import STUDY, RunFolder
from chestfed.studies.experiment.data import SiteEntry
from chestfed.studies.experiment.pipeline import Evaluation, find_training_seed


@dataclass(frozen=True)
class StudyRecord:
    """Record of a study; no plug-in that it names is loaded."""

    run: RunFolder
    sites: dict[str, SiteEntry]  #: name -> its entry, in the order of addition
    seed: int  #: of the cut of its patients
    split: int
    evaluation: Evaluation
    held_out: str | None  #: the site that nothing was trained on
    overlap: str  #: what was done about patients of two sites
    diseases: tuple[str, ...]
    training_seed: int  #: of the choice of its training images
    quick: bool

    @property
    def tests_one(self) -> bool:
        """Whether patients of at most one site were held out."""
        return sum(entry.test_fraction is not None for entry in self.sites.values()) <= 1

    @property
    def target(self) -> str | None:
        """The site whose batch-norm statistics are stored in the models; None if they are averaged ones."""
        averaged = not self.tests_one or self.held_out is not None or self.evaluation.batch_norm == "averaged"
        return None if averaged else next(iter(self.sites), None)


def read_study(run: RunFolder) -> StudyRecord:
    """Record from its `study.json`.

    Raises `ConfigError` if it cannot be read.
    """
    try:
        about: dict[str, Any] = run.configuration
        entries = [SiteEntry.model_validate(entry) for entry in about["sites"]]
        names = [site["site"] for site in run.sites["hospitals"]]
        names = names or [Path(entry.config).stem for entry in entries]  # of a federation
        sites = dict(zip(names, entries, strict=True))
        held_out = (about.get("held_out") or {}).get("sites") or [None]
        seed, split = int(run.about.get("cut_seed", about["seed"])), int(about.get("split", 0))
        evaluation, quick = Evaluation.model_validate(about["evaluation"]), bool(about.get("quick"))
        diseases, of_training = tuple(about.get("diseases") or ()), find_training_seed(int(about["seed"]), split)
        overlap = (about.get("overlap") or {}).get("found", "refuse")
        settings = (diseases, of_training, quick)
        return StudyRecord(run, sites, seed, split, evaluation, held_out[0], overlap, *settings)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{run.path / STUDY}: cannot be read: {error}") from None
