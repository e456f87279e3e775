"""What a study needs whose data are not here yet: download, disk and time, from the sizes that their owners state."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from chestfed.core.console import plural, text_table
from chestfed.core.disk import size_text
from chestfed.core.processes.workers import cores
from chestfed.core.provenance import Origin
from chestfed.data.sites.config import load_site_config
from chestfed.data.sites.published import Published, find_published
from chestfed.learning.models import without_absent_weights
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.training.costs import duration, estimated, time_steps
from chestfed.studies.training.plan import DECODED_BYTES, ImageCounts, StudyPlan, list_needs, tabulate_parts

_AT_MOST: Final = (
    "At most: all published images; views, splits and exclusions leave out some. Decoding on {}, of which each is "
    "assumed to decode {:.0f} MB of files a second: JPEG takes less time, JPEG 2000 more."
)


def forecast_study(pipeline: Pipeline, pipeline_file: Path, data_root: Path | None) -> RenderableType | None:
    """Forecast what a study needs of which sites' folders are missing; None if nothing is known of those.

    `data_root` None: no folder is given, and all are missing. No label file is read.
    """
    if pipeline.samples is not None:
        return None
    published, missing = dict[str, Published | None](), dict[str, Published]()
    for entry in pipeline.sites:
        config = load_site_config(pipeline_file.parent / entry.config)
        config = config if entry.root is None else config.model_copy(update={"root": entry.root, "other_roots": []})
        release = published[config.site] = find_published(config)
        if release is not None and (data_root is None or not config.folder(data_root).is_dir()):
            missing[config.site] = release
    if not missing:
        return None
    pixels = pipeline.preprocess.size**2
    rows = [
        [
            name,
            f"{release.images:,}",
            size_text(release.size),
            size_text(release.images * pixels),
            duration(_decode(release)),
        ]
        for name, release in missing.items()
    ]
    head = ["images", "download", "cache", "decoding"]
    parts: list[RenderableType] = [
        text_table("Not here yet", ["site"], head, rows, _AT_MOST.format(plural(cores(), "core"), DECODED_BYTES / 1e6))
    ]
    parts += [
        Text(f"{name}: {'; '.join(filter(None, (release.page, release.note)))}") for name, release in missing.items()
    ]
    known = {name: release for name, release in published.items() if release is not None}
    if len(known) == len(published):
        parts += _forecast_training(pipeline, known)
    return Group(*parts)


def _decode(release: Published) -> float:
    """Seconds to decode a release."""
    return release.size / DECODED_BYTES / cores()


def _forecast_training(pipeline: Pipeline, releases: Mapping[str, Published]) -> list[RenderableType]:
    """Steps, rounds, bytes, disk, memory and time of a study of all published images; steps are timed here."""
    pipeline = pipeline.model_copy(update={"model": without_absent_weights(pipeline.model)})
    timings = time_steps(pipeline, prepare_machine(pipeline.runtime, elsewhere=True))
    classes = (1,) * len(pipeline.tasks)  # unknown: no hospital counts as one without positives
    clients = tuple(
        ImageCounts(name, images // entry.clients, classes, classes, images // entry.clients)
        for entry, (name, release) in zip(pipeline.sites, releases.items(), strict=True)
        for images in [min(release.images, entry.training_images or release.images)]
        for _ in range(entry.clients)
    )
    test = ImageCounts("test set", 0, classes, classes, 0)
    seconds, images = sum(map(_decode, releases.values())), sum(release.images for release in releases.values())
    plan = StudyPlan(pipeline.title, pipeline, clients, test, Origin.REAL, seconds, timings, images)
    total = estimated(plan.data_seconds + plan.training_seconds, timings)
    lines = [f"At most, for one method and seed, without download and scoring. {total}.", *list_needs(plan)]
    return [tabulate_parts(plan), *map(Text, lines)]
