"""From stored values to gray levels 0..255, for all kinds of files alike, in blocks of rows: large films stay small."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

import cv2
import numpy as np

from chestfed.core.errors import ImageError

Levels = Literal["window", "stored", "percentiles"]
#: Who decides that a film is stored as a negative.
InvertedBy = Literal["picture", "column", "never"]

#: Values of Body Part Examined in chest films.
CHEST: Final = ("CHEST", "THORAX")
_PERCENTILES: Final = (0.5, 99.5)
#: Pixels of one byte, which are copied, and of two; OpenCV counts to 2^24 exactly.
_AT_ONCE: Final = {1: 1 << 20, 2: 1 << 23}
_WORDS: Final = 1 << 16
_COLORED: Final = 24  # difference of two channels


class Stored(NamedTuple):
    """Properties of a site's files: gray levels of PNG and JPEG, accepted kinds of DICOM."""

    inverted: bool = False  # the stored values are MONOCHROME1: air is bright
    by_picture: bool = False  # the picture decides, and `inverted` only where it does not tell
    bits: int | None = None  # that a 16-bit file uses; without it 16 if its values need 16, else the file is refused
    body_parts: tuple[str, ...] | None = CHEST  # of DICOM files; None for all
    for_processing: bool = False  # DICOM files FOR PROCESSING are accepted


def count_levels(pixels: np.ndarray, first: int, size: int) -> np.ndarray:
    """Count the values `first`, `first + 1`, ..., int64 `[size]`; in pixels of 8 or 16 bits."""
    last = first + size if first >= 0 else _WORDS  # fewer bins are counted in half of the time
    counts = np.zeros(last, np.int64)
    for _, words in _cut_blocks(pixels):
        counts += cv2.calcHist([words], [0], None, [last], [0, last]).ravel().astype(np.int64)
    return counts[np.arange(first, first + size) % _WORDS]


def map_levels(pixels: np.ndarray, first: int, table: np.ndarray) -> np.ndarray:
    """Gray levels uint8 `[h, w]` by a table uint8 of the values `first`, `first + 1`, ...; of pixels as above."""
    whole = np.zeros(_WORDS, np.uint8)
    whole[np.arange(first, first + len(table)) % _WORDS] = table
    gray = np.empty(pixels.shape, np.uint8)
    for rows, words in _cut_blocks(pixels):
        cv2.LUT(words, whole, dst=gray[rows])
    return gray


def percentile_range(values: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """The 0.5 and 99.5 percentiles of values that occur `counts` times; the extremes if these are one value."""
    order = np.argsort(values, kind="stable")
    order = order[counts[order] > 0]
    values, ends = values[order], np.cumsum(counts[order])
    places = np.array(_PERCENTILES) / 100 * (ends[-1] - 1)
    below, above = (values[np.searchsorted(ends, whole, side="right")] for whole in (np.floor(places), np.ceil(places)))
    low, high = below + (places - np.floor(places)) * (above - below)
    return (float(low), float(high)) if high > low else (float(values[0]), float(values[-1]))


def scale_levels(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """`low`..`high` to uint8 0..255, clipped; a constant image becomes black. Raises ImageError if not finite."""
    if not np.isfinite([low, high]).all():
        raise ImageError("pixel values that are not finite", kind="damaged")
    if high <= low:
        return np.zeros(values.shape, np.uint8)
    return np.clip((values - low) * (255 / (high - low)) + 0.5, 0, 255).astype(np.uint8)


def picture_levels(pixels: np.ndarray, levels: Levels, bits: int | None) -> np.ndarray:
    """Gray levels uint8 of a PNG's or JPEG's values uint8 or uint16 `[h, w]`.

    These files hold what a viewer shows, so the policies `window` and `stored` are one: the range of their bits.

    Raises `ImageError` if it is not known how many bits a 16-bit file uses, or its values exceed them.
    """
    if pixels.dtype == np.uint8 and levels != "percentiles":
        return pixels
    values = np.arange(1 << 8 * pixels.itemsize)
    if levels == "percentiles":
        low, high = percentile_range(values, count_levels(pixels, 0, len(values)))
    else:
        low, high = 0, _find_range(int(pixels.max()), bits)
    return map_levels(pixels, 0, scale_levels(values, low, high))


def has_colors(channels: np.ndarray) -> bool:
    """Whether more than one in a thousand pixels uint8 `[h, w, 3]` has a color that noise and JPEG do not make."""
    return float((np.ptp(channels, axis=2) > _COLORED).mean()) > 0.001


def _find_range(largest: int, bits: int | None) -> int:
    if bits is None and largest < 1 << 15:
        raise ImageError(
            f"16-bit file whose values end at {largest:,}: set pictures.bits in the site's YAML: "
            f"{largest.bit_length()} if its images use so many bits, 16 if this one is just dark",
            kind="unknown bits",
        )
    if largest >> (bits or 16):
        raise ImageError(
            f"a value of {largest:,} in a file of {bits} bits (pictures.bits in the site's YAML)", kind="unknown bits"
        )
    return (1 << (bits or 16)) - 1


def _cut_blocks(pixels: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Some rows at a time as words uint16, negative values behind the others: 16 bits are what OpenCV is quick at."""
    rows = max(1, _AT_ONCE[pixels.itemsize] // pixels.shape[1])
    for top in range(0, len(pixels), rows):
        block = np.ascontiguousarray(pixels[top : top + rows])
        words = (block if block.itemsize == 2 else block.astype(np.int16)).view(np.uint16)
        yield slice(top, top + rows), words
