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
_AT_ONCE: Final = 1 << 17  # pairs that are compared at once


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
    32 (`_list_candidates`).
    """
    if limit >= 2 * _BANDS:
        raise ValueError(f"limit {limit} is too large for {_BANDS} bands")
    rows = np.ascontiguousarray(hashes).reshape(len(hashes), hashes.shape[1] * hashes.shape[2])
    _, first, codes = np.unique(rows.view(f"S{rows.shape[1]}"), return_index=True, return_inverse=True)
    codes = codes.reshape(-1)
    again = np.flatnonzero(first[codes] != np.arange(len(hashes)))
    pairs = [np.stack([first[codes[again]], again], axis=1)]
    bits = [np.zeros(len(again), dtype=np.int64)]
    number = len(first)
    every = np.ascontiguousarray(hashes[first].swapaxes(0, 1)).reshape(-1, hashes.shape[2])
    words = every.view(np.uint64)
    for left, right in _list_candidates(every, number, limit):
        apart = np.bitwise_count(words[left] ^ words[right]).sum(axis=1, dtype=np.int64)
        near = (apart <= limit) & (left != right % number)
        pairs.append(np.sort(np.stack([first[left[near]], first[right[near] % number]], axis=1), axis=1))
        bits.append(apart[near])
    found, distances = np.concatenate(pairs), np.concatenate(bits)
    nearest = np.argsort(distances, kind="stable")
    different, places = np.unique(found[nearest], axis=0, return_index=True)
    return different, distances[nearest][places]


def _list_candidates(hashes: np.ndarray, number: int, limit: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Places of one of the first `number` hashes and of any hash, among them all that differ in at most `limit` bits.

    The bits are dealt into a ring of 16 bands. Of bits in which two hashes differ, at most limit/16 are in one of the
    bands, and at most limit/4 in this band and the three that follow it: in the bands behind the place where the sum of
    the bits, less limit/16 per band, is largest. So for each band only pairs that differ there in one bit or none are
    listed (`limit` is below 32), and then in few bits of four bands.

    That is quadratic in the end: of 684 images of ChestX-ray8 a pair is listed 0.035 times (random hashes: 0.004), at
    10^6 images 10^11 times. Eleven bands that may differ in two bits would list a fifth, of ten times the buckets.
    """
    order = numpy_stream(0, "bands of perceptual hashes").permutation(8 * hashes.shape[1])
    dealt = np.packbits(np.unpackbits(hashes, axis=1)[:, order], axis=1)
    for band in range(_BANDS):
        ring = np.roll(dealt, -2 * band, axis=1)
        codes = np.ascontiguousarray(ring[:, :2]).view(np.uint16)[:, 0]
        chains = np.ascontiguousarray(ring[:, :8]).view(np.uint64)[:, 0]
        by_code = np.argsort(codes, kind="stable")
        begins = np.searchsorted(codes[by_code], np.arange((1 << 16) + 1))
        queries = by_code[by_code < number]
        own, asked, others = codes[queries].astype(np.int64), chains[queries], chains[by_code]
        for other in [own, *(own ^ (1 << bit) for bit in range(16))] if limit >= _BANDS else [own]:
            for first, counts, places in _list_ranges(begins[other], begins[other + 1]):
                differing = np.bitwise_count(np.repeat(asked[first : first + len(counts)], counts) ^ others[places])
                close = np.flatnonzero(differing <= limit // 4)
                sources = first + np.searchsorted(np.cumsum(counts), close, side="right")
                yield queries[sources], by_code[places[close]]


def _list_ranges(starts: np.ndarray, ends: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """All places from each start to before its end, some thousands at once: the first range, their sizes, places."""
    sizes = ends - starts
    total = np.cumsum(sizes)
    done = 0
    while done < len(sizes):
        before = total[done - 1] if done else 0
        until = max(done + 1, int(np.searchsorted(total, before + _AT_ONCE, side="right")))
        counts = sizes[done:until]
        shifts = starts[done:until] - (total[done:until] - counts - before)
        yield done, counts, np.arange(total[until - 1] - before) + np.repeat(shifts, counts)
        done = until
