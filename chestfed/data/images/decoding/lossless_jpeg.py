"""JPEG Lossless (ITU-T T.81, Annex H) of one gray image, decoded once: do its data reach the last pixel?

libjpeg-turbo makes up pixels where data end early, and imagecodecs drops its reports. So known bits are put behind the
data, and one row more is decoded than the image has. If this row was read from the first of these bits on, or from the
up to 7 bits before them that fill the last byte, and can have been read from no later place, then no pixel of the image
depends on what follows the data.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

_LOSSLESS, _TABLES, _RESTARTS, _SCAN = 0xC3, 0xC4, 0xDD, 0xDA
_LARGEST: Final = 65_000  #: rows that libjpeg decodes, nearly
#: Codes of the extra row that are compared, of at most 32 bits each.
_CODES: Final = 32
#: Bits without a period, and never three ones in a row: no marker, and in most tables no code that stands for nothing.
_DRAWN: Final = hashlib.shake_128(b"behind the data").digest(_CODES * 8)
_FILLER: Final = bytes(byte & 0x7F for byte in _DRAWN if not byte & byte << 1 & byte << 2 & 0x7F)[: _CODES * 4 + 8]


class _Scan(NamedTuple):
    rows_at: int  #: place of the image's height in the stream
    rows: int
    predictor: int  #: 1 to 7
    lengths: np.ndarray  #: bits of the Huffman codes int `[n]`, ascending
    sizes: np.ndarray  #: bits of the difference that stands behind each code, int `[n]`


def decode_once(
    stream: bytes, end: int, segments: Sequence[tuple[int, int]], decode: Callable[[bytes], np.ndarray]
) -> np.ndarray | None:
    """Values `[h, w]` of a stream whose data end at `end`; None if one decoding does not show that they suffice.

    `segments` are codes and places of the markers up to the first scan.
    """
    scan = _read_scan(stream, segments)
    if scan is None:
        return None
    taller = struct.pack(">H", scan.rows + 1)
    values = decode(b"".join((stream[: scan.rows_at], taller, stream[scan.rows_at + 2 : end], _FILLER, stream[end:])))
    if values.dtype != np.uint16 or values.shape[:-1] != (scan.rows + 1,):  # in 8 bits differences are ambiguous
        return None
    last = 0xFF if stream[end - 2 : end] == b"\xff\0" else stream[end - 1]
    bits = np.unpackbits(np.frombuffer(bytes((last,)) + _FILLER, np.uint8))[1:]
    certain, possible = _find_starts(_find_differences(values[-2:], scan.predictor), bits, scan)
    # From the second row behind the end of its data on, libjpeg's are of one value.
    sufficient = certain[:8].any() and not possible[8:].any() and np.ptp(values[-1]) > 0
    return values[:-1] if sufficient else None


def _read_scan(stream: bytes, segments: Sequence[tuple[int, int]]) -> _Scan | None:
    """The header's numbers; None for several components, restarts, a point transform or an unusual table."""
    places = dict(segments)
    if not {_LOSSLESS, _TABLES, _SCAN} <= {*places} or _RESTARTS in places:
        return None
    frame, scan = places[_LOSSLESS], places[_SCAN]
    rows, components = struct.unpack_from(">H2xB", stream, frame + 5)
    count, selectors, predictor, shift = struct.unpack_from(">BxBBxB", stream, scan + 4)
    table = _read_table(stream, [place for code, place in segments if code == _TABLES], selectors >> 4)
    if (components, count, shift) != (1, 1, 0) or not 1 <= predictor <= 7 or not 0 < rows < _LARGEST or table is None:
        return None
    return _Scan(frame + 5, rows, predictor, *table)


def _read_table(stream: bytes, places: Sequence[int], wanted: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Lengths of the codes of the table `wanted`, and the bits of a difference that each announces, at most 15."""
    tables = {}
    for place in places:
        end, place = place + 2 + struct.unpack_from(">H", stream, place + 2)[0], place + 4
        while place < end:
            counts = np.frombuffer(stream, np.uint8, 16, place + 1)
            number = int(counts.sum())
            sizes = np.frombuffer(stream, np.uint8, number, place + 17).astype(np.int64)
            tables[stream[place]] = np.repeat(np.arange(1, 17), counts), sizes
            place += 17 + number
    table = tables.get(wanted)
    return table if table is not None and table[1].size and table[1].max() < 16 else None


def _find_differences(rows: np.ndarray, predictor: int) -> np.ndarray:
    """Differences int `[n]` between the second row's first values and their predictions (Table H.1)."""
    above, row = rows[:, : _CODES + 1].astype(np.int64)
    left, upper, corner = row[:-1], above[1:], above[:-1]
    predictions = (
        left,
        upper,
        corner,
        left + upper - corner,
        left + (upper - corner >> 1),
        upper + (left - corner >> 1),
        left + upper >> 1,
    )
    return np.concatenate([row[:1] - above[:1], row[1:] - predictions[predictor - 1]])[:_CODES]


def _find_starts(differences: np.ndarray, bits: np.ndarray, scan: _Scan) -> tuple[np.ndarray, np.ndarray]:
    """For each place in bits `[n]` and the one behind them, whether libjpeg reads these differences from there on.

    Zeros follow. An impossible code is a difference of 0 in 17 bits; the second array is of what is possible if it may
    be anything.
    """
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(bits, (0, 64)), 16) @ (1 << np.arange(15, -1, -1))
    places = np.arange(len(bits) + 1)
    ends = np.cumsum(1 << 16 - scan.lengths)
    codes = np.searchsorted(ends, windows[places], side="right")
    lengths, sizes = np.append(scan.lengths, 17)[codes], np.append(scan.sizes, 0)[codes]
    behind = windows[places + lengths] >> 16 - sizes
    read = np.where(behind << 1 >> sizes, behind, behind - (1 << sizes) + 1)
    following = np.minimum(places + lengths + sizes, len(bits))
    certain, unknown, at = np.ones(len(places), bool), np.zeros(len(places), bool), places
    possible = certain.copy()
    for difference in differences:
        unknown |= codes[at] == len(ends)
        equal = (read[at] - difference) % (1 << 16) == 0
        certain, possible, at = certain & equal, possible & (unknown | equal), following[at]
    return certain, possible
