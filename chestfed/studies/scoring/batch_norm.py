"""Which batch-norm statistics a model is scored with at a site: by default those that its study used there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from chestfed.core.errors import ConfigError
from chestfed.data.images.batches import Images
from chestfed.data.images.cache import fill_cache
from chestfed.data.sites.table import SiteTable
from chestfed.learning.models import find_norms
from chestfed.results.tables.clients.batch_norm import describe_statistics
from chestfed.results.tables.run_folder import MODEL_FILE, find_run
from chestfed.studies.experiment.data import SiteEntry
from chestfed.studies.scoring.scorer import Scorer
from chestfed.studies.scoring.study_of_model import StudyRecord, read_study
from chestfed.studies.training.data.clients import spread_rows
from chestfed.studies.training.data.experiment import change_rows
from chestfed.studies.training.data.sites import TRAIN, StudySite, client_tables

#: own: of the site's training images; stored: as the model file has them.
Choice = Literal["own", "stored"]


@dataclass(frozen=True)
class ChosenStatistics:
    """The statistics to score with; `choice` is None for a network without batch normalization.

    `images` are those to take them from; None: the model file has them already.
    """

    choice: Choice | None = None
    images: Images | None = None
    notes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """For captions."""
        return describe_statistics(self.choice, "the site's")


def choose_statistics(
    model: str | None,
    scorer: Scorer,
    table: SiteTable,
    cache: Path,
    choice: Choice | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ChosenStatistics:
    """Statistics by `choice`, or without one as in the study that the model is from.

    A study scores a hospital with statistics of its training images, unless `evaluation.batch_norm` is `averaged` or
    the hospital was held out. A model without a run folder is scored as it is stored.

    Parameters
    ----------
    table
        All rows of the site.

    Raises `ConfigError` if statistics of the site are asked for, and it has no training images or the model is a
    program.
    """
    if scorer.network is None:
        if choice == "own":
            text = "a program: its batch-norm statistics cannot be estimated again"
            raise ConfigError(f"{scorer.name}: {text}; use --batch-norm stored", kind="program without statistics")
        return ChosenStatistics("stored")
    if not find_norms(scorer.network):
        return ChosenStatistics()
    run = find_run(model)
    study = None if run is None else read_study(run)
    if (choice or _study_choice(study, table.name)) == "stored":
        return ChosenStatistics("stored")
    if study is not None and study.target == table.name:
        return ChosenStatistics("own")
    images, notes = _training_images(study, table, scorer, cache, progress)
    if images is None:
        text = f"site '{table.name}' has no readable training images to take batch-norm statistics from"
        if choice == "own":
            raise ConfigError(f"{text}; use --batch-norm stored", kind="no training images")
        return ChosenStatistics("stored", notes=(f"S{text[1:]}: those stored in the model file are used.",))
    return ChosenStatistics("own", images, notes)


def describe_stored(study: StudyRecord | None, file: str = MODEL_FILE) -> str:
    """The batch-norm statistics in a model file of a study, and which scores of the study are with them."""
    own = "at hospitals that trained they are with statistics of the hospital's own training images"
    if study is None:
        whose = "it is not recorded beside the file which images they are of"
    elif study.target is not None and file == MODEL_FILE:
        whose = f"they are of training images of {study.target} alone. The study's AUCs at {study.target} are with "
        whose += "them, those at another hospital with statistics of its own training images"
    elif study.evaluation.batch_norm == "averaged" or not study.sites:
        whose = "they are averaged over the clients of the training, and the study's AUCs are with them"
    elif study.held_out is not None:
        whose = "they are averaged over the clients of the training. The study's AUCs at "
        whose += f"{study.held_out} are with them; {own}"
    else:
        whose = f"they are averaged over the clients of the training. The study's AUCs are not with them: {own}"
    return (
        f"The network has batch normalization, whose statistics are in the file: {whose}. `chestfed evaluate` takes "
        "those of the file (--batch-norm stored), or with --batch-norm own of a site's training images."
    )


def _study_choice(study: StudyRecord | None, site: str) -> Choice:
    if study is None or study.evaluation.batch_norm == "averaged" or study.held_out == site:
        return "stored"
    return "own"


def _training_images(
    study: StudyRecord | None,
    table: SiteTable,
    scorer: Scorer,
    cache: Path,
    progress: Callable[[int, int], None] | None,
) -> tuple[Images | None, tuple[str, ...]]:
    """The training images that the study's statistics of the site are from, and notes; None without any."""
    training, lost = table.select(split="train"), 0
    notes: tuple[str, ...] = ()
    if not len(training.frame):
        return None, ()
    entry = None if study is None else study.sites.get(table.name)
    if study is not None and entry is not None:
        site = _cut_as_study(study, entry, table)
        parts = [site.select(TRAIN, name).frame for name in site.clients]
        training = table.with_frame(pd.concat(parts, ignore_index=True))
        lost = study.run.about["quarantined"].get(table.name, 0)
        notes = _differences(study, {*site.clients}, len(training.frame))
    if not lost:  # which images are read is known before any is decoded
        rows = spread_rows(np.arange(len(training.frame)))
        training = training.with_frame(training.frame.iloc[rows].reset_index(drop=True))
    images = fill_cache(training, cache, scorer.preprocess, skip_unreadable=True, progress=progress)
    return (images if (images.records >= 0).any() else None), notes


def _cut_as_study(study: StudyRecord, entry: SiteEntry, table: SiteTable) -> StudySite:
    """The training rows that the study used of a site: those of all its clients."""
    target = table.name == next(iter(study.sites))
    parts = client_tables(table, entry, study.seed, study.split, target=target)
    frames = [part.frame.assign(role=TRAIN, client=name, reason="") for name, part in parts]
    whole = table.with_frame(pd.concat(frames, ignore_index=True)).about(study.diseases)
    names = tuple(name for name, _ in parts)
    site = StudySite(entry, whole, study.seed, table.diseases, names, {"left_out": {}})
    limited = names[0] if target and study.held_out is None else ""
    try:
        return change_rows(site, study.training_seed, limited, quick=study.quick)
    except ConfigError:  # the table is another today: the difference is noted
        return site


def _differences(study: StudyRecord, clients: set[str], count: int) -> tuple[str, ...]:
    """A note if the study had another number of training images there."""
    cards = [card for card in study.run.sites["sites"] if card["name"] in clients]
    then = sum(card["images"] + card["unreadable"] for card in cards)
    if not cards or then == count:
        return ()
    text = f"{count:,} training images here and {then:,} in the study: the statistics, and the AUC, may differ from its"
    return (f"The site has {text}.",)
