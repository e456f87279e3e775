"""Duplicate images: equal in every pixel, or nearly.

Near means that two perceptual hashes (`facts.perceptual_hash`, 255 bits) differ in at most `NEAR` bits. Measured on
684 real films of 463 patients (ChestX-ray8): the nearest films of two patients differ
in 58 bits, of 233,000 pairs; half of the pairs in 120 or more. The samples' phantoms are more alike: of 3.4 million
pairs the nearest differ in 22, so the limit is below that. Copies of a film differ in at most 6 bits after JPEG of
quality 60, halving or doubling of the size, or noise, in 18 after a gamma of 0.8; another window that clips takes up
to 28 (97% within the limit). So what is found is a copy, but one that was cropped (a third of those cropped by 1% at
each side) or written on is often missed. A mirrored, turned or inverted one is not found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from chestfed.core.randomness import numpy_stream

#: Bits of 255.
NEAR: Final = 20
_BANDS: Final = 16
_AT_ONCE: Final = 2_000_000  # pairs that are compared at once


def find_first(digests: np.ndarray) -> np.ndarray:
    """For each row the first row with the same picture, int `[n]`, by digests `S16 [n]`."""
    _, first, codes = np.unique(digests, return_index=True, return_inverse=True)
    return first[codes]


def near_pairs(hashes: np.ndarray, limit: int = NEAR) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of places `[m, 2]`, the smaller first, whose hashes uint8 `[n, 32]` differ in at most `limit` bits.

    Also the numbers of bits, int `[m]`. Of several with one hash, each is paired with the first alone. All pairs are
    found as long as `limit` is below 32: the bits are dealt into 16 bands, and of two hashes that differ in fewer than
    32 bits at least one band differs in one bit or none, so only such pairs are compared.
    """
    if limit >= 2 * _BANDS:
        raise ValueError(f"limit {limit} is too large for {_BANDS} bands")
    unique, first, codes = np.unique(hashes, axis=0, return_index=True, return_inverse=True)
    codes = codes.reshape(-1)
    again = np.flatnonzero(first[codes] != np.arange(len(hashes)))
    pairs = [np.stack([first[codes[again]], again], axis=1)]
    bits = [np.zeros(len(again), dtype=np.int64)]
    words = np.ascontiguousarray(unique).view(np.uint64)
    for left, right in _list_candidates(unique):
        apart = np.bitwise_count(words[left] ^ words[right]).sum(axis=1, dtype=np.int64)
        near = apart <= limit
        pairs.append(np.sort(np.stack([first[left[near]], first[right[near]]], axis=1), axis=1))
        bits.append(apart[near])
    different, places = np.unique(np.concatenate(pairs), axis=0, return_index=True)
    return different, np.concatenate(bits)[places]


def _list_candidates(hashes: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs of places that differ in at most one bit of a band, some of them several times."""
    order = numpy_stream(0, "bands of perceptual hashes").permutation(8 * hashes.shape[1])
    dealt = np.packbits(np.unpackbits(hashes, axis=1)[:, order], axis=1)
    bands = np.ascontiguousarray(dealt).view(np.uint16)
    for band in bands.T:
        by_code = np.argsort(band, kind="stable")
        codes = band[by_code].astype(np.int64)
        places = np.arange(len(codes))
        yield from _list_ranges(by_code, places, places + 1, np.searchsorted(codes, codes, side="right"))
        for bit in range(16):
            low = np.flatnonzero(codes & (1 << bit) == 0)
            other = codes[low] | (1 << bit)
            yield from _list_ranges(by_code, low, np.searchsorted(codes, other), np.searchsorted(codes, other, "right"))


def _list_ranges(
    names: np.ndarray, places: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Every place with each of those from its start to before its end, some millions at once."""
    counts = ends - starts
    total = np.cumsum(counts)
    done = 0
    while done < len(places):
        before = total[done - 1] if done else 0
        until = max(done + 1, int(np.searchsorted(total, before + _AT_ONCE, side="right")))
        part = counts[done:until]
        left = np.repeat(places[done:until], part)
        if len(left):
            offsets = np.arange(len(left)) - np.repeat(np.cumsum(part) - part, part)
            yield names[left], names[np.repeat(starts[done:until], part) + offsets]
        done = until
