"""The gray levels of a DICOM file's stored values: modality LUT or rescale, VOI LUT or first window, inversion.

They are computed once per stored value, of which there are at most 65,536, and not once per pixel. Sections are those
of DICOM PS3.3.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableSequence, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from chestfed.core.errors import ImageError
from chestfed.data.images.decoding.polarity import looks_negative
from chestfed.data.images.levels import Levels, count_levels, map_levels, percentile_range, scale_levels

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

#: A window shows a film if at most this share of it is black or white, and its gray levels are so far apart.
MOST_CLIPPED: Final = 0.6
LEAST_LEVELS: Final = 64


class WindowUse(Enum):
    """Use of a file's VOI LUT or window."""

    USED = "used"
    ABSENT = "absent"
    UNUSABLE = "unusable"


def make_gray(
    stored: np.ndarray, dataset: Dataset, levels: Levels, shutter: np.ndarray | None = None
) -> tuple[np.ndarray, WindowUse]:
    """Gray levels uint8 `[h, w]` of stored values, air dark, and what became of the window.

    Padding, and what lies outside of the `shutter`, bool `[h, w]`, is black and counts for no range.
    """
    bits, signed = int(dataset.BitsStored), bool(dataset.PixelRepresentation)
    lowest = -(1 << bits - 1) if signed else 0
    first, size = lowest, 1 << bits
    counts = count_levels(stored, first, size)
    if counts.sum() < stored.size:  # some are beyond the bits that the file states
        first = min(lowest, int(stored.min()))
        size = max(lowest + (1 << bits) - 1, int(stored.max())) + 1 - first
        counts = count_levels(stored, first, size)
    codes = np.arange(first, first + size)
    if shutter is not None:
        counts = count_levels(stored[shutter][None], first, size)
    padding = _find_padding(codes, dataset)
    if padding[counts > 0].all():
        padding[:] = False
    counts = np.where(padding, 0, counts)
    values = _rescale(codes.astype(stored.dtype), dataset)
    table, window = None, WindowUse.USED
    if levels == "window":
        table, window = _show_values(values, counts, dataset)
    elif levels == "stored":
        whole = values[lowest - first : lowest - first + (1 << bits)]
        table = scale_levels(values, float(whole.min()), float(whole.max()))
    if table is None:
        table = scale_levels(values, *percentile_range(values, counts))
    inverse_shape = _read_word(dataset, "PresentationLUTShape") == "INVERSE"
    if dataset.PhotometricInterpretation == "MONOCHROME1" or inverse_shape:  # both together are one inversion
        table = 255 - table
    if _contradicts_sign(dataset, inverse_shape) and looks_negative(map_levels(stored, first, table)):
        table = 255 - table
    table[padding] = 0
    gray = map_levels(stored, first, table)
    return (gray if shutter is None else np.where(shutter, gray, np.uint8(0))), window


def _rescale(codes: np.ndarray, dataset: Dataset) -> np.ndarray:
    """Stored values after the modality LUT or the rescale (C.11.1); a slope or an intercept may stand alone."""
    from pydicom.pixels import apply_modality_lut

    if dataset.get("ModalityLUTSequence"):
        return np.asarray(apply_modality_lut(codes, dataset), np.float64)
    slope, intercept = (_take_first(dataset.get(name)) for name in ("RescaleSlope", "RescaleIntercept"))
    return codes.astype(np.float64) * (slope or 1.0) + (intercept or 0.0)


def _show_values(values: np.ndarray, counts: np.ndarray, dataset: Dataset) -> tuple[np.ndarray | None, WindowUse]:
    """A table uint8 of the values by the first of VOI LUT and window that shows the film; None without one."""
    window = WindowUse.ABSENT
    for shown in _list_windows(values, dataset):
        table = scale_levels(shown, 0, 1)
        if _shows_film(table, counts):
            return table, WindowUse.USED if window == WindowUse.ABSENT else window
        window = WindowUse.UNUSABLE
    return None, window


def _shows_film(table: np.ndarray, counts: np.ndarray) -> bool:
    """Whether gray levels that occur `counts` times are neither nearly all black and white nor nearly alike."""
    clipped = counts[(table == 0) | (table == 255)].sum()
    low, high = percentile_range(table.astype(np.float64), counts)
    return clipped <= MOST_CLIPPED * counts.sum() and high - low >= LEAST_LEVELS - 1


