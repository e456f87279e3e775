"""Secure sums: exact whoever drops out, and every step that could show one member's values is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.core.errors import TrainingError
from chestfed.learning.engines.sums.fixed_point import decode, encode
from chestfed.leaves.federation.secure_sum.member import Keys, Member, check_threshold, expand_seed, recover_sum
from chestfed.leaves.federation.secure_sum.shares import divide_secret, join_shares
from tests.cases import assert_refused

CONTEXT = b"study|k5|stage 1|round 7"


def sign_as(name: str, text: bytes) -> bytes:
    """A stand-in for a signature: good enough to tell members and texts apart."""
    return hashlib.sha256(name.encode() + b"secret" + text).digest()


def verify(name: str, text: bytes, signature: bytes) -> bool:
    return sign_as(name, text) == signature


class Round:
    """All members and the server's relay, step by step."""

    def __init__(self, count: int, threshold: int, context: bytes = CONTEXT) -> None:
        self.names = [f"hospital {place}" for place in range(count)]
        self.threshold, self.context = threshold, context
        self.members = {
            name: Member(name, self.names, threshold, context, lambda text, name=name: sign_as(name, text), verify)
            for name in self.names
        }
        self.keys: dict[str, Keys] = {}
        self.sealed: dict[str, dict[str, bytes]] = {}
        self.masked: dict[str, np.ndarray] = {}

    def run_to_masks(
        self, values: dict[str, np.ndarray], late: Collection[str] = (), gone: Collection[str] = ()
    ) -> None:
        """`gone` never share, `late` share and send no masked values."""
        self.keys = {name: member.advertise() for name, member in self.members.items()}
        self.sealed = {name: member.share(self.keys) for name, member in self.members.items() if name not in gone}
        for name in self.sealed:
            if name not in late:
                received = {sender: sealed[name] for sender, sealed in self.sealed.items() if sender != name}
                self.masked[name] = self.members[name].mask(values[name], received)

    def finish(self, silent: Collection[str] = ()) -> np.ndarray:
        """`silent` survivors confirm and reveal nothing."""
        survivors = list(self.masked)
        answering = [name for name in survivors if name not in silent]
        signatures = {name: self.members[name].confirm(survivors) for name in answering}
        revealed = {name: self.members[name].reveal(survivors, signatures) for name in answering}
        about = (self.keys, list(self.sealed), revealed, self.names, self.threshold, self.context)
        return recover_sum(self.add_masked(), survivors, *about)

    def add_masked(self) -> np.ndarray:
        return np.asarray(np.sum(list(self.masked.values()), axis=0, dtype=np.uint64))


def make_values(names: Collection[str], size: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: encode(rng.standard_normal(size) * 10, len(names)) for name in names}


