"""Images with labels, cut from the sites: what a client trains on, and what is scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from chestfed.core.errors import ImageError, TrainingError
from chestfed.core.provenance import Origin
from chestfed.core.pseudonyms import PUBLISHED, SiteKey
from chestfed.core.randomness import numpy_stream
from chestfed.data.images.augment import Augment
from chestfed.data.images.balanced import BalancedBatches
from chestfed.data.images.batches import (
    IMAGENET,
    EvalBatches,
    Images,
    NetworkInput,
    PooledImages,
    Rows,
    TrainBatches,
    normalize,
)
from chestfed.data.images.cache import CachedImages
from chestfed.data.images.database import unpack_keys
from chestfed.data.images.features import FeatureImages
from chestfed.data.sites.table import SiteTable
from chestfed.learning.models import FlatModule, renew_statistics
from chestfed.results.evaluation.estimates import auc_per_disease, compute_mean
from chestfed.results.evaluation.intervals.methods import Intervals
from chestfed.results.evaluation.labeled import Scored, number_names
from chestfed.results.evaluation.probabilities import probabilities
from chestfed.results.evaluation.protocols import OverHospitals
from chestfed.results.evaluation.summary import group_columns
from chestfed.results.tables.frames import Row
from chestfed.studies.experiment.device import Machine

#: Images from which a hospital's running statistics are taken, at most.
STATISTICS_IMAGES = 1024

#: Number of them that go through the network at once.
STATISTICS_BATCH = 32


class NoImages:
    """The images of a data set that has none, or of so many rows whose images are not read."""

    def __init__(self, rows: int = 0) -> None:
        self.records, self.digests = np.zeros(rows, np.int64), np.zeros(rows, "V16")

    def read(self, rows: Rows) -> np.ndarray:
        """Always refused."""
        raise ImageError(f"no images are loaded, and {len(rows)} are to be read")


@dataclass(frozen=True)
class ClientData:
    """One client's training images: labels float32 `[n, J]` with NaN for missing, repeats int `[n]`."""

    name: str
    images: Images
    labels: np.ndarray
    repeats: np.ndarray
    origin: Origin = Origin.REAL
    classes: tuple[int, ...] = field(default=(), kw_only=True)  #: images of each class of a collection

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

    @property
    def has_both_classes(self) -> bool:
        """Whether the training list has positives and negatives of a disease."""
        ratios = self.positive_ratios()
        return bool(((ratios > 0) & (ratios < 1)).any())

    def labeled_share(self) -> Tensor:
        """Share of the training list's rows that has a label, float64 `[J]`."""
        weight = self._effective_repeats()
        return torch.from_numpy(weight @ ~np.isnan(self.labels) / weight.sum())

    def train_batches(
        self,
        batch_size: int,
        seed: int,
        name: str,
        augment: Augment,
        machine: Machine,
        positives: int | None = None,
        share: Callable[[int], np.ndarray] | None = None,
    ) -> TrainBatches:
        """Endless augmented batches, the order depends on seed and name only; with so many `positives` in each.

        `share` is that of `TrainBatches`.
        """
        kind = TrainBatches if positives is None else partial(BalancedBatches, positives=positives)
        return kind(
            self.images,
            self.labels,
            self.repeats,
            batch_size=batch_size,
            seed=seed,
            name=name,
            augment=augment,
            share=share,
            workers=0
            if isinstance(self.images, FeatureImages)
            else machine.loader_workers,  # there is nothing to do ahead
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


def pool_clients(clients: Sequence[ClientData]) -> ClientData:
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
    `statistics_images` are training images of the same hospital, from which running statistics are computed first.
    If None, the running statistics of the model are used.
    `parts` are the test sets that this one is made of, in order, if it spans several hospitals; `hospitals` names that
    of each image where the AUC is the mean of theirs, and is None where it is over all images.
    `groups` has a column each for sex, band of age and view, where they are known, and a row per image.
    `site` is the hospital that the images are from; empty for several, and for public images. `split` says which of its
    images they are (`StudySite.name_split`).
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
    statistics_images: Images | None = None
    parts: tuple[TestSet, ...] = ()
    hospitals: np.ndarray | None = None
    groups: pd.DataFrame = field(default_factory=pd.DataFrame)
    site: str = ""
    split: str = ""

    @classmethod
    def blank(cls) -> TestSet:
        """That of a study whose images are not loaded."""
        return cls(NoImages(), np.zeros((0, 0), np.float32), np.zeros(0, np.int64), (), (), (), "")

    @property
    def target(self) -> str:
        """The hospital, of several the first; empty of public images."""
        return self.parts[0].target if self.parts else self.site

    @property
    def counts(self) -> tuple[int, int]:
        """Images and patients."""
        return len(self.labels), int(self.patients.max()) + 1

    def attach_scores(self, scores: np.ndarray) -> Scored:
        """These scores `[n, J]`, as evaluation takes them."""
        return Scored(scores, self.labels, self.patients, self.diseases, self.hospitals)

    def aucs(self, outputs: Outputs) -> dict[str, float | None]:
        return auc_per_disease(self.attach_scores(outputs.scores))

    def mean_auc(self, outputs: Outputs) -> float | None:
        """The mean over the diseases that count; None if none does."""
        return compute_mean(self.attach_scores(outputs.scores), self.aucs(outputs))

    def row(self, outputs: Outputs, k: int, clients: Sequence[str], how: Intervals) -> Row:
        """The result of a model of the first K clients."""
        return Row.from_scores(k, clients, self.attach_scores(outputs.scores), how.resamples, how.method)

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
    """Scores of the network with parameters `[>= d]` and these buffers, or statistics of `test.statistics_images`.

    A test set of several hospitals is scored hospital by hospital; the buffers returned are then those given.

    Raises
    ------
    TrainingError
        If an output is not finite.
    """
    if test.parts:
        each = [score(network, parameters, buffers, part, batch_size, machine).scores for part in test.parts]
        return Outputs(np.concatenate(each), buffers)
    prepare_scoring(network, parameters, buffers, test, machine)
    logits = run_batches(network, test, batch_size, machine)
    return Outputs(read_probabilities(logits), network.buffers())


def prepare_scoring(
    network: FlatModule, parameters: Tensor, buffers: Tensor, test: TestSet, machine: Machine, *, renews: bool = True
) -> None:
    """Give the network the parameters and statistics that a test set is scored with; these buffers if not `renews`."""
    network.bind(parameters)
    network.load_buffers(buffers)
    network.module.eval()
    if renews and test.statistics_images is not None and buffers.numel():
        take_statistics(network.module, test.statistics_images, machine)


def run_batches(
    network: FlatModule, test: TestSet, batch_size: int, machine: Machine, turn: tuple[int, int] = (0, 1)
) -> Tensor:
    """Logits `[n, J]` on the CPU of the images, or of the batches whose `turn` it is; see `EvalBatches`."""
    results = [torch.zeros(0, len(test.diseases), dtype=network.grad.dtype, device=machine.device)]
    with torch.inference_mode():
        for batch in EvalBatches(test.images, test.labels, batch_size, device=machine.device, turn=turn):
            with torch.autocast(machine.device.type, torch.bfloat16, enabled=machine.autocast):
                logits = network.module(batch.images)
            results.append(logits.to(network.grad.dtype).clone())  # not a view of the images, which are overwritten
    return torch.cat(results).cpu()  # at the end: a GPU would be waited for at every batch


def read_probabilities(logits: Tensor) -> np.ndarray:
    """Probabilities float64 `[n, J]` of logits on the CPU; raises `TrainingError` if one is not finite."""
    if not torch.isfinite(logits).all():
        text = "the network's outputs are not finite (NaN or infinity): lower federated.local_lr"
        raise TrainingError(text, kind="not finite")
    return probabilities(logits.numpy())


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


def image_names(picture_digests: np.ndarray, key: SiteKey) -> tuple[str, ...]:
    """Keyed name of each image, by its content before preprocessing: models of any input size name it alike."""
    return tuple(key.name("image", digest) for digest in unpack_keys(picture_digests))


def order_by_names(key: SiteKey, images: Sequence[str], patients: Sequence[str], labels: np.ndarray) -> np.ndarray:
    """The rows sorted by their keyed names, then by their labels `[n, J]`, int `[n]`; unsorted if the key is published.

    The order of a hospital's table would leave with the predictions, and name the patient of each row to whoever has a
    list in that order. Bootstrap resamples are drawn from the sorted rows, whatever the order of the table.
    """
    if key == PUBLISHED:
        return np.arange(len(images))
    return np.lexsort([*np.nan_to_num(labels, nan=-1).T, np.asarray(patients), np.asarray(images)])


def make_test_set(table: SiteTable, images: CachedImages, key: SiteKey, statistics_images: Images | None) -> TestSet:
    """The readable images of a table that are to be scored; `statistics_images` as in `TestSet`."""
    readable = images.records >= 0
    if not readable.all():  # quarantined and counted already; the test set is what can be scored
        table = table.with_frame(table.frame[readable].reset_index(drop=True))
        images = images.take(np.flatnonzero(readable))
    names = image_names(images.sources, key), key.name_patients(table.name, table.frame["patient"])
    order = order_by_names(key, *names, table.labels())
    table, images = table.with_frame(table.frame.iloc[order].reset_index(drop=True)), images.take(order)
    patients = number_names(table.frame["patient"].to_numpy(dtype=str))
    images_named, patients_named = (tuple(column[row] for row in order) for column in names)
    about = (table.diseases, images_named, patients_named, key.fingerprint, table.origin, statistics_images)
    groups = group_columns(table.frame, by_image=True)
    return TestSet(images, table.labels(), patients, *about, groups=groups, site=table.name)


def pool_tests(by_site: Mapping[str, TestSet], over_hospitals: OverHospitals) -> TestSet:
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
        split=" and ".join(dict.fromkeys(test.split for test in tests)),
    )


def _digest(key: SiteKey, images: Images, *columns: np.ndarray) -> str:
    digest = key.hasher("data set")
    digest.update(images.digests.tobytes())
    for column in columns:
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()
