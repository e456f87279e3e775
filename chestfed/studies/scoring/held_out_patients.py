"""The patients that a study held out of a site by `test_fraction`, for `chestfed evaluate --split held-out`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pandas as pd

from chestfed.core.console import plural
from chestfed.core.errors import ConfigError
from chestfed.data.sites.partition import hold_out
from chestfed.data.sites.table import SiteTable
from chestfed.results.evaluation.protocols import list_views
from chestfed.results.tables.run_folder import RunFolder
from chestfed.studies.scoring.study_of_model import find_run, read_study


def describe_images(
    model: str | None, table: SiteTable, split: str
) -> tuple[SiteTable, str, Callable[[Sequence[str], pd.Series, str], None] | None]:
    """The images to score of a split or of `held-out`, their split, and what makes sure of those held out.

    Raises `ConfigError` as `held_out_patients`.
    """
    if split != "held-out":
        return table, split, None
    return held_out_patients(model, table), "test", partial(check_held_out, model)


def held_out_patients(model: str | None, table: SiteTable) -> SiteTable:
    """Their rows, as the split `test`; `model` is the study's run folder, a `kN` folder or a model file in one.

    Raises `ConfigError` if there is no study, or it held none of this site's patients out.
    """
    study = read_study(_run_folder(model))
    entry = study.sites.get(table.name)
    if entry is not None and entry.test_fraction is not None:
        return hold_out(table.select(split="train"), entry.test_fraction, study.seed, split=study.split)[1]
    advice = advise_split(table, split="held-out") or ". Choose another --split"
    raise ConfigError(
        f"{model}: its study drew no patients of site '{table.name}' for testing: its pipeline has no test_fraction "
        f"there{advice}",
        kind="no patients held out",
        site=table.name,
    )


def advise_split(table: SiteTable, split: str, views: Sequence[str] | None = None) -> str:
    """The other split of the site, not for training, that has images; empty if there is none."""
    counts = {name: len(table.select(name, views).frame) for name in ("test", "valid") if name != split}
    return next((f". --split {name} has {plural(count, 'image')}" for name, count in counts.items() if count), "")


def check_held_out(model: str | None, names: Sequence[str], views: pd.Series, key: str) -> None:
    """Make sure that the images are among the test images of the study.

    The cut depends on the site's labels, YAML and patients: if one of them is another today, patients would be tested
    that the model was trained on.

    Parameters
    ----------
    names, views
        Of each image; the names are keyed.
    key
        Fingerprint of the key.

    Raises `ConfigError` if an image is not among them, or the study named its images with another key.
    """
    run = _run_folder(model)
    predictions = run.predictions()
    known, theirs = set(predictions["image"]), predictions.attrs.get("key")
    if theirs != key:
        raise ConfigError(
            f"{model}: its study named its images with another key ({theirs or 'none'}) than the current one "
            f"({key}), so they cannot be compared. Set $CHESTFED_KEY_FILE to the key file of that study",
            kind="another key",
        )
    looked_at = list_views(read_study(run).evaluation.protocol)
    rows = [name for name, view in zip(names, views, strict=True) if looked_at is None or view in looked_at]
    others = sum(row not in known for row in rows)
    if others:
        raise ConfigError(
            f"{model}: {others} of {len(rows)} images are not among the test images of its study, so its patients "
            f"are split differently here. Use the same site YAML, label file and images as that study",
            kind="unknown images",
            unknown=others,
        )


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
