"""The image side of a study: what its clients train on, and the test set. Loading fills the caches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from chestfed.core.disk import check_folder, check_room
from chestfed.core.errors import ConfigError, Problem, TrainingError
from chestfed.core.provenance import Origin
from chestfed.core.pseudonyms import PUBLISHED, SiteKey, key_for
from chestfed.core.randomness import numpy_stream
from chestfed.evaluation.estimates import auc_per_disease
from chestfed.evaluation.intervals.methods import Intervals
from chestfed.evaluation.labeled import Scored, numbered
from chestfed.evaluation.probabilities import probabilities
from chestfed.evaluation.protocols import OverHospitals
from chestfed.evaluation.summary import group_columns
from chestfed.experiment.device import Machine
from chestfed.experiment.pipeline import Pipeline
from chestfed.images.augment import Augment
from chestfed.images.batches import (
    IMAGENET,
    EvalBatches,
    Images,
    NetworkInput,
    NoiseImages,
    PooledImages,
    TrainBatches,
    normalize,
)
from chestfed.images.cache import CachedImages, fill_cache, lacking_bytes
from chestfed.images.database import unpack_keys
from chestfed.models import FlatModule, renew_statistics
from chestfed.results.table import Row
from chestfed.sites.table import SiteTable
from chestfed.training.overlap import Shared, apart
from chestfed.training.study_tables import StudyTables

#: Images from which a hospital's running statistics are taken, at most.
STATISTICS_IMAGES = 1024

#: How many of them go through the network at once.
STATISTICS_BATCH = 32


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
        """Share of positives among the labeled rows of the training list, float64 `[J]`; NaN without labels."""
        weight = self._effective_repeats()[:, None] * ~np.isnan(self.labels)
        total = weight.sum(axis=0)
        positive = (weight * (self.labels == 1)).sum(axis=0)
        return np.divide(positive, total, out=np.full(total.shape, np.nan), where=total > 0)

    def labeled_share(self) -> Tensor:
        """Share of the training list's rows that has a label, float64 `[J]`."""
        weight = self._effective_repeats()
        return torch.from_numpy(weight @ ~np.isnan(self.labels) / weight.sum())

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
            workers=machine.loader_workers,
            device=machine.device,
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
        return normalize(self.images.read(rows)), torch.from_numpy(np.asarray(self.labels[rows], np.float32))

    def digest(self, key: SiteKey) -> str:
        """Keyed digest of the content, row by row: pixels, labels and repeats; no names."""
        return _digest(key, self.images, self.labels, self.repeats)

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

    `patients` are running numbers, not the site's names; `image_names` and `patient_names` are keyed hashes, one per
    row, which stand in files that leave the site; `key` is the fingerprint of the key that they were made with.
    `own` holds training images of the same hospital: the network is scored with running statistics computed from them.
    If it is None, it is scored with the model's own.
    `parts` are the test sets that this one is made of, in order, if it spans several hospitals; `hospitals` names that
    of each image where the AUC is the mean of theirs, and is None where it is over all images.
    `groups` has a column each for sex, band of age and view, where they are known, and a row per image.
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
    own: Images | None = None
    parts: tuple[TestSet, ...] = ()
    hospitals: np.ndarray | None = None
    groups: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def counts(self) -> tuple[int, int]:
        """Images and patients."""
        return len(self.labels), int(self.patients.max()) + 1

    def scored(self, scores: np.ndarray) -> Scored:
        """These scores `[n, J]`, as evaluation takes them."""
        return Scored(scores, self.labels, self.patients, self.diseases, self.hospitals)

    def aucs(self, outputs: Outputs) -> dict[str, float | None]:
        return auc_per_disease(self.scored(outputs.scores))

    def row(self, outputs: Outputs, k: int, clients: Sequence[str], how: Intervals) -> Row:
        """The result of a model of the first K clients."""
        return Row.of_scores(k, clients, self.scored(outputs.scores), how.resamples, how.method)

    def digest(self, key: SiteKey) -> str:
        """Keyed digest of the content, row by row: pixels, labels and patients' numbers; no names."""
        return _digest(key, self.images, self.labels, self.patients)


@dataclass(frozen=True)
class Outputs:
    """Probabilities float64 `[n, J]` in row order, and the buffers `[b]` that they were computed with.

    `row` is in place of the scores where these stay at a hospital; its K and clients say nothing.
    """

    scores: np.ndarray
    buffers: Tensor
    row: Row | None = None


