"""Batches of images and labels: endless and seekable for training, in order for evaluation.

The order of training images and every augmentation are functions of the seed, the client's name and a counter, so the
whole state of a `TrainBatches` is its position.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, Protocol

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from chestfed.core.config import StrictModel
from chestfed.core.console import plural
from chestfed.core.randomness import numpy_stream, stream_seed
from chestfed.data.images.augment import Augment, backward, warp_images

CPU: Final = torch.device("cpu")

#: Numbers of rows, int `[n]`.
Rows = Sequence[int] | np.ndarray


class Images(Protocol):
    """Images of rows; `CachedImages` is one."""

    @property
    def records(self) -> np.ndarray:
        """int64 `[n]`, negative for a row whose image cannot be read."""
        ...

    @property
    def digests(self) -> np.ndarray:
        """16 bytes per row, of the pixels: void `[n]`."""
        ...

    def read(self, rows: Rows) -> np.ndarray:
        """Pixels uint8 of some rows: gray `[n, size, size]`, or color `[n, size, size, 3]`; the same for all rows.

        Of `FeatureImages` float32 `[n, d]`.
        """
        ...


class PooledImages:
    """The images of several clients as one client's: the rows of all parts, one part after the other."""

    def __init__(self, parts: Sequence[Images]) -> None:
        self.parts = parts
        self._starts = np.cumsum([0, *(len(part.records) for part in parts)])
        # Only the sign is used: a row is read through its own part.
        self.records = np.concatenate([part.records for part in parts])
        self.digests = np.concatenate([part.digests for part in parts])

    def read(self, rows: Rows) -> np.ndarray:
        """Pixels of some rows; raises what their parts raise."""
        rows = np.asarray(rows)
        part_of = np.searchsorted(self._starts, rows, side="right") - 1
        by_part = {
            part: self.parts[part].read(rows[part_of == part] - self._starts[part]) for part in np.unique(part_of)
        }
        first = next(iter(by_part.values()))
        pixels = np.empty((len(rows), *first.shape[1:]), first.dtype)
        for part, part_pixels in by_part.items():
            pixels[part_of == part] = part_pixels
        return pixels


class NoiseImages:
    """Uniform noise in place of each readable image: a negative control. A function of seed, name and row."""

    def __init__(self, images: Images, seed: int, name: str) -> None:
        self._images, self._stream = images, (seed, "noise", name)
        self.records = images.records
        mark = np.frombuffer(hashlib.blake2b(repr(self._stream).encode(), digest_size=16).digest(), np.uint8)
        self.digests = (images.digests.view(np.uint8).reshape(-1, 16) ^ mark).view("V16").ravel()

    def read(self, rows: Rows) -> np.ndarray:
        """Pixels of some rows; raises what reading the images raises."""
        pixels = self._images.read(rows)
        for picture, row in zip(pixels, rows, strict=True):
            picture[...] = numpy_stream(*self._stream, int(row)).integers(0, 256, picture.shape, np.uint8)
        return pixels


