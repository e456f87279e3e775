"""From a pipeline's sites to clients and a test set.

Opening the tables reads label files only; loading the images fills the caches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from chestfed.core.config import expand_path
from chestfed.core.errors import ConfigError, Problem
from chestfed.core.provenance import Origin
from chestfed.core.pseudonyms import SiteKey, key_for
from chestfed.core.randomness import numpy_stream
from chestfed.evaluation.labelled import numbered
from chestfed.evaluation.protocols import Protocol, views_of
from chestfed.experiment.device import Machine
from chestfed.experiment.pipeline import Pipeline, SiteEntry
from chestfed.images.augment import Augment
from chestfed.images.batches import Images, TrainBatches, normalise
from chestfed.images.cache import CachedImages, fill_cache
from chestfed.images.pooled import PooledImages
from chestfed.sites import load_site_config, open_site
from chestfed.sites.config import SiteConfig
from chestfed.sites.partition import cut_into_clients, hold_out
from chestfed.sites.table import SiteTable


@dataclass(frozen=True)
class SiteTables:
    """The label side of a study: per client its name and training rows, and the test rows, mostly of the target only.

    `whole` are the tables as cached: one per site, training and test rows together.
    """

    whole: tuple[SiteTable, ...]
    clients: tuple[tuple[str, SiteTable], ...]
    tests: tuple[SiteTable, ...]

    @property
    def origin(self) -> Origin:
        """Of all sites together."""
        return Origin.together(table.origin for table in self.whole)


@dataclass(frozen=True)
class ClientData:
    """One client's training images: labels float32 `[n, J]` with NaN for missing, repeats int `[n]`."""

    name: str
    images: Images
    labels: np.ndarray
    repeats: np.ndarray
    origin: Origin = Origin.REAL

    @property
    def training_rows(self) -> int:
        """Length of the training list: readable images, repeated ones counted."""
        return int(self._effective_repeats().sum())

    def positive_ratios(self) -> np.ndarray:
        """Share of positives among the labelled rows of the training list, float64 `[J]`; NaN without labels."""
        weight = self._effective_repeats()[:, None] * ~np.isnan(self.labels)
        total = weight.sum(axis=0)
        positive = (weight * (self.labels == 1)).sum(axis=0)
        return np.divide(positive, total, out=np.full(total.shape, np.nan), where=total > 0)

    def train_batches(self, batch_size: int, seed: int, name: str, augment: Augment, machine: Machine) -> TrainBatches:
        """Endless augmented batches; the order depends on seed and name only."""
        return TrainBatches(
            self.images,
            self.labels,
            self.repeats,
            batch_size=batch_size,
            seed=seed,
            name=name,
            augment=augment,
            channels_last=machine.channels_last,
            workers=machine.loader_workers,
        )

    def some_of_each_class(self, count: int, seed: int) -> tuple[Tensor, Tensor]:
        """Up to `count` positives and negatives of each disease, without augmentation: images and labels `[n, J]`.

        Drawn from the training rows by `seed`; an image that several diseases draw is there once.
        """
        rng = numpy_stream(seed, "auxiliary images", self.name)
        usable = np.flatnonzero(self._effective_repeats())
        chosen: set[int] = set()
        for j in range(self.labels.shape[1]):
            for value in (0, 1):
                rows = usable[self.labels[usable, j] == value]
                chosen.update(rng.choice(rows, min(count, len(rows)), replace=False).tolist())
        rows = np.array(sorted(chosen))
        pixels = np.stack([self.images.read(int(row)) for row in rows])
        return normalise(pixels), torch.from_numpy(np.asarray(self.labels[rows], np.float32))

    def _effective_repeats(self) -> np.ndarray:
        return np.where(self.images.records >= 0, self.repeats, 0)


def pooled(clients: Sequence[ClientData]) -> ClientData:
    """All training images in one place."""
    return ClientData(
        "pool of " + ", ".join(client.name for client in clients),
        PooledImages([client.images for client in clients]),
        np.concatenate([client.labels for client in clients]),
        np.concatenate([client.repeats for client in clients]),
        Origin.together(client.origin for client in clients),
    )


