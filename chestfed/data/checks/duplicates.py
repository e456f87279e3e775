"""Duplicate images: equal in every pixel, or nearly.

Near means that the perceptual hash of one (`facts.perceptual_hash`, 255 bits) differs in at most 30 bits from that of
the other, of the other turned, or of its middle (`facts.near_hashes`). Measured on 1,606 films of ChestX-ray14, the
nearest of two patients differ in 42 bits. Of copies of 60 of ChestX-ray8 all are found after JPEG of quality 40,
halving, noise, inversion, a gamma of 0.6 to 1.6 or a contrast of 0.6; 58 after brightness or contrast that clips. Of
copies of 200 of ChestX-ray14 all are found after a rotation by 2° to 5° and a crop by 3% to 5% at each side, 188 after
one by 2%, 181 after 6°. One that was mirrored, or cropped at one side alone, is not. The samples' phantoms are more
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
    """Pairs of places `[m, 2]`, the smaller first, of hashes uint8 `[n, k, 32]` that differ in at most `limit` bits.

    The first of the `k` hashes of one is compared with all of the other. Also the numbers of bits, int `[m]`. Of
    several with the same hashes, each is paired with the first alone. All pairs are found as long as `limit` is below
    32: the bits are dealt into 16 bands, and of two hashes that differ in fewer than 32 bits at least one band differs
    in one bit or none, so only such pairs are compared.
    """
    if limit >= 2 * _BANDS:
        raise ValueError(f"limit {limit} is too large for {_BANDS} bands")
    unique, first, codes = np.unique(hashes, axis=0, return_index=True, return_inverse=True)
    codes = codes.reshape(-1)
    again = np.flatnonzero(first[codes] != np.arange(len(hashes)))
    pairs = [np.stack([first[codes[again]], again], axis=1)]
    bits = [np.zeros(len(again), dtype=np.int64)]
    number = len(unique)
    every = np.ascontiguousarray(unique.swapaxes(0, 1)).reshape(-1, unique.shape[2])
    words = every.view(np.uint64)
    halves = np.ascontiguousarray(words[:, :2])  # in which nearly all candidates differ enough
    for left, right in _list_candidates(every):
        useful = np.flatnonzero((left < number) | (right < number))
        one, other = left[useful], right[useful]
        possible = np.bitwise_count(halves[one] ^ halves[other]).sum(axis=1, dtype=np.uint8) <= limit
        one, other = one[possible], other[possible]
        several = one % number != other % number
        one, other = one[several], other[several]
        apart = np.bitwise_count(words[one] ^ words[other]).sum(axis=1, dtype=np.int64)
        near = apart <= limit
        pairs.append(np.sort(np.stack([first[one[near] % number], first[other[near] % number]], axis=1), axis=1))
        bits.append(apart[near])
    found, distances = np.concatenate(pairs), np.concatenate(bits)
    nearest = np.argsort(distances, kind="stable")
    different, places = np.unique(found[nearest], axis=0, return_index=True)
    return different, distances[nearest][places]


def _list_candidates(hashes: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs of places that differ in at most one bit of a band, some of them several times."""
    order = numpy_stream(0, "bands of perceptual hashes").permutation(8 * hashes.shape[1])
    dealt = np.packbits(np.unpackbits(hashes, axis=1)[:, order], axis=1)
    bands = np.ascontiguousarray(dealt).view(np.uint16)
    for band in bands.T:
        by_code = np.argsort(band, kind="stable")
        codes = band[by_code].astype(np.int64)
        places, begins = np.arange(len(codes)), np.searchsorted(codes, np.arange((1 << 16) + 1))
        yield from _list_ranges(by_code, places, places + 1, begins[codes + 1])
        for bit in range(16):
            low = np.flatnonzero(codes & (1 << bit) == 0)
            other = codes[low] | (1 << bit)
            yield from _list_ranges(by_code, low, begins[other], begins[other + 1])


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
