"""Signals that end a command: at the next point that it can go on from, where there is one, else at once.

Ctrl-C, SIGTERM (`kill`, `docker stop`, `scancel`), SIGHUP (a closed terminal) and SIGUSR1 (Slurm's warning before the
time limit: `#SBATCH --signal=B:USR1@120`) are treated alike.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_NAMES: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")
_NOTE: Final = b"\nstopping at the next point that can be resumed from; a second signal stops at once\n"


#: In place of a signal's number.
_PAUSE: Final = 0


class Stopped(KeyboardInterrupt):
    """A signal has asked this process to end; `number` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by signal {number}")
        self.number = number

    @property
    def is_pause(self) -> bool:
        """Whether `request_stop` asked for it, and no signal."""
        return self.number == _PAUSE

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, else 143."""
        return 130 if self.number == signal.SIGINT else 143


class _State:
    """State of this process: whether a signal waits for a safe point, and which does."""

    postponing = False
    asked: int | None = None


def numbers() -> list[signal.Signals]:
    """The signals of this platform that ask a command to end."""
    return [signal.Signals[name] for name in _NAMES if name in signal.Signals.__members__]


@contextmanager
def handle_signals() -> Iterator[None]:
    """While a command runs, signals raise `Stopped`; those that the caller ignores, as `nohup` does, stay ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in numbers()}
    taken = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in taken:
        signal.signal(number, _handle)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, before[number])


def ignore_signals() -> None:
    """Let a worker process end with its parent: a terminal and Slurm send signals to all processes of a job."""
    for number in numbers():
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def block_signals() -> Iterator[None]:
    """Block these signals: a process started here sees SIGTERM alone; this one gets them at the end of the block."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, set(numbers()) - {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def defer_signals() -> Iterator[None]:
    """A first signal waits for `safe_point`, or for the end of this block; a second one is raised at once."""
    _State.postponing, _State.asked = True, None
    try:
        yield
    finally:
        _State.postponing = False
    safe_point()


def is_stop_requested() -> bool:
    """Whether a signal waits: state is then saved before `safe_point`."""
    return _State.asked is not None


def request_stop() -> None:
    """End a block of `defer_signals` at its next safe point, as a signal would; an earlier signal counts instead."""
    _State.asked = _State.asked if _State.asked is not None else _PAUSE


def safe_point() -> None:
    """Everything is saved here: end if a signal has asked for it.

    Raises
    ------
    Stopped
        If one has.
    """
    number, _State.asked = _State.asked, None
    if number is not None:
        _State.postponing = False
        raise Stopped(number)


def _handle(number: int, frame: FrameType | None) -> None:
    if _State.postponing and _State.asked in (None, _PAUSE):
        _State.asked = number
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, _NOTE)
        return
    _State.asked = None
    raise Stopped(number)
