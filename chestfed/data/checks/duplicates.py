"""Duplicate images: equal in every pixel, or nearly.

Near means that two perceptual hashes (`facts.perceptual_hash`, 255 bits) differ in at most 30 bits. Measured on 400
real films at 256 pixels (ChestX-ray8), the nearest films of two patients differ in 52 bits. Of copies of 60 of them all
are found after JPEG of quality 40, halving, noise, inversion, a gamma of 0.6 to 1.6 or a contrast of 0.6; 58 after
brightness or contrast that clips and after a rotation by 2°, 36 after one by 3°. A copy that was cropped by 2% at each
side is found in 50 of 60 cases; one that was mirrored, or turned by 5° or more, is not. The samples' phantoms are more
alike, with 14 bits between the nearest of 404,550 pairs, so their limit is below that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from chestfed.core.randomness import numpy_stream

#: Bits of 255, of real films and of the samples' phantoms.
NEAR: Final = 30
_NEAR_PHANTOMS: Final = 8
_BANDS: Final = 16
_AT_ONCE: Final = 2_000_000  # pairs that are compared at once


def find_first(digests: np.ndarray) -> np.ndarray:
    """For each row the first row with the same picture, int `[n]`, by digests `S16 [n]`."""
    _, first, codes = np.unique(digests, return_index=True, return_inverse=True)
    return first[codes]


def choose_limit(synthetic: bool) -> int:
    """Bits in which the hashes of near images differ at most."""
    return _NEAR_PHANTOMS if synthetic else NEAR


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