def score(
    network: FlatModule, parameters: Tensor, buffers: Tensor, test: TestSet, batch_size: int, machine: Machine
) -> Outputs:
    """The network with these parameters `[>= d]` on a test set, with these buffers or, if it has `own`, with its own.

    A test set of several hospitals is scored hospital by hospital; the buffers returned are then those given.

    Raises
    ------
    TrainingError
        If an output is not finite.
    """
    if test.parts:
        each = [score(network, parameters, buffers, part, batch_size, machine).scores for part in test.parts]
        return Outputs(np.concatenate(each), buffers)
    network.bind(parameters)
    network.load_buffers(buffers)
    network.module.eval()
    if test.own is not None and buffers.numel():
        take_statistics(network.module, test.own, machine)
    results = []
    with torch.inference_mode():
        for batch in EvalBatches(test.images, test.labels, batch_size, device=machine.device):
            with torch.autocast(machine.device.type, torch.bfloat16, enabled=machine.autocast):
                logits = network.module(batch.images)
            results.append(logits.float().clone())  # not a view of the images, which are overwritten
    logits = torch.cat(results).cpu()  # at the end: a GPU would be waited for at every batch
    if not torch.isfinite(logits).all():
        raise TrainingError("the network's outputs are not finite (NaN or infinity): lower federated.local_lr")
    return Outputs(probabilities(logits.numpy()), network.buffers())


def spread_rows(rows: np.ndarray) -> np.ndarray:
    """Those of a hospital's readable rows, int `[n]`, whose images its statistics are taken from.

    All, or evenly spaced ones if there are many, in whole batches if possible.
    """
    count = min(len(rows), STATISTICS_IMAGES)
    count -= count % STATISTICS_BATCH if count > STATISTICS_BATCH else 0
    return rows[np.arange(count) * len(rows) // count]


def take_statistics(module: nn.Module, images: Images, machine: Machine, form: NetworkInput = IMAGENET) -> None:
    """Give the module running statistics of some of these images; no label is used."""
    rows = spread_rows(np.flatnonzero(images.records >= 0))
    batch: Tensor | None = None  # all are of one size
    with renew_statistics(module):
        for start in range(0, len(rows), STATISTICS_BATCH):
            gray = torch.from_numpy(images.read(rows[start : start + STATISTICS_BATCH])).to(machine.device)
            batch = normalize(gray, out=batch, form=form)
            with torch.autocast(machine.device.type, torch.bfloat16, enabled=machine.autocast):
                module(batch)


@dataclass(frozen=True)
class StudyData:
    """The images of one study; `held_out`, `hospitals`, `joins`, `reasons` and `facts` as in `StudyTables`."""

    clients: tuple[ClientData, ...]  #: in the order of addition
    test: TestSet
    diseases: tuple[str, ...]
    quarantined: dict[str, list[Problem]]  #: site -> unreadable images, which are left out
    digests: dict[str, str]  #: keyed digest of each client, and of the `test set`
    held_out: str | None = None
    hospitals: dict[str, TestSet] = field(default_factory=dict)
    joins: dict[str, int] = field(default_factory=dict)
    validation: dict[str, TestSet] = field(default_factory=dict)  #: of hospitals, to choose settings on
    reasons: dict[str, str] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)  #: site -> what its labels do not show by themselves
    shared: tuple[Shared, ...] = ()
    facts: tuple[dict[str, Any], ...] = ()

    @property
    def origin(self) -> Origin:
        """Of all clients and the test set together."""
        return Origin.together([*(client.origin for client in self.clients), self.test.origin])

    def lacking(self, k: int) -> dict[str, str]:
        """Diseases that the training images of the first `k` clients do not have in both classes: what is missing."""
        ratios = np.stack([client.positive_ratios() for client in self.clients[:k]])
        there = {"labels": ~np.isnan(ratios), "positives": ratios > 0, "negatives": ratios < 1}
        missing = [(what, ~known.any(axis=0)) for what, known in there.items()]
        found = {disease: [what for what, none in missing if none[j]] for j, disease in enumerate(self.diseases)}
        return {disease: what[0] for disease, what in found.items() if what}


@dataclass(frozen=True, eq=False)
class Setup:
    """What a result comes from: the resolved configuration, the images, and the machine that this process has."""

    pipeline: Pipeline
    data: StudyData
    machine: Machine

    def at(self, place: int) -> Setup:
        """The same for one of several processes; see `Machine.at`."""
        return replace(self, machine=self.machine.at(place))


