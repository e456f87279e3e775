"""What a study needs whose data are not here yet: download, disk and time, from the sizes that their owners state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from chestfed.studies.experiment.quick import IMAGES, SCORED_IMAGES
from chestfed.studies.training.costs import duration, estimated, time_steps
from chestfed.studies.training.plan import DECODED_BYTES, ImageCounts, StudyPlan
from chestfed.studies.training.plan_output import list_needs, tabulate_parts

_AT_MOST: Final = (
    "At most: {}; views, splits and exclusions leave out some. Decoding on {}, of which each is "
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
    reads = dict(zip(published, _count_read(pipeline, published.values()), strict=True))
    rows = [
        [
            name,
            f"{release.images:,}",
            size_text(release.size),
            size_text(reads[name] * pixels),
            duration(_decode(release, reads[name])),
        ]
        for name, release in missing.items()
    ]
    images = "all published images are downloaded, and few decoded" if pipeline.quick else "all published images"
    note = _AT_MOST.format(images, plural(cores(), "core"), DECODED_BYTES / 1e6)
    head = ["images", "download", "cache", "decoding"]
    parts: list[RenderableType] = [text_table("Not here yet", ["site"], head, rows, note)]
    parts += [
        Text(f"{name}: {'; '.join(filter(None, (release.page, release.note)))}") for name, release in missing.items()
    ]
    known = {name: release for name, release in published.items() if release is not None}
    if len(known) == len(published):
        parts += _forecast_training(pipeline, known)
    return Group(*parts)


def _count_read(pipeline: Pipeline, releases: Iterable[Published | None]) -> list[int]:
    """Images of each site that are decoded at most: all, but few in a quick study; 0 where nothing is known."""
    numbers = [release.images if release else 0 for release in releases]
    limits = [entry.clients * IMAGES + SCORED_IMAGES for entry in pipeline.sites]
    return list(map(min, numbers, limits)) if pipeline.quick else numbers


def _decode(release: Published, images: int) -> float:
    """Seconds to decode so many images of a release."""
    return release.size * images / release.images / DECODED_BYTES / cores()


def _forecast_training(pipeline: Pipeline, releases: Mapping[str, Published]) -> list[RenderableType]:
    """Steps, rounds, bytes, disk, memory and time of a study of all published images; steps are timed here."""
    pipeline = pipeline.model_copy(update={"model": without_absent_weights(pipeline.model)})
    timings = time_steps(pipeline, prepare_machine(pipeline.runtime, elsewhere=True))
    classes = (1,) * len(pipeline.tasks)  # unknown: no hospital counts as one without positives
    most = IMAGES if pipeline.quick else max(release.images for release in releases.values())
    clients = tuple(
        ImageCounts(name, images, classes, classes, images)
        for entry, (name, release) in zip(pipeline.sites, releases.items(), strict=True)
        for images in [min(most, min(release.images, entry.training_images or release.images) // entry.clients)]
        for _ in range(entry.clients)
    )
    test = ImageCounts("test set", 0, classes, classes, 0)
    reads = _count_read(pipeline, releases.values())
    seconds = sum(map(_decode, releases.values(), reads))
    plan = StudyPlan(pipeline.title, pipeline, clients, test, Origin.REAL, seconds, timings, sum(reads))
    total = estimated(plan.data_seconds + plan.training_seconds, timings)
    lines = [f"At most, for one method and seed, without download and scoring. {total}.", *list_needs(plan)]
    return [tabulate_parts(plan, [pipeline]), *map(Text, lines)]
