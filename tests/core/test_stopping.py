"""Signals that end a command."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from chestfed.core.processes import stopping

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
    with stopping.handle_signals():
        try:
            with stopping.defer_signals():
                for step in range(3):
                    for _ in range(times if step == 1 else 0):
                        signal.raise_signal(number)
                    done.append(step)
                    stopping.safe_point()
        except stopping.Stopped as stopped:
            return [*done, stopped.exit_code]
    return done


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGUSR1, 143)])
def test_first_signal_waits_for_a_safe_point(number: signal.Signals, code: int) -> None:
    before = signal.getsignal(number)
    assert work(number, 0) == [0, 1, 2]
    assert work(number, 1) == [0, 1, code]
    assert work(number, 2) == [0, code]
    assert (signal.getsignal(number), stopping.is_stop_requested()) == (before, False)


def test_signal_elsewhere_is_immediate() -> None:
    with stopping.handle_signals(), pytest.raises(stopping.Stopped):
        signal.raise_signal(signal.SIGTERM)


def test_ignored_signals_stay_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopping.handle_signals():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
