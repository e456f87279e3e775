"""The patients that a study held out of a site by `test_fraction`, for `chestfed evaluate --split held-out`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pandas as pd

from chestfed.core.console import plural
from chestfed.core.errors import ConfigError
from chestfed.data.sites.partition import hold_out
from chestfed.data.sites.table import SiteTable
from chestfed.results.evaluation.protocols import list_views
from chestfed.results.tables.run_folder import RunFolder, find_run
from chestfed.studies.scoring.study_of_model import read_study
from chestfed.studies.scoring.trained_patients import advise_untrained

#: Which images are scored, bool `[n]`, by `image` and `patient`, keyed names, and `view`; and the key's fingerprint.
Check = Callable[[pd.DataFrame, str], np.ndarray]


def describe_images(model: str | None, table: SiteTable, split: str) -> tuple[SiteTable, str, Check | None]:
    """The images to score of a split or of `held-out`, their split, and what finds those held out that it tested.

    Raises `ConfigError` as `held_out_patients`.
    """
    if split != "held-out":
        return table, split, None
    return held_out_patients(model, table), "test", partial(find_tested, model, table.name)


def held_out_patients(model: str | None, table: SiteTable) -> SiteTable:
    """Their rows, as the split `test`; `model` is the study's run folder, a `kN` folder or a model file in one.

    Raises `ConfigError` if there is no study, or it held none of this site's patients out.
    """
    study = read_study(_run_folder(model))
    entry = study.sites.get(table.name)
    if entry is not None and entry.test_fraction is not None:
        return hold_out(table.select(split="train"), entry.test_fraction, study.seed, split=study.split)[1]
    raise ConfigError(
        f"{model}: its study drew no patients of site '{table.name}' for testing: its pipeline has no test_fraction "
        f"there{_advise_other(model, table)}",
        kind="no patients held out",
        site=table.name,
    )


def _advise_other(model: str | None, table: SiteTable) -> str:
    """The split to test on instead, or why it is no test of the model."""
    advice = advise_split(table, split="held-out")
    if not advice:
        return ". Choose another --split"
    reason = advise_untrained(model, table, advice.split()[2])
    return f"{advice}; but {reason}" if reason else advice


def advise_split(table: SiteTable, split: str, views: Sequence[str] | None = None) -> str:
    """The other split of the site, not for training, that has images; empty if there is none."""
    counts = {name: len(table.select(name, views).frame) for name in ("test", "valid") if name != split}
    return next((f". --split {name} has {plural(count, 'image')}" for name, count in counts.items() if count), "")


def find_tested(model: str | None, site: str, frame: pd.DataFrame, key: str) -> np.ndarray:
    """Which images of held-out patients the study tested, bool `[n]`: all but those of patients it left out.

    The cut depends on the site's labels, YAML and patients: if one of them is another today, patients would be tested
    that the model was trained on. So every patient that the study tested at this site must be here, and others only
    if the study leaves out patients who are at another site too (`overlap.found: drop`), with all of their images.

    Parameters
    ----------
    frame
        `image` and `patient`, keyed names, and `view`.
    key
        Fingerprint of the key.

    Raises `ConfigError` if they are other patients, or the study named its images with another key.
    """
    run = _run_folder(model)
    predictions = run.predictions()
    theirs = predictions.attrs.get("key")
    if theirs != key:
        raise ConfigError(
            f"{model}: its study named its images with another key ({theirs or 'none'}) than the current one "
            f"({key}), so they cannot be compared. Set $CHESTFED_KEY_FILE to the key file of that study",
            kind="another key",
        )
    study = read_study(run)
    of_several = "hospital" in predictions and (predictions["hospital"] == site).any()
    tested = predictions[predictions["hospital"] == site] if of_several else predictions
    looked_at, known = list_views(study.evaluation.protocol), frame["image"].isin(tested["image"]).to_numpy()
    compared = np.ones(len(frame), bool) if looked_at is None else frame["view"].isin(looked_at).to_numpy()
    others = compared & ~known
    dropped = frame["patient"].isin(frame["patient"][others]).to_numpy()
    complete = tested["patient"].isin(frame["patient"]).all() or not (of_several or study.tests_one)  # else not known
    if others.any() and (not complete or study.overlap != "drop" or (known & dropped).any()):
        raise ConfigError(
            f"{model}: {others.sum()} of {compared.sum()} images are not among the test images of its study, so its "
            "patients are split differently here. Use the same site YAML, label file and images as that study",
            kind="unknown images",
            unknown=int(others.sum()),
        )
    return ~dropped


def _run_folder(model: str | None) -> RunFolder:
    """The run folder that a model lies in."""
    run = find_run(model)
    if run is None:
        raise ConfigError(
            f"{model or 'a module'}: --split held-out needs the run folder of a study or a model in one, because "
            "the study records who was held out",
            kind="not a study",
        )
    return run