@dataclass(frozen=True, eq=False)
class SiteImages:
    """The rows of one site that studies read, and their images."""

    table: SiteTable
    images: CachedImages

    def places(self, table: SiteTable) -> np.ndarray:
        """Where the rows of a part of the site are among these, int `[n]`."""
        return pd.Index(self.table.frame["image"]).get_indexer(pd.Index(table.frame["image"]))

    def of(self, table: SiteTable) -> CachedImages:
        """The images of a part of the site."""
        return self.images.take(self.places(table))


def check_cache(studies: Sequence[StudyTables], pipeline: Pipeline, cache_root: Path) -> None:
    """Make sure that what `load_images` decodes has room."""
    if not cache_root.is_dir():  # a complete one may be there to read only
        check_folder(cache_root, "--cache")
    needed = sum(lacking_bytes(rows, cache_root, pipeline.preprocess) for rows in _rows_in_use(studies))
    check_room(cache_root, needed, "the decoded images", "--cache")


def load_images(
    studies: Sequence[StudyTables],
    pipeline: Pipeline,
    cache_root: Path,
    *,
    skip_unreadable: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
    key: SiteKey | None = None,
) -> list[StudyData]:
    """Decode what is not cached yet, and tie images to the rows of each study, all cut from the same sites.

    `progress(site, done, total)` is called on the way. `key` makes the keyed names; None: that of this machine.

    Raises
    ------
    SiteError
        All missing or unreadable images of a site, unless `skip_unreadable`; then they are counted and left out.
    ConfigError
        If two sites share images or patients, unless these are to be left out; if none of the images that a client
        trains on, or that are scored, can be read.
    ChestfedError
        If there are real patients and their key file can't be used.
    """
    key = key or key_for(synthetic=all(table.synthetic for table in studies[0].whole))
    decode = partial(fill_cache, cache_root=cache_root, preprocess=pipeline.preprocess, skip_unreadable=skip_unreadable)
    by_name = {
        rows.name: SiteImages(rows, decode(rows, progress=None if progress is None else partial(progress, rows.name)))
        for rows in _rows_in_use(studies)
    }
    apart_of = cache(partial(apart, sites=by_name, wanted=pipeline.overlap, key=key))
    quarantined = {name: list(site.images.quarantined) for name, site in by_name.items() if site.images.quarantined}

    @cache
    def client_of(name: str, table: SiteTable, noise: bool) -> tuple[ClientData, str]:
        images = by_name[table.name].of(table)
        shown = NoiseImages(images, pipeline.seed, name) if noise else images
        client = ClientData(name, shown, table.labels(), table.frame["repeats"].to_numpy(), table.origin)
        return client, client.digest(key)

    @cache
    def test_of(table: SiteTable, training: tuple[SiteTable, ...]) -> TestSet:
        images = by_name[table.name].of
        return _test_set(table, images(table), key, PooledImages(list(map(images, training))) if training else None)

    @cache
    def study_of(study: StudyTables) -> StudyData:
        kept, shared = apart_of(study.parts)
        clients = [client_of(name, kept[table], name in study.noise) for name, table in study.clients]
        tests, hospitals, validation = _test_sets(study, kept, pipeline, test_of)
        digests = {client.name: digest for client, digest in clients}
        data = _described(study, tuple(client for client, _ in clients), tests, hospitals, pipeline)
        data = replace(data, quarantined=quarantined, shared=shared, validation=validation)
        return replace(data, digests=digests | {"test set": data.test.digest(key)})

    return [study_of(study) for study in studies]


def _test_sets(
    study: StudyTables,
    kept: Mapping[SiteTable, SiteTable],
    pipeline: Pipeline,
    test_of: Callable[[SiteTable, tuple[SiteTable, ...]], TestSet],
) -> list[dict[str, TestSet]]:
    """Of the tests, hospitals and validation patients, with the training images that their statistics are from."""
    statistics: dict[str, tuple[SiteTable, ...]] = defaultdict(tuple)
    for _, part in study.clients:
        if pipeline.evaluation.batch_norm == "own":
            statistics[part.name] += (kept[part],)
    tests = {table.name: table for table in study.tests}
    return [
        {name: test_of(kept[table], statistics[table.name]) for name, table in tables.items()}
        for tables in (tests, study.hospitals, study.validation)
    ]


