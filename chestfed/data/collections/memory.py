"""Python data sets as a collection: images of any kind that are in memory, one data set per client."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from chestfed.core.errors import ConfigError
from chestfed.data.collections.collection import COLLECTIONS
from chestfed.data.collections.declaration import Collection, CollectionSpec, Part, check_collection, label_patterns
from chestfed.data.collections.pixels import ArrayPixels


class Samples(Protocol):
    """Pairs of image and label, by row: a `torch.utils.data.Dataset`, or a list.

    An image is a PIL image, an array or tensor uint8 `[h, w]`, `[h, w, 3]` or `[3, h, w]`, or one of floats from 0 to
    1, which is rounded to 8 bits. A label is 0 or 1, or a vector `[tasks]` of 0, 1 and NaN (unknown).
    """

    def __len__(self) -> int:
        """The number of images."""

    def __getitem__(self, row: int, /) -> Any:
        """Image and label of a row."""


def register_samples(clients: Sequence[Samples], test: Samples) -> tuple[str, int, int]:
    """Make a collection of these data sets known in this process: its name, the number of tasks, and the side.

    The side is that of the images, at least 32. The name is a digest of the content.

    Raises
    ------
    ConfigError
        If there is no client, a data set is empty, or images or labels are not as `Samples` says.
    """
    if not clients:
        raise ConfigError("clients: give at least one data set")
    named = {f"clients[{number}]": part for number, part in enumerate(clients)} | {"test": test}
    parts = {name: _read(name, part) for name, part in named.items()}
    shapes = {image.shape for images, _ in parts.values() for image in images}
    if len(shapes) > 1:
        raise ConfigError(f"images have different shapes, {sorted(shapes)}: resize them to one shape")
    *trained, tested = parts.values()
    holders = np.repeat(np.arange(len(trained)), [len(images) for images, _ in trained])
    images, labels = (np.concatenate(arrays) for arrays in zip(*trained, strict=True))
    digest = hashlib.blake2b(digest_size=8)
    for array in (images, labels, holders, *tested):
        digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    name = f"in_memory_{digest.hexdigest()}"
    train = Part(ArrayPixels(images), label_patterns(labels), clients=holders, labels=labels)
    scored = Part(ArrayPixels(tested[0]), label_patterns(tested[1]), labels=tested[1])
    collection = check_collection(Collection(name, 0, train, scored), "clients and test")
    spec = CollectionSpec(name, "In memory", lambda *_: collection, has_files=False, version=digest.hexdigest())
    if name not in COLLECTIONS.names:
        COLLECTIONS.register(spec)
    return name, labels.shape[1], max(32, *next(iter(shapes))[:2])


def _read(name: str, samples: Samples) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 `[n, h, w]` or `[n, h, w, 3]` and labels float32 `[n, tasks]`."""
    try:
        pairs = [samples[row] for row in range(len(samples))]
        images = [_convert_image(image) for image, _ in pairs]
        labels = [np.atleast_1d(np.asarray(label, np.float32)) for _, label in pairs]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name}: needs pairs of image and label, by row: {error}") from None
    if not pairs:
        raise ConfigError(f"{name}: has no image")
    if len({label.shape for label in labels}) > 1 or labels[0].ndim != 1:
        raise ConfigError(f"{name}: labels have different shapes: give 0 or 1, or a vector [tasks], for every image")
    if len({image.shape for image in images}) > 1:
        raise ConfigError(f"{name}: images have different shapes: resize them to one shape")
    return np.stack(images), np.stack(labels)


def _convert_image(image: object) -> np.ndarray:
    """Uint8 `[h, w]` or `[h, w, 3]`."""
    pixels = np.asarray(image)
    if pixels.ndim == 3 and pixels.shape[0] in (1, 3) and pixels.shape[2] not in (1, 3):
        pixels = pixels.transpose(1, 2, 0)  # of torchvision: channels first
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    if pixels.dtype.kind == "f":
        if not (pixels.min() >= 0 and pixels.max() <= 1):
            raise ValueError(f"floats from {pixels.min():g} to {pixels.max():g}; give 0 to 1, or uint8")
        pixels = np.rint(pixels * 255).astype(np.uint8)
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3):
        raise ValueError(f"an image of {pixels.dtype} {list(pixels.shape)}; see chestfed.data.collections.memory")
    return pixels