class NetworkInput(StrictModel):
    """Each channel is (gray / 255 * (high - low) + low - mean) / std, the same gray in every one."""

    channels: Literal[1, 3] = Field(3, description="1, or the gray image three times")
    range: list[float] = Field([0.0, 1.0], description="[low, high]: what black and white become")
    mean: list[float] | None = Field(None, description="one number per channel, taken away after `range`")
    std: list[float] | None = Field(None, description="one number per channel, divided by after `mean`")

    @model_validator(mode="after")
    def _fits(self) -> NetworkInput:
        if len(self.range) != 2 or not -1e6 <= self.range[0] < self.range[1] <= 1e6:
            raise ValueError(f"range: {self.range} is not [low, high] with low below high")
        if (self.mean is None) != (self.std is None):
            raise ValueError("give both mean and std, or neither")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and (len(values) != self.channels or not all(abs(v) <= 1e6 for v in values)):
                raise ValueError(f"{name}: {values} is not one number for each of {self.channels} channels")
        if any(value <= 0 for value in self.std or ()):
            raise ValueError(f"std: {self.std} is not positive")
        return self

    def coefficients(self) -> list[tuple[float, float]]:
        """Per channel what a gray level of 0 to 255 is multiplied by, and what is added then."""
        low, high = self.range
        means, stds = self.mean or [0.0] * self.channels, self.std or [1.0] * self.channels
        return [((high - low) / (255 * std), (low - mean) / std) for mean, std in zip(means, stds, strict=True)]

    def __str__(self) -> str:
        """For captions."""
        numbers = f"{plural(self.channels, 'channel')}, {self.range[0]:g} to {self.range[1]:g}"
        if self == IMAGENET:
            return f"{numbers}, ImageNet's mean and deviation"
        if self.mean is None or self.std is None:
            return f"{numbers}, not normalized"
        mean, std = (", ".join(f"{value:g}" for value in values) for values in (self.mean, self.std))
        return f"{numbers}, mean {mean}, deviation {std}"


#: ImageNet's channel means and standard deviations, so that weights trained on ImageNet fit.
IMAGENET = NetworkInput(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])


@dataclass(frozen=True)
class Batch:
    """Images float32 `[n, channels, size, size]`, normalized; labels float32 `[n, J]`, NaN for missing.

    `rows` are their numbers in the data set, int64 `[n]`, on the CPU.
    """

    images: Tensor
    labels: Tensor
    rows: Tensor


def normalize(gray: np.ndarray | Tensor, *, out: Tensor | None = None, form: NetworkInput = IMAGENET) -> Tensor:
    """Gray levels `[n, h, w]`, or in color `[n, h, w, 3]`, to float32 `[n, channels, h, w]`, as `form` says.

    `out` is overwritten and returned if given: fresh memory costs more than the arithmetic. Features `[n, d]` in place
    of pixels are returned as they are.
    """
    values = torch.as_tensor(gray).float()
    if values.dim() == 2:
        return values
    if out is None:
        out = values.new_empty((len(values), form.channels, *values.shape[1:3]))
    for channel, (factor, shift) in enumerate(form.coefficients()):
        levels = values if values.dim() == 3 else values[..., channel]
        torch.add(values.new_full((), shift), levels, alpha=factor, out=out[:, channel])
    return out


class Uploads:
    """A ring of buffers in pinned memory, from which a GPU copies while the CPU goes on.

    A buffer is filled anew only when the last copy from it is done.

    Parameters
    ----------
    mark
        Gives what is waited for: an event behind the copies so far. By default on the stream of this GPU, which need
        not be the process's current one.
    """

    def __init__(self, count: int, device: torch.device, mark: Callable[[], Any] | None = None) -> None:
        self._device = device
        self._mark = mark or (lambda: torch.cuda.current_stream(device).record_event())
        self._buffers: list[list[Tensor]] = [[] for _ in range(count)]
        self._copied: list[Any] = [None] * count

    def pack(self, slot: int, arrays: Sequence[np.ndarray]) -> None:
        """Fill a buffer with arrays, whose shapes are the same each time; in any thread."""
        if self._copied[slot] is not None:
            self._copied[slot].synchronize()
        tensors = [torch.from_numpy(array) for array in arrays]
        if not self._buffers[slot]:
            pinned = self._device.type == "cuda"
            self._buffers[slot] = [torch.empty_like(tensor, pin_memory=pinned) for tensor in tensors]
        for buffer, tensor in zip(self._buffers[slot], tensors, strict=True):
            buffer.copy_(tensor)

    def send(self, slot: int) -> list[Tensor]:
        """Send what was packed to the device: the copy is queued there, and nothing waits for it."""
        sent = [buffer.to(self._device, non_blocking=True) for buffer in self._buffers[slot]]
        self._copied[slot] = self._mark()
        return sent