@dataclass(frozen=True)
class TestSet:
    """The images that are scored.

    Attributes
    ----------
    patients
        Running numbers, not the site's names.
    image_names, patient_names
        Keyed hashes, one per row: what stands in files that leave the site.
    key
        Fingerprint of the key that they were made with.
    """

    __test__ = False  # not a test class, whatever pytest thinks of the name

    images: Images
    labels: np.ndarray
    patients: np.ndarray
    diseases: tuple[str, ...]
    image_names: tuple[str, ...]
    patient_names: tuple[str, ...]
    key: str
    origin: Origin = Origin.REAL


@dataclass(frozen=True)
class StudyData:
    """Clients in the order of addition, the test set, and what was left out; `digests` are keyed.

    `held_out` is the site that the test set is of, if no client is of that site.
    """

    clients: tuple[ClientData, ...]
    test: TestSet
    diseases: tuple[str, ...]
    quarantined: dict[str, list[Problem]]
    digests: dict[str, str]
    held_out: str | None = None

    @property
    def origin(self) -> Origin:
        """Of all clients and the test set together."""
        return Origin.together([*(client.origin for client in self.clients), self.test.origin])


def resolve_data_root(pipeline: Pipeline, override: Path | None) -> Path:
    """The folder of the sites' roots: the override, else the pipeline's, else $CHESTFED_DATA.

    Raises
    ------
    ConfigError
        If none of them is given.
    """
    if override is not None:
        return override
    if pipeline.data_root is not None:
        return expand_path(pipeline.data_root, Path.cwd())
    variable = os.environ.get("CHESTFED_DATA")
    if not variable:
        raise ConfigError(
            "where are the sites' files? Give their folder with --data DIR, or set CHESTFED_DATA, "
            "or data_root in the pipeline"
        )
    return Path(variable).expanduser()


def open_tables(pipeline: Pipeline, pipeline_file: Path, data_root: Path) -> SiteTables:
    """Read every site's label files, cut clients, and hold the test patients out.

    Raises
    ------
    SiteError
        All problems of a site's tables in one report.
    ConfigError
        If the test set or a client comes out empty.
    """
    whole: list[SiteTable] = []
    clients: list[tuple[str, SiteTable]] = []
    tests: list[SiteTable] = []
    configs = [_config_of(entry, pipeline_file) for entry in pipeline.sites]
    _refuse_same_names([config.site for config in configs])
    for position, (entry, config) in enumerate(zip(pipeline.sites, configs, strict=True)):
        if position and not set(config.diseases) & set(pipeline.diseases):
            raise ConfigError(
                f"site '{config.site}' labels {', '.join(config.diseases)}: none of the study's diseases, which are "
                f"{', '.join(pipeline.diseases)}. Nothing could be learnt from it: leave it out, or change 'diseases'"
            )
        table = open_site(config, data_root)
        whole.append(table)
        training, test = _training_and_test(table, entry, pipeline, target=position == 0)
        if test is not None:
            tests.append(test)
        clients += clients_of(table.name, training, entry, pipeline)
    check_clients(clients)
    lacking = [disease for disease in pipeline.diseases if disease not in whole[0].diseases]
    if lacking:
        raise ConfigError(
            f"site '{whole[0].name}' is the target and does not label {', '.join(lacking)}: nothing could be evaluated "
            "there. Change 'diseases' in the pipeline, or the site's YAML"
        )
    about = [(name, part.about(pipeline.diseases)) for name, part in clients]
    silent = [name for name, part in about if np.isnan(part.labels()).all()]
    if silent:
        raise ConfigError(
            f"no training image at {', '.join(silent)} has a label of {', '.join(pipeline.diseases)}: see `labels`, "
            "`uncertain` and `blank` in the site's YAML"
        )
    return SiteTables(tuple(whole), tuple(about), tuple(test.about(pipeline.diseases) for test in tests))


