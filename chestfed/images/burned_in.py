"""A search for letters in the pixels: a flag to inspect a picture, never a guarantee that it has none.

Printed letters are strokes of one width and one gray level, as high as each other, side by side. Ribs, vessels and
cables are neither. So: what is thin and stands out of its surroundings (a top-hat) is cut into connected pieces, pieces
of the size of letters are put in rows, and rows of enough like pieces are text. One or two large pieces near the border
are a marker: the L or R of lead that lies beside the patient, perhaps with the initials of who took the picture.

Missed: text that hardly differs from what is behind it, handwriting, slanted text, and most letters below some 1/60
of the picture's height. docs/privacy.md states how often.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, NamedTuple

import cv2
import numpy as np

from chestfed.dicom.files import refuse_bomb
from chestfed.dicom.tags import BURNED_IN, read, told_as_image_error
from chestfed.images.compressed import MAX_INFLATED

Kind = Literal["none", "marker", "text"]

#: Side of the resized picture; the thresholds below are in its pixels.
_SIDE: Final = 1024
_LETTERS: Final = 4  # in a row, to be text
_CONTRAST: Final = 24.0  # gray levels above the surroundings
_SHARE: Final = 0.6  # of the most contrast nearby
_HEIGHTS: Final = (7, 72)
_KERNELS: Final = (9, 23)  # sides of top-hats: strokes of small letters, and of large ones
_MARKER: Final = (18, 110)  # heights
_MARKER_CONTRAST: Final = 45.0  # lead and printed discs stand out more than the ends of ribs do
_MARGIN: Final = 0.3  # share of the picture's sides that counts as near the border


class Box(NamedTuple):
    """Where it is, in pixels of the picture."""

    top: int
    left: int
    height: int
    width: int

    def turned(self) -> Box:
        """Rows and columns swapped."""
        return Box(self.left, self.top, self.width, self.height)


class BurnedIn(NamedTuple):
    """What was found: `text` (several letters in a row), `marker` (one or two large letters near the border) or `none`.

    `score` is the number of letters in the longest row, weighted by how alike they are; from `_LETTERS` on it is text.
    `boxes` are those of the rows, or of the marker.
    """

    kind: Kind
    score: float
    boxes: tuple[Box, ...]


class _Pieces(NamedTuple):
    """Connected pieces: int `[n]` boxes, float `[n]` filled shares and mean gray levels above the surroundings."""

    left: np.ndarray
    top: np.ndarray
    width: np.ndarray
    height: np.ndarray
    fill: np.ndarray
    level: np.ndarray


def burned_in(picture: np.ndarray) -> BurnedIn:
    """Look for letters in gray levels uint8 `[h, w]`.

    Raises `ValueError` if it is not such an array.
    """
    if picture.ndim != 2 or picture.dtype != np.uint8:
        raise ValueError(f"expected uint8 [height, width], found {picture.dtype} {picture.shape}")
    factor = _SIDE / max(picture.shape)
    size = (max(1, round(picture.shape[1] * factor)), max(1, round(picture.shape[0] * factor)))
    gray = cv2.resize(picture, size, interpolation=cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC)
    best, rows, markers = 0.0, [], []
    for plane in (gray, 255 - gray):
        for kernel in _KERNELS:
            pieces = _pieces(plane, kernel)
            for turned in (False, True):  # text may run upwards
                left, top, width, height, *others = pieces
                for score, box in _rows(_Pieces(top, left, height, width, *others) if turned else pieces):
                    best = max(best, score)
                    if score >= _LETTERS:
                        rows.append(_in_picture(box.turned() if turned else box, factor))
            if plane is gray:
                markers += [_in_picture(box, factor) for box in _markers(pieces, gray.shape)]
    if rows:
        return BurnedIn("text", best, tuple(dict.fromkeys(rows)))
    return BurnedIn("marker" if markers else "none", best, tuple(dict.fromkeys(markers)))


def declared(path: Path) -> tuple[bool | None, int] | None:
    """BurnedInAnnotation of a file's header, often not there (None) and sometimes wrong, and the number of its overlays
    (60xx): pictures that a viewer draws over the pixels, and chestfed does not. None if it is not a DICOM file.

    Raises `ImageError` if its header can't be read; nothing of it is in the message.
    """
    with path.open("rb") as file:
        if file.read(132)[128:] != b"DICM":
            return None
    with told_as_image_error():
        refuse_bomb(path, MAX_INFLATED)
        header = read(path, BURNED_IN)
        word = str(header.get("BurnedInAnnotation", "")).strip().upper()
        return {"YES": True, "NO": False}.get(word), sum(element.tag.group >= 0x6000 for element in header)


def _pieces(plane: np.ndarray, kernel: int) -> _Pieces:
    """What is bright and thinner than the kernel, in connected pieces."""
    element = cv2.getStructuringElement(cv2.MORPH_RECT, (kernel, kernel))
    above = cv2.morphologyEx(plane, cv2.MORPH_TOPHAT, element)
    # A printed letter is as bright as its neighbors; what connects two of them is darker.
    around = cv2.dilate(above, cv2.getStructuringElement(cv2.MORPH_RECT, (2 * kernel + 1, 2 * kernel + 1)))
    mask = (above >= _CONTRAST) & (above >= _SHARE * around)
    count, labels = cv2.connectedComponents(mask.view(np.uint8), connectivity=8)
    y, x = np.nonzero(mask)  # few pixels: OpenCV's statistics, which look at all, take ten times as long
    piece = labels[y, x] - 1
    first, last = np.full((2, count - 1), max(plane.shape)), np.full((2, count - 1), -1)
    for axis, place in enumerate((x, y)):
        np.minimum.at(first[axis], piece, place)
        np.maximum.at(last[axis], piece, place)
    (left, top), (width, height) = first, last - first + 1
    area, sums = np.bincount(piece, minlength=count - 1), np.bincount(piece, above[y, x], minlength=count - 1)
    return _Pieces(left, top, width, height, area / (width * height), sums / area)


def _rows(pieces: _Pieces) -> list[tuple[float, Box]]:
    """Rows of pieces that could be letters, with their scores."""
    low, high = _HEIGHTS
    like = (pieces.height >= low) & (pieces.height <= high) & (pieces.width <= 1.6 * pieces.height)
    like &= (pieces.width >= 2) & (pieces.fill > 0.2) & (pieces.fill < 0.95)
    chosen = np.flatnonzero(like)
    chosen = chosen[np.argsort(pieces.left[chosen], kind="stable")]
    left, top, width, height, _, level = (values[chosen].astype(float) for values in pieces)
    follower = np.full(len(chosen), -1)
    taken = np.zeros(len(chosen), bool)
    for i in range(len(chosen)):
        gap = left - (left[i] + width[i])
        tall = np.maximum(height, height[i])
        near = (gap >= -0.15 * tall) & (gap <= 0.9 * tall) & (left > left[i]) & ~taken
        near &= np.minimum(height, height[i]) >= 0.75 * tall
        near &= np.abs(top - top[i]) <= np.maximum(2, 0.15 * tall)
        near &= np.abs(top + height - top[i] - height[i]) <= np.maximum(2, 0.15 * tall)
        near &= np.minimum(level, level[i]) >= 0.6 * np.maximum(level, level[i])
        if near.any():
            follower[i] = int(np.flatnonzero(near)[np.argmin(gap[near])])
            taken[follower[i]] = True
    found = []
    for first in np.flatnonzero(~taken):
        row = [int(first)]
        while follower[row[-1]] >= 0:
            row.append(int(follower[row[-1]]))
        if len(row) >= 3:
            spread = float(np.std(level[row]) / np.mean(level[row]))
            edges = left[row].min(), top[row].min(), (left + width)[row].max(), (top + height)[row].max()
            x, y, right, bottom = (round(edge) for edge in edges)
            found.append((len(row) * max(0.0, 1 - spread), Box(y, x, bottom - y, right - x)))
    return found


def _markers(pieces: _Pieces, shape: tuple[int, ...]) -> list[Box]:
    """Pieces like one large letter near the border."""
    low, high = _MARKER
    like = (pieces.height >= low) & (pieces.height <= high) & (pieces.width <= 1.3 * pieces.height)
    like &= (pieces.width >= 0.3 * pieces.height) & (pieces.fill > 0.25) & (pieces.fill < 0.75)
    like &= pieces.level >= _MARKER_CONTRAST
    across, down = (pieces.left + pieces.width / 2) / shape[1], (pieces.top + pieces.height / 2) / shape[0]
    like &= (np.minimum(across, 1 - across) < _MARGIN) | (np.minimum(down, 1 - down) < _MARGIN / 2)
    corners = (pieces.top, pieces.left, pieces.height, pieces.width)
    return [Box(*(int(values[i]) for values in corners)) for i in np.flatnonzero(like)]


def _in_picture(box: Box, factor: float) -> Box:
    """A box of the resized picture in the pixels of the picture."""
    return Box(*(round(edge / factor) for edge in box))
