"""Signals that end a command."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from chestfed.core import stopping

pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX signals")


@pytest.fixture(autouse=True)
def _heard_by_python() -> Iterator[None]:
    """A background job of a shell ignores SIGINT, and so do its tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def work(number: signal.Signals, times: int) -> list[int]:
    """Steps with a safe point after each; the signal comes in the second one, so many times. Those that were done."""
    done = []
    with stopping.heeded():
        try:
            with stopping.postponed():
                for step in range(3):
                    for _ in range(times if step == 1 else 0):
                        signal.raise_signal(number)
                    done.append(step)
                    stopping.safe_point()
        except stopping.Stopped as stopped:
            return [*done, stopped.exit_code]
    return done


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGUSR1, 143)])
def test_a_signal_waits_for_the_next_safe_point_and_a_second_one_does_not(number: signal.Signals, code: int) -> None:
    before = signal.getsignal(number)
    assert work(number, 0) == [0, 1, 2]
    assert work(number, 1) == [0, 1, code]
    assert work(number, 2) == [0, code]
    assert (signal.getsignal(number), stopping.asked()) == (before, False)


def test_outside_of_training_a_signal_is_raised_at_once() -> None:
    with stopping.heeded(), pytest.raises(stopping.Stopped):
        signal.raise_signal(signal.SIGTERM)


def test_what_the_caller_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopping.heeded():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
