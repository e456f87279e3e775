"""Secure sums: exact, of all members or of none, and keys for anything else than this sum are refused."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.core.errors import TrainingError
from chestfed.learning.engines.sums.fixed_point import decode, encode
from chestfed.leaves.federation.secure_sum.member import Keys, Member, expand_seed
from tests.cases import assert_refused

CONTEXT = b"study, K, round, request"


def sign_as(name: str, text: bytes) -> bytes:
    """A stand-in for a signature: good enough to tell members and texts apart."""
    return hashlib.sha256(name.encode() + b"secret" + text).digest()


def verify(name: str, text: bytes, signature: bytes) -> bool:
    return sign_as(name, text) == signature


class Round:
    """All members and the server's relay, step by step; `contexts` are those of members that were told another one."""

    def __init__(self, count: int, contexts: dict[str, bytes] | None = None) -> None:
        self.names = [f"hospital {place}" for place in range(count)]
        contexts = dict.fromkeys(self.names, CONTEXT) | (contexts or {})
        self.members = {
            name: Member(name, self.names, contexts[name], lambda text, name=name: sign_as(name, text), verify)
            for name in self.names
        }
        self.keys = {name: member.advertise() for name, member in self.members.items()}

    def mask(self, name: str, values: np.ndarray, keys: dict[str, Keys] | None = None) -> np.ndarray:
        self.members[name].accept(keys or self.keys)
        return self.members[name].mask(values)


def make_values(names: Collection[str], size: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: encode(rng.standard_normal(size) * 10, len(names)) for name in names}


def add(parts: Collection[np.ndarray]) -> np.ndarray:
    return np.asarray(np.sum(list(parts), axis=0, dtype=np.uint64))


@given(count=st.integers(3, 7), size=st.integers(1, 40), seed=st.integers(0, 999))
def test_sum_is_exact(count: int, size: int, seed: int) -> None:
    lap = Round(count)
    values = make_values(lap.names, size, seed)
    masked = {name: lap.mask(name, values[name]) for name in lap.names}
    assert np.array_equal(add(masked.values()), add(values.values()))


@pytest.mark.parametrize("missing", [1, 2])
def test_sum_without_a_member_looks_random(missing: int) -> None:
    lap = Round(4)
    masked = [lap.mask(name, np.zeros(100_000, np.uint64)) for name in lap.names[missing:]]
    for part in (*masked, add(masked)):
        assert np.bincount(part.view(np.uint8), minlength=256) == pytest.approx(np.full(256, 3125), rel=0.12)


def test_member_masks_once() -> None:
    """Two answers with one mask would differ by what was asked in between."""
    lap = Round(3)
    lap.mask(lap.names[0], np.zeros(3, np.uint64))
    with assert_refused(TrainingError, "keys used"):
        lap.members[lap.names[0]].mask(np.ones(3, np.uint64))
    with assert_refused(TrainingError, "keys used"):
        lap.members[lap.names[1]].mask(np.ones(3, np.uint64))  # no keys were accepted


def test_keys_of_something_else_are_refused() -> None:
    lap, other = Round(3), Round(3, dict.fromkeys(("hospital 0", "hospital 1", "hospital 2"), b"another"))
    first, second, third = lap.names
    wrong = [
        {**lap.keys, second: other.keys[second]},  # of another round
        {**lap.keys, second: lap.keys[third]},  # of another member
        {**lap.keys, second: Keys(lap.keys[third].mask_key, lap.keys[second].signature)},
        {**lap.keys, first: Round(3).keys[first]},  # not the one that it gave
        {first: lap.keys[first], second: lap.keys[second]},  # not all
        {**lap.keys, "hospital 9": lap.keys[third]},  # more than all
    ]
    for keys in wrong:
        with assert_refused(TrainingError, "false keys"):
            lap.members[first].accept(keys)


def test_unequal_frames_give_no_sum() -> None:
    """One member was asked for something else than the others: neither side accepts the other's keys."""
    lap = Round(3, {"hospital 1": b"another request"})
    for name in lap.names:
        with assert_refused(TrainingError, "false keys"):
            lap.members[name].accept(lap.keys)


@pytest.mark.parametrize("names", [["a", "b"], ["a", "b", "b"], ["b", "c", "d"]])
def test_unsafe_members_are_refused(names: list[str]) -> None:
    with pytest.raises(ValueError, match="members"):
        Member("a", names, CONTEXT, lambda text: b"", verify)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.integers(1, 5))
def test_numbers_survive_the_fixed_point(values: list[float], members: int) -> None:
    array = np.array(values)
    total = np.sum([encode(array, members)] * members, axis=0, dtype=np.uint64)
    assert decode(total) == pytest.approx(members * array, abs=members * 2.0**-41, rel=1e-15)


@pytest.mark.parametrize("value", [np.nan, np.inf, 2.0**23])
def test_numbers_that_would_wrap_are_refused(value: float) -> None:
    with assert_refused(TrainingError, "update too large"):
        encode(np.array([0.0, value]), 5)


def test_streams_repeat_and_differ() -> None:
    first, second = (expand_seed(bytes([value]) * 32, 50) for value in (1, 2))
    assert np.array_equal(first, expand_seed(b"\x01" * 32, 50))
    assert np.array_equal(first[:20], expand_seed(b"\x01" * 32, 20))
    assert not np.array_equal(first, second)