@given(data=st.data(), count=st.integers(3, 7), size=st.integers(1, 40), seed=st.integers(0, 999))
def test_sum_is_exact_whoever_drops_out(data: st.DataObject, count: int, size: int, seed: int) -> None:
    threshold = data.draw(st.integers(max(3, 2 * count // 3 + 1), count))
    dropping = data.draw(st.permutations([f"hospital {place}" for place in range(count)]))[: count - threshold]
    gone = [name for place, name in enumerate(dropping) if place % 3 == 0]
    late = [name for place, name in enumerate(dropping) if place % 3 == 1]
    silent = [name for place, name in enumerate(dropping) if place % 3 == 2]
    lap = Round(count, threshold)
    values = make_values(lap.names, size, seed)
    lap.run_to_masks(values, late, gone)
    expected = np.sum([values[name] for name in lap.masked], axis=0, dtype=np.uint64)
    assert np.array_equal(lap.finish(silent), expected)


def test_masked_values_look_random() -> None:
    lap = Round(3, 3)
    zeros = {name: np.zeros(100_000, np.uint64) for name in lap.names}
    lap.run_to_masks(zeros)
    for masked in lap.masked.values():
        assert np.bincount(masked.view(np.uint8), minlength=256) == pytest.approx(np.full(256, 3125), rel=0.12)
    first, second, third = lap.masked.values()
    assert (first + second + third != 0).all()  # the own masks are left


def test_too_few_shares_reveal_nothing() -> None:
    secret = bytes(range(32))
    shares = dict(enumerate(divide_secret(secret, 5, 3), start=1))
    for places in ((1, 2, 3), (1, 3, 5), (2, 4, 5, 1)):
        assert join_shares({place: shares[place] for place in places}) == secret
    with assert_refused(TrainingError, "false shares"):
        join_shares({1: shares[1], 2: shares[2]})


def test_member_reveals_once() -> None:
    lap = Round(4, 3)
    lap.run_to_masks(make_values(lap.names, 3, 0))
    first = lap.members[lap.names[0]]
    signatures = {name: lap.members[name].confirm(lap.names) for name in lap.names}
    with assert_refused(TrainingError, "false survivors"):
        first.confirm(lap.names[:3])
    with assert_refused(TrainingError, "false survivors"):
        first.reveal(lap.names[:3], signatures)
    first.reveal(lap.names, signatures)
    with assert_refused(TrainingError, "false survivors"):
        first.reveal(lap.names, signatures)


def test_list_with_few_signatures_is_refused() -> None:
    lap = Round(4, 3)
    lap.run_to_masks(make_values(lap.names, 3, 0))
    signatures = {name: lap.members[name].confirm(lap.names) for name in lap.names}
    forged = dict.fromkeys(lap.names, signatures[lap.names[0]])
    with assert_refused(TrainingError, "too few members", needed=3):
        lap.members[lap.names[0]].reveal(lap.names, forged)


def test_two_survivors_are_too_few() -> None:
    lap = Round(4, 3)
    lap.run_to_masks(make_values(lap.names, 3, 0), late=lap.names[2:])
    with assert_refused(TrainingError, "too few members", needed=3):
        lap.members[lap.names[0]].confirm(list(lap.masked))


def test_foreign_keys_are_refused() -> None:
    lap, other = Round(3, 3), Round(3, 3, b"another round")
    keys = {name: member.advertise() for name, member in lap.members.items()}
    foreign = {name: member.advertise() for name, member in other.members.items()}
    name = lap.names[1]
    for replaced in ({**keys, name: foreign[name]}, {**keys, name: keys[lap.names[2]]}):
        with assert_refused(TrainingError, "false keys"):
            lap.members[lap.names[0]].share(replaced)
    with assert_refused(TrainingError, "too few members"):
        lap.members[lap.names[0]].share({key: keys[key] for key in lap.names[:2]})


def test_damaged_shares_are_refused_by_name() -> None:
    lap = Round(3, 3)
    values = make_values(lap.names, 3, 0)
    lap.run_to_masks(values, late=lap.names)
    first, second, third = lap.names
    received = {second: lap.sealed[second][first], third: lap.sealed[third][second]}  # meant for another
    with assert_refused(TrainingError, "false shares"):
        lap.members[first].mask(values[first], received)


def test_false_shares_give_no_wrong_sum() -> None:
    lap = Round(4, 3)
    lap.run_to_masks(make_values(lap.names, 3, 0), late=lap.names[3:])
    survivors = list(lap.masked)
    signatures = {name: lap.members[name].confirm(survivors) for name in survivors}
    revealed = {name: lap.members[name].reveal(survivors, signatures) for name in survivors}
    shares = revealed[survivors[0]]
    gone = lap.names[3]
    wrong = dict(enumerate(divide_secret(bytes(32), 4, 3)))
    revealed[survivors[0]] = {**shares, gone: wrong[0]}
    with assert_refused(TrainingError, "false shares"):
        recover_sum(lap.add_masked(), survivors, lap.keys, list(lap.sealed), revealed, lap.names, 3, CONTEXT)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.integers(1, 5))
def test_numbers_survive_the_fixed_point(values: list[float], members: int) -> None:
    array = np.array(values)
    total = np.sum([encode(array, members)] * members, axis=0, dtype=np.uint64)
    assert decode(total) == pytest.approx(members * array, abs=members * 2.0**-41, rel=1e-15)


@pytest.mark.parametrize("value", [np.nan, np.inf, 2.0**23])
def test_numbers_that_would_wrap_are_refused(value: float) -> None:
    with assert_refused(TrainingError, "update too large"):
        encode(np.array([0.0, value]), 5)


@pytest.mark.parametrize(("members", "threshold"), [(2, 2), (3, 2), (6, 4), (5, 6)])
def test_weak_thresholds_are_refused(members: int, threshold: int) -> None:
    with pytest.raises(ValueError, match="threshold"):
        check_threshold(members, threshold)


def test_streams_repeat_and_differ() -> None:
    first, second = (expand_seed(bytes([value]) * 32, 50) for value in (1, 2))
    assert np.array_equal(first, expand_seed(b"\x01" * 32, 50))
    assert np.array_equal(first[:20], expand_seed(b"\x01" * 32, 20))
    assert not np.array_equal(first, second)
