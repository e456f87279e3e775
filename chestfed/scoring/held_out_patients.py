"""The patients that a study held out of a site by `test_fraction`, for `chestfed evaluate --split held-out`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from chestfed.core.errors import ConfigError
from chestfed.core.pseudonyms import NAMED_BY
from chestfed.evaluation.protocols import ImageProtocol, views_of
from chestfed.experiment.pipeline import Evaluation, SiteEntry
from chestfed.results.run_folder import STUDY, RunFolder
from chestfed.sites.partition import hold_out
from chestfed.sites.table import SiteTable


def images_of(
    model: str, table: SiteTable, split: str
) -> tuple[SiteTable, str, Callable[[Sequence[str], pd.Series, str], None] | None]:
    """The images to score of a split or of `held-out`, their split, and what makes sure of those held out.

    Raises
    ------
    ConfigError
        As `held_out_patients`.
    """
    if split != "held-out":
        return table, split, None
    return held_out_patients(model, table), "test", partial(check_held_out, model)


def held_out_patients(model: str, table: SiteTable) -> SiteTable:
    """Their rows, as the split `test`; `model` is the study's run folder, a `kN` folder or a model file in one.

    Raises
    ------
    ConfigError
        If there is no study, or it held none of this site's patients out.
    """
    run = _run_folder(model)
    entries, seed, _ = _study_of(run)
    names = [one["site"] for one in (run.sites or {}).get("hospitals", ())]
    names = names or [Path(entry.config).stem for entry in entries]  # of earlier versions
    for entry, name in zip(entries, names, strict=True):
        if entry.test_fraction is not None and name == table.name:
            return hold_out(table.select(split="train"), entry.test_fraction, seed)[1]
    raise ConfigError(
        f"{model}: its study held out no patients of site '{table.name}': its pipeline has no test_fraction there. "
        "Choose another --split"
    )


def check_held_out(model: str, names: Sequence[str], views: pd.Series, key: str) -> None:
    """Make sure that the images are among the test images of the study.

    The cut depends on the site's labels, YAML and patients: if one of them is another today, patients would be tested
    that the model was trained on.

    Parameters
    ----------
    names, views
        Of each image; the names are keyed.
    key
        Fingerprint of the key.

    Raises
    ------
    ConfigError
        If an image is not among them, or the study named its images with another key.
    """
    run = _run_folder(model)
    predictions = run.predictions()
    known, theirs = set(predictions["image"]), predictions.attrs.get("key")
    if theirs != key:
        raise ConfigError(
            f"{model}: its study named its images with another key ({theirs or 'none'}) than the current one "
            f"({key}), so they cannot be compared. Set $CHESTFED_KEY_FILE to the key file of that study"
        )
    if predictions.attrs.get("named_by") != NAMED_BY:
        raise ConfigError(
            f"{model}: its study is from an earlier version, which named images differently, so they cannot be "
            f"compared. Run the study again"
        )
    *_, protocol = _study_of(run)
    looked_at = views_of(protocol)
    rows = [name for name, view in zip(names, views, strict=True) if looked_at is None or view in looked_at]
    others = sum(row not in known for row in rows)
    if others:
        raise ConfigError(
            f"{model}: {others} of {len(rows)} images are not among the test images of its study, so its patients "
            f"are split differently here. Use the same site YAML, label file and images as that study"
        )


def _run_folder(model: str) -> RunFolder:
    """The run folder that a model lies in."""
    path = Path(model).resolve()  # of `.`, the folders above are not in the name
    for folder in (path, *path.parents[:2]):
        if (folder / STUDY).is_file():
            return RunFolder.open(folder)
    raise ConfigError(
        f"{model}: --split held-out needs the run folder of a study or a model in one, because the study records "
        f"who was held out"
    )


def _study_of(run: RunFolder) -> tuple[list[SiteEntry], int, ImageProtocol]:
    """Sites, seed and protocol, which decide who is held out; no plug-in that the study names is loaded."""
    try:
        about = run.configuration
        entries = [SiteEntry.model_validate(entry) for entry in about["sites"]]
        return entries, int(about["seed"]), Evaluation.model_validate(about["evaluation"]).protocol
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{run.path / STUDY}: cannot be read: {error}") from None