def open_entry(entry: SiteEntry, pipeline_file: Path, data_root: Path) -> SiteTable:
    """The table of one of the pipeline's sites.

    Raises
    ------
    SiteError
        All problems of the site's table in one report.
    """
    return open_site(_config_of(entry, pipeline_file), data_root)


def _config_of(entry: SiteEntry, pipeline_file: Path) -> SiteConfig:
    config = load_site_config(pipeline_file.parent / entry.config)
    return config if entry.root is None else config.model_copy(update={"root": entry.root})


def clients_of(name: str, training: SiteTable, entry: SiteEntry, pipeline: Pipeline) -> list[tuple[str, SiteTable]]:
    """The clients that a site's training rows are cut into, by name."""
    if entry.clients == 1:
        return [(name, training)]
    parts = cut_into_clients(training, entry.clients, pipeline.seed)
    return [(f"{name}-{number}", part) for number, part in enumerate(parts, start=1)]


def check_clients(clients: Sequence[tuple[str, SiteTable]]) -> None:
    """Check that every client has images and a name of its own.

    Raises
    ------
    ConfigError
        If not.
    """
    empty = [name for name, part in clients if len(part.frame) == 0]
    if empty:
        raise ConfigError(
            f"no training image at: {', '.join(empty)}. The split 'train' of its table, with the views that its YAML "
            "keeps, is empty: see `chestfed site stats`"
        )
    _refuse_same_names([name for name, _ in clients])