def _list_windows(values: np.ndarray, dataset: Dataset) -> Iterator[np.ndarray]:
    """Values as the VOI LUT and the first window show them, 0 to 1 (C.11.2).

    A LUT whose entries exceed its bits, or use few of them, is scaled by the bits of its largest entry.
    """
    lut = _apply_lut(values, dataset)
    if lut is not None:
        entries, bits = lut
        largest = int(entries.max())
        yield entries / max((1 << bits) - 1, largest)
        if 0 < largest < 1 << bits - 1:
            yield entries / ((1 << largest.bit_length()) - 1)
    shown = _apply_window(values, dataset)
    if shown is not None:
        yield shown


def _apply_lut(values: np.ndarray, dataset: Dataset) -> tuple[np.ndarray, int] | None:
    """The entries of the first VOI LUT for values, and the bits that it states; None without a LUT."""
    from pydicom.pixels import apply_voi

    if not dataset.get("VOILUTSequence") or "LUTData" not in dataset.VOILUTSequence[0]:
        return None
    descriptor: MutableSequence[int] = dataset.VOILUTSequence[0].LUTDescriptor
    bits = int(descriptor[2])
    if bits == 8:  # pydicom would count the entries of such a table in 8 bits too
        descriptor[2] = 16
    if descriptor[1] > values.max():  # below zero, and read as unsigned
        descriptor[1] -= 1 << 16
    return np.asarray(apply_voi(values, dataset, index=0), np.float64), bits


def _apply_window(values: np.ndarray, dataset: Dataset) -> np.ndarray | None:
    """Values as the first window shows them, 0 to 1; None without a possible one."""
    from pydicom.dataset import Dataset
    from pydicom.pixels import apply_windowing

    center, width = (_take_first(dataset.get(name)) for name in ("WindowCenter", "WindowWidth"))
    function = _read_word(dataset, "VOILUTFunction") or "LINEAR"
    if function not in ("LINEAR", "LINEAR_EXACT", "SIGMOID"):
        raise ImageError("DICOM file of an unknown VOI LUT Function", kind="unsupported")
    if center is None or width is None or not np.isfinite([center, width]).all():
        return None
    if width <= 0 or (width < 1 and function == "LINEAR"):
        return None
    window = Dataset()  # pydicom scales to the range of the stored values: of 1 bit and without rescale, 0 to 1
    for name in ("PhotometricInterpretation", "WindowCenter", "WindowWidth"):
        setattr(window, name, dataset[name].value)
    window.BitsStored, window.PixelRepresentation, window.VOILUTFunction = 1, 0, function
    return apply_windowing(values, window)


def _contradicts_sign(dataset: Dataset, inverse_shape: bool) -> bool:
    """Whether Pixel Intensity Relationship Sign says that what is displayed bright is air (C.8.11.3.1.2)."""
    sign = dataset.get("PixelIntensityRelationshipSign")
    bright_is_large = dataset.PhotometricInterpretation != "MONOCHROME1" and not inverse_shape
    return sign in (1, -1) and (sign == 1) == bright_is_large


def _find_padding(codes: np.ndarray, dataset: Dataset) -> np.ndarray:
    """Which stored values are padding: one value, or a range of them (C.7.5.1.1.2).

    A value that was written with the wrong sign is the one of the same bits.
    """
    first: object = dataset.get("PixelPaddingValue")
    last: object = dataset.get("PixelPaddingRangeLimit")
    if not isinstance(first, int):
        return np.zeros(codes.shape, bool)
    bounds = sorted(_give_sign(value, dataset) for value in (first, last if isinstance(last, int) else first))
    return (codes >= bounds[0]) & (codes <= bounds[1])


def _give_sign(value: int, dataset: Dataset) -> int:
    whole = 1 << int(dataset.BitsAllocated)
    value %= whole
    return value - whole if dataset.PixelRepresentation and value >= whole >> 1 else value


def _read_word(dataset: Dataset, name: str) -> str:
    return str(dataset.get(name) or "").strip().upper()


def _take_first(value: Any) -> float | None:
    """The first of one or several numbers; None if there is none."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _take_first(value[0]) if len(value) else None
    return None if value is None or value == "" else float(value)
