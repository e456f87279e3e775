"""One site of a pipeline as its target: put first, with all or some of its training images."""

from __future__ import annotations

from pathlib import Path

from chestfed.core.diseases import nearest_hint
from chestfed.core.errors import ConfigError, nearest
from chestfed.data.sites import load_site_config
from chestfed.studies.experiment.data import SiteEntry
from chestfed.studies.experiment.pipeline import Pipeline


def put_target_first(pipeline: Pipeline, path: Path, target: str | None) -> tuple[Pipeline, list[str]]:
    """The pipeline with the target as its first site, and the names of all sites in that order.

    A partner's `test_fraction` is left out: patients that it sets aside would make the test set one of several
    hospitals.

    Raises `ConfigError` if there is no such site, or it cannot be the target.
    """
    names = [load_site_config(path.parent / entry.config).site for entry in pipeline.sites]
    target = target or names[0]
    if target not in names:
        hint = nearest_hint([target], names)
        text = f"target: '{target}' is not one of the sites {', '.join(names)}{hint}"
        raise ConfigError(text, kind="unknown site", site=target, suggestion=nearest(target, names))
    first = names.index(target)
    order = [first, *(place for place in range(len(names)) if place != first)]
    entries = [pipeline.sites[place] for place in order]
    entries = [entries[0], *(entry.model_copy(update={"test_fraction": None}) for entry in entries[1:])]
    _check_target(entries[0], target, pipeline.evaluation.split)
    return pipeline.model_copy(update={"sites": entries}), [names[place] for place in order]


def limit_target(pipeline: Pipeline, images: int | None) -> Pipeline:
    """The study with at most so many training images of its first site; None: all."""
    first = pipeline.sites[0].model_copy(update={"training_images": images})
    return pipeline.model_copy(update={"sites": [first, *pipeline.sites[1:]]})


def _check_target(entry: SiteEntry, target: str, split: str) -> None:
    if entry.control is not None:
        raise ConfigError(f"target: {target} is a negative control and cannot be the target", kind="control as target")
    if entry.test_fraction is not None and split != "test":
        raise ConfigError(f"target: {target} has test_fraction: set evaluation.split: test", kind="other split")