def _refuse_same_names(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise ConfigError(f"two sites have the same name: {', '.join(names)}. Change 'site' in one of their YAMLs.")


def training_and_test(table: SiteTable, entry: SiteEntry, pipeline: Pipeline) -> tuple[SiteTable, SiteTable]:
    """A site's training rows, and its rows of the evaluated split and views, which may be none."""
    training, test = table.select(split="train"), table.select(split=pipeline.evaluation.split)
    if entry.test_fraction is not None:
        training, test = hold_out(training, entry.test_fraction, pipeline.seed)
    if entry.validation_fraction is not None:
        training, _ = hold_out(training, entry.validation_fraction, pipeline.seed, "validation")
    return training, test.select(views=views_of(pipeline.evaluation.protocol))


def left_out_views(table: SiteTable, split: str | None, protocol: Protocol) -> str:
    """Why a split (None: all) is empty under a protocol, if it is for its views; otherwise an empty string."""
    views = table.select(split=split).frame["view"].value_counts()
    counts = ", ".join(f"{view} {count:,}" for view, count in views.items() if count)
    if not counts:
        return ""
    return f". It leaves out the images there for their views ({counts}): if they are frontal, take protocol all-image"


def _training_and_test(
    table: SiteTable, entry: SiteEntry, pipeline: Pipeline, *, target: bool
) -> tuple[SiteTable, SiteTable | None]:
    """A site's training rows, and its rows of the test set, if it has a part in it."""
    training, test = training_and_test(table, entry, pipeline)
    if entry.test_fraction is None and not target:
        return training, None
    if len(test.frame) == 0:
        raise ConfigError(
            f"site '{table.name}' has no image for evaluation.split: {pipeline.evaluation.split} with protocol "
            f"{pipeline.evaluation.protocol}"
            + left_out_views(table, pipeline.evaluation.split, pipeline.evaluation.protocol)
        )
    return training, test


def load_images(
    tables: SiteTables,
    pipeline: Pipeline,
    cache_root: Path,
    *,
    skip_unreadable: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> StudyData:
    """Decode what is not cached yet, and tie images to labels. `progress(site, done, total)` is called on the way.

    Raises
    ------
    SiteError
        All missing or unreadable images of a site, unless `skip_unreadable`; then they are counted and left out.
    ChestfedError
        If there are real patients and their key file can't be used.
    """
    key = key_for(synthetic=all(table.synthetic for table in tables.whole))
    quarantined: dict[str, list[Problem]] = {}
    used = _rows_in_use(tables)
    for table in used:
        tell = None if progress is None else _with_name(progress, table.name)
        filled = fill_cache(table, cache_root, pipeline.preprocess, skip_unreadable=skip_unreadable, progress=tell)
        if filled.quarantined:
            quarantined[table.name] = list(filled.quarantined)

    def cached(table: SiteTable) -> CachedImages:
        return fill_cache(table, cache_root, pipeline.preprocess, skip_unreadable=skip_unreadable)

    clients = []
    for name, table in tables.clients:
        repeats = table.frame["repeats"].to_numpy()
        clients.append(ClientData(name, cached(table), table.labels(), repeats, table.origin))
    tests = [test_of(table, cached, key) for table in tables.tests]
    test = tests[0] if len(tests) == 1 else _all_of(tests)
    digests = {client.name: digest_of(key, client.images.digests, client.labels, client.repeats) for client in clients}
    digests["test set"] = digest_of(key, test.images.digests, test.labels, test.patients)
    return StudyData(tuple(clients), test, test.diseases, quarantined, digests)


def test_of(table: SiteTable, cached: Callable[[SiteTable], CachedImages], key: SiteKey) -> TestSet:
    """The readable images of a table that are to be scored; `cached` gives a table's images."""
    images = cached(table)
    readable = images.records >= 0
    if not readable.all():  # quarantined and counted already; the test set is what can be scored
        table = table.with_frame(table.frame[readable].reset_index(drop=True))
        images = cached(table)
    patients = numbered(table.frame["patient"].to_numpy(dtype=str))
    names = image_names(images.sources, key), patient_names(table.name, table.frame["patient"], key)
    return TestSet(images, table.labels(), patients, table.diseases, *names, key.fingerprint, table.origin)


def _all_of(tests: Sequence[TestSet]) -> TestSet:
    """The test images of several sites; a patient of one site is none of another's."""
    firsts = np.cumsum([0, *(int(test.patients.max()) + 1 for test in tests)])
    return TestSet(
        PooledImages([test.images for test in tests]),
        np.concatenate([test.labels for test in tests]),
        np.concatenate([test.patients + first for test, first in zip(tests, firsts[:-1], strict=True)]),
        tests[0].diseases,
        tuple(name for test in tests for name in test.image_names),
        tuple(name for test in tests for name in test.patient_names),
        tests[0].key,
        Origin.together(test.origin for test in tests),
    )


def _rows_in_use(tables: SiteTables) -> list[SiteTable]:
    """Per site the rows that the study reads: those of its clients and of the test set."""
    used = []
    for table in tables.whole:
        parts = [*(part for _, part in tables.clients), *tables.tests]
        images = {image for part in parts if part.name == table.name for image in part.frame["image"]}
        used.append(table.with_frame(table.frame[table.frame["image"].isin(images)].reset_index(drop=True)))
    return used


def _with_name(progress: Callable[[str, int, int], None], name: str) -> Callable[[int, int], None]:
    return lambda done, total: progress(name, done, total)


#: What images are named by, as files with names say; those of earlier versions do not, and named resized pixels.
NAMED_BY = "picture"


def image_names(picture_digests: Sequence[bytes], key: SiteKey) -> tuple[str, ...]:
    """Keyed name of each image, by its grey levels before preprocessing: models of any input size name it alike."""
    return tuple(key.name("image", digest) for digest in picture_digests)


def patient_names(site: str, patients: Iterable[object], key: SiteKey) -> tuple[str, ...]:
    """Keyed name of each row's patient; two sites' patients have different names."""
    return tuple(key.name("patient", site, str(patient)) for patient in patients)


def digest_of(key: SiteKey, pixel_digests: Sequence[bytes] | np.ndarray, *columns: np.ndarray) -> str:
    """Keyed digest of a client's content, row by row in order: pixels, labels and counts, no names."""
    digest = key.hasher("data set")
    for pixels in pixel_digests:
        digest.update(bytes(pixels))
    for column in columns:
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()