@functools.cache
def _share_threads(count: int) -> ThreadPoolExecutor:
    """Shared by the clients of a process, which train in turn: each thread keeps memory that it once had."""
    return ThreadPoolExecutor(count, thread_name_prefix="batches")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_share_threads.cache_clear)  # a fork has none of the threads


class TrainBatches:
    """Endless shuffled batches of one client, on the device that trains.

    Each epoch is a permutation of the rows, row i standing `repeats[i]` times; unreadable rows are left out. Batches
    cross the border between epochs, so every batch is full. On the CPU threads prepare whole batches ahead; for a GPU
    they read 8-bit images, which are augmented and normalized there.

    Parameters
    ----------
    labels
        float32 `[n, J]`.
    repeats
        int `[n]`.
    name
        Names the random streams: two clients with one name would draw alike.
    share
        Places of the images that this process reads, int `[m]`, given the number of a batch's images; None: all. A
        batch's labels and rows are those of all images.
    workers
        Threads that prepare batches ahead; 0 prepares them when asked. The result is the same.
    """

    def __init__(
        self,
        images: Images,
        labels: np.ndarray,
        repeats: np.ndarray,
        *,
        batch_size: int,
        seed: int,
        name: str,
        augment: Augment,
        share: Callable[[int], np.ndarray] | None = None,
        workers: int = 2,
        device: torch.device = CPU,
    ) -> None:
        rows = np.arange(len(labels))[images.records >= 0]
        self._rows = np.repeat(rows, repeats[rows])
        if len(self._rows) == 0:
            raise ValueError(f"client '{name}' has no readable training image")
        self._images, self._labels = images, torch.from_numpy(np.array(labels, np.float32))
        self._batch_size, self._seed, self._name = batch_size, seed, name
        self._augment, self._workers, self._device = augment, workers, device
        self._share = share or np.arange
        self._pending: deque[Future[Callable[[], Batch]]] = deque()
        self._order: tuple[int, np.ndarray] = (-1, self._rows)
        self._lock = threading.Lock()
        # One buffer more than there are batches on their way: the one in the caller's hands is never written to.
        buffers = max(1, workers) + 1
        self._buffers: list[Tensor | None] = [None] * buffers
        self._uploads = Uploads(buffers, device) if device.type == "cuda" else None
        self.position = 0

    def next(self) -> Batch:
        """The batch at `position`, which then moves on by one. Its images are there until the next call."""
        if self._workers == 0:
            finish = self._prepare(self.position)
        else:
            self._prepare_ahead(1)
            try:
                finish = self._pending.popleft().result()
            except BaseException:
                self.close()  # what is pending would be taken for earlier batches
                raise
        self.position += 1
        self._prepare_ahead(self._workers)
        return finish()

    def seek(self, position: int) -> None:
        """Go to the batch with this number; what was prepared for elsewhere is dropped."""
        if position == self.position:
            return
        self.close()
        self.position = position

    def close(self) -> None:
        """Drop what was prepared; those that have begun are waited for, since they write to the buffers."""
        while self._pending:
            prepared = self._pending.popleft()
            if not prepared.cancel():
                prepared.exception()

    def select_rows(self, position: int) -> np.ndarray:
        """Row numbers of a batch."""
        samples = self._number_samples(position)
        epochs, places = np.divmod(samples, len(self._rows))
        return np.concatenate([self._order_epoch(int(epoch))[places[epochs == epoch]] for epoch in np.unique(epochs)])

    def select_labels(self, position: int, rows: np.ndarray) -> Tensor:
        """Labels of a batch with these rows, float32 `[n, J]`."""
        return self._labels[torch.from_numpy(rows)]

    def whole(self) -> Iterator[Batch]:
        """Every row of the training list once, without augmentation, in its order; batches differ by one image."""
        for rows in np.array_split(self._rows, -(-len(self._rows) // self._batch_size)):
            numbers = torch.from_numpy(rows)
            shared = rows[self._share(len(rows))]
            pixels = self._images.read(shared if len(shared) else rows[:1])  # of no image the shape is not known
            images = normalize(torch.from_numpy(pixels).to(self._device))
            yield Batch(images[: len(shared)], self._labels[numbers].to(self._device), numbers)

    def _prepare_ahead(self, count: int) -> None:
        """Have so many batches prepared from `position` on."""
        while len(self._pending) < count:
            self._pending.append(
                _share_threads(self._workers).submit(self._prepare, self.position + len(self._pending))
            )

    def _number_samples(self, position: int) -> np.ndarray:
        """The numbers of a batch's images, counted from the start of training."""
        return np.arange(self._batch_size) + position * self._batch_size

    def _order_epoch(self, epoch: int) -> np.ndarray:
        with self._lock:
            if self._order[0] != epoch:
                rng = numpy_stream(self._seed, "shuffle", self._name, epoch)
                self._order = (epoch, rng.permutation(self._rows))
            return self._order[1]

    def _prepare(self, position: int) -> Callable[[], Batch]:
        """Prepare a batch ahead, in another thread; what is returned does the rest, in the caller's."""
        rows, slot = self.select_rows(position), position % len(self._buffers)
        places = self._share(len(rows))
        samples = self._number_samples(position)[places].tolist() if self._augment.enabled else []
        seeds = [stream_seed(self._seed, "augment", self._name, sample) for sample in samples]
        numbers, pixels = torch.from_numpy(rows), self._images.read(rows[places])
        labels = self.select_labels(position, rows)
        if self._uploads is None:
            images = normalize(self._augment.apply(pixels, seeds), out=self._buffers[slot])
            self._buffers[slot] = images
            return lambda: Batch(images, labels, numbers)
        shape, augment = pixels.shape[1:3], self._augment
        back = backward(augment.maps(seeds, *shape), *shape)  # no maps where nothing is augmented
        self._uploads.pack(slot, (pixels, back, labels.numpy()))
        return partial(self._upload, self._uploads, slot, numbers)

    def _upload(self, uploads: Uploads, slot: int, numbers: Tensor) -> Batch:
        pixels, back, labels = uploads.send(slot)
        images = normalize(warp_images(pixels, back, self._augment.fill) if self._augment.enabled else pixels)
        return Batch(images, labels, numbers)


def list_batches(count: int, batch_size: int, turn: tuple[int, int] = (0, 1)) -> list[range]:
    """The rows of each batch of `EvalBatches`."""
    starts = range(turn[0] * batch_size, count, turn[1] * batch_size)
    return [range(start, min(start + batch_size, count)) for start in starts]


class EvalBatches:
    """The images in row order, without augmentation; the last batch may be smaller. Labels stay on the CPU.

    With `turn` (i, n), of the batches i, i + n, i + 2 n and so on.
    """

    def __init__(
        self,
        images: Images,
        labels: np.ndarray,
        batch_size: int,
        *,
        form: NetworkInput = IMAGENET,
        device: torch.device = CPU,
        turn: tuple[int, int] = (0, 1),
    ) -> None:
        self._images, self._labels = images, torch.from_numpy(np.array(labels, np.float32))
        self._batch_size, self._form, self._device, self._turn = batch_size, form, device, turn

    def __iter__(self) -> Iterator[Batch]:
        """One pass. The images of a batch are there until the next one is asked for."""
        room: Tensor | None = None
        for rows in list_batches(len(self._labels), self._batch_size, self._turn):
            gray = torch.from_numpy(self._images.read(rows))
            if self._device.type == "cuda":
                gray = gray.pin_memory()  # so that reading the next rows does not wait for this copy
            gray = gray.to(self._device, non_blocking=True)
            images = normalize(gray, out=None if room is None else room[: len(rows)], form=self._form)
            room = images if room is None else room
            yield Batch(images, self._labels[rows.start : rows.stop], torch.arange(rows.start, rows.stop))