def _described(
    study: StudyTables,
    clients: tuple[ClientData, ...],
    tests: Mapping[str, TestSet],
    hospitals: Mapping[str, TestSet],
    pipeline: Pipeline,
) -> StudyData:
    """The data with what the tables say of the study; of hospitals those of which an image can be read."""
    lost = [f"the training images of {client.name}" for client in clients if not client.training_rows]
    wanted = [table.name for table in study.tests if len(table.frame)]  # a federation's hospital may have none
    lost += [f"the test images of {name}" for name in wanted if not len(tests[name].labels)]
    if lost:
        raise ConfigError(f"none can be read of {', of '.join(lost)}: restore the files, or leave the site out")
    test = _all_of(tests, pipeline.evaluation.over_hospitals)
    return StudyData(
        clients,
        test,
        test.diseases,
        quarantined={},
        digests={},
        held_out=study.held_out,
        hospitals={name: its for name, its in hospitals.items() if len(its.labels)},
        joins=study.joins,
        reasons=study.reasons,
        notes={table.name: list(table.notes) for table in study.whole if table.notes},
        facts=study.facts,
    )


def _test_set(table: SiteTable, images: CachedImages, key: SiteKey, own: Images | None) -> TestSet:
    """The readable images of a table that are to be scored."""
    readable = images.records >= 0
    if not readable.all():  # quarantined and counted already; the test set is what can be scored
        table = table.with_frame(table.frame[readable].reset_index(drop=True))
        images = images.take(np.flatnonzero(readable))
    names = image_names(images.sources, key), patient_names(table.name, table.frame["patient"], key)
    order = order_by_names(key, *names, table.labels())
    table, images = table.with_frame(table.frame.iloc[order].reset_index(drop=True)), images.take(order)
    patients = numbered(table.frame["patient"].to_numpy(dtype=str))
    images_named, patients_named = (tuple(column[row] for row in order) for column in names)
    about = (table.diseases, images_named, patients_named, key.fingerprint, table.origin, own)
    return TestSet(images, table.labels(), patients, *about, groups=group_columns(table.frame, by_image=True))


def _all_of(by_site: Mapping[str, TestSet], over_hospitals: OverHospitals) -> TestSet:
    """The test images of several sites; patients of different sites are different patients."""
    tests = list(by_site.values())
    if len(tests) == 1:
        return tests[0]
    names = np.repeat(list(by_site), [len(test.labels) for test in tests])
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
        parts=tuple(tests),
        hospitals=names if over_hospitals == "mean" else None,
        groups=pd.concat([test.groups for test in tests], ignore_index=True),
    )


def _rows_in_use(studies: Sequence[StudyTables]) -> list[SiteTable]:
    """Per site the rows that the studies read: those of their clients and test sets."""
    parts = {table: None for study in studies for table, _ in study.parts}
    used = []
    for table in studies[0].whole:
        images = {image for part in parts if part.name == table.name for image in part.frame["image"]}
        used.append(table.with_frame(table.frame[table.frame["image"].isin(images)].reset_index(drop=True)))
    return used


def image_names(picture_digests: np.ndarray, key: SiteKey) -> tuple[str, ...]:
    """Keyed name of each image, by its content before preprocessing: models of any input size name it alike."""
    return tuple(key.name("image", digest) for digest in unpack_keys(picture_digests))


def patient_names(site: str, patients: Iterable[object], key: SiteKey) -> tuple[str, ...]:
    """Keyed name of each row's patient; two sites' patients have different names."""
    return tuple(key.name("patient", site, str(patient)) for patient in patients)


def order_by_names(key: SiteKey, images: Sequence[str], patients: Sequence[str], labels: np.ndarray) -> np.ndarray:
    """The rows sorted by their keyed names, then by their labels `[n, J]`, int `[n]`; unsorted if the key is published.

    The order of a hospital's table would leave with the predictions, and name the patient of each row to whoever has a
    list in that order. Bootstrap resamples are drawn from the sorted rows, whatever the order of the table.
    """
    if key == PUBLISHED:
        return np.arange(len(images))
    return np.lexsort([*np.nan_to_num(labels, nan=-1).T, np.asarray(patients), np.asarray(images)])


def _digest(key: SiteKey, images: Images, *columns: np.ndarray) -> str:
    digest = key.hasher("data set")
    digest.update(images.digests.tobytes())
    for column in columns:
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()
