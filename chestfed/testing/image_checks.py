"""Checks of the images: decoding, damaged ones, what the cache keeps, and a step of training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from chestfed.core.diseases import DISEASES
from chestfed.core.errors import ChestfedError
from chestfed.images.cache import fill_cache
from chestfed.images.preprocess import Preprocess
from chestfed.sites.table import SiteTable
from chestfed.testing.case import Case

_PREPROCESS = Preprocess()
_SHORTEST = 5  # shorter names stand in pixels by chance


def images(case: Case) -> Iterator[str]:
    """Images become uint8 squares of 320x320 and float32 batches, and are not one grey."""
    sample = case.sample()
    try:
        cached = fill_cache(sample, case.scratch / "cache", _PREPROCESS, workers=1)
    except ChestfedError as error:
        yield f"images cannot be decoded: {error}"
        return
    from chestfed.images.batches import EvalBatches

    size = _PREPROCESS.size
    for place, row in enumerate(sample.frame["row"]):
        pixels = cached.read(place)
        if pixels.shape != (size, size) or pixels.dtype != np.uint8:
            yield f"row {row}: {pixels.dtype} {list(pixels.shape)}, not uint8 [{size}, {size}]"
        elif pixels.min() == pixels.max():
            yield f"row {row}: every pixel is the same"
    for batch in EvalBatches(cached, sample.labels(), 4):
        if tuple(batch.images.shape[1:]) != (3, size, size) or not bool(batch.images.isfinite().all()):
            yield f"a batch of images is {list(batch.images.shape)}, or not finite"


def damaged_images(case: Case) -> Iterator[str]:
    """An image that is absent, empty, cut short or no image is refused, naming its file or its row."""
    name, row = str(case.table.frame["image"].iat[0]), int(case.table.frame["row"].to_numpy()[0])
    original = (case.table.root / name).read_bytes()
    is_label_file = any((case.table.root / name).match(p) for names in case.config.label_files.values() for p in names)
    damages = {"absent": None, "empty": b"", "cut short": original[: len(original) // 2], "no image": b"no image" * 99}
    for number, (damage, data) in enumerate(damages.items()):
        copy = case.copy()
        (copy.root / name).unlink()
        if data is not None:
            copy.write(name, data)
        cache = case.scratch / f"damaged{number}"
        try:
            table = copy.open()
            same = table.frame["image"].map(lambda image: PurePosixPath(image).name == PurePosixPath(name).name)
            kept = table.with_frame(table.frame[same & (table.frame["row"] == row)].reset_index(drop=True))
            if kept.frame.empty:
                if not is_label_file:  # otherwise there is no row that could be missed
                    yield f"an image that is {damage} is left out in silence, with its row"
                continue
            fill_cache(kept, cache, _PREPROCESS, workers=1)
            yield f"an image that is {damage} is taken for readable"
        except ChestfedError as error:
            if PurePosixPath(name).name not in str(error) and f":{row}" not in str(error):
                yield f"an image that is {damage}: neither file nor row is named: {' '.join(str(error).split())[:160]}"
        except Exception as error:  # of a reader
            yield f"an image that is {damage} raises {type(error).__name__}, not a ChestfedError"
        found = _identifiers_in(cache, case.table)
        if found:
            yield f"the cache of an image that is {damage} holds {found}"


def cache(case: Case) -> Iterator[str]:
    """No file of the cache holds the name of a patient, a study or an image."""
    sample = case.sample()
    folder = case.scratch / "cache"
    try:
        fill_cache(sample, folder, _PREPROCESS, workers=1, skip_unreadable=True)
    except ChestfedError as error:
        yield f"the cache cannot be filled: {error}"
        return
    found = _identifiers_in(folder, sample)
    if found:
        yield f"the cache holds {found}"
    if not _names(sample):
        case.note(f"all names have less than {_SHORTEST} letters: they cannot be told from pixels")


def training(case: Case) -> Iterator[str]:
    """A batch gives finite gradients, and a missing label none."""
    import torch

    from chestfed.images.batches import EvalBatches
    from chestfed.models import build_model, network_options
    from chestfed.objectives.auc_margin import AucMargin

    sample = case.sample().about([*DISEASES])
    try:
        cached = fill_cache(sample, case.scratch / "cache", _PREPROCESS, workers=1)
    except ChestfedError as error:
        yield f"images cannot be decoded: {error}"
        return
    labels = sample.labels()
    labels[0] = np.nan  # an image without any label
    batch = next(iter(EvalBatches(cached, labels, 4)))
    network = build_model(
        network_options("small", init_features=8, growth_rate=8, blocks=[1], pool=4), len(DISEASES), 1
    )
    objective = AucMargin(torch.nan_to_num(torch.from_numpy(sample.positive_ratios())).float())
    logits = network(batch.images)
    logits.retain_grad()
    extra, dual = torch.zeros(objective.extra_size), torch.zeros(objective.dual_size)
    objective.loss(logits, batch.labels, extra, dual).backward()
    gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
    if not gradients or not all(bool(gradient.isfinite().all()) for gradient in gradients):
        yield "the gradient of a batch is not finite"
    if logits.grad is None or bool((logits.grad[batch.labels.isnan()] != 0).any()):
        yield "a missing label has a gradient"


def _identifiers_in(folder: Path, table: SiteTable) -> str:
    """Which kinds of names stand in the files below a folder; empty if none does."""
    found = set()
    for path in sorted(folder.rglob("*")):
        data = path.read_bytes() if path.is_file() else b""
        for kind, names in _names(table).items():
            if any(name in data for name in names):
                found.add(f"{kind} names ({path.name})")
    return ", ".join(sorted(found))


def _names(table: SiteTable) -> dict[str, set[bytes]]:
    """The names that can be looked for, by kind."""
    paths = [PurePosixPath(image) for image in table.frame["image"]]
    kinds = {
        "image": {path.stem for path in paths},
        "patient": {*table.frame["patient"]},
        "study": {*table.frame["study"]},
    }
    allowed = {table.name, table.title}
    long = {
        kind: {name.encode() for name in names if len(name) >= _SHORTEST and name not in allowed}
        for kind, names in kinds.items()
    }
    return {kind: names for kind, names in long.items() if names}
