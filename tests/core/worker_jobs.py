"""What the tests of worker processes have them do: a module that imports little, for each of them imports it."""

from __future__ import annotations

import os
import re
import signal
import time

from chestfed.core.processes.workers import limit_time, parallel_map


def blocks_interrupts(_: int) -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def double(number: int) -> int:
    return 2 * number


def double_or_end(number: int) -> int:
    if number % 50 == 7:
        os._exit(3)
    return 2 * number


def double_or_stick(number: int) -> int:
    with limit_time(0.3 if number == 57 else 60.0):
        if number == 57:
            re.fullmatch("(a|a)*b", "a" * 60)  # for years, in C, with Python's lock
        return double(number)


def gone(number: int) -> int:
    return -number


def large_or_end(number: int) -> bytes:
    if number == 5:
        os._exit(1)
    time.sleep(0.02)  # others are at work, and have more to say than a pipe holds
    return bytes(1 << 18)


def results_of_a_child(numbers: list[int]) -> list[int]:
    return list(parallel_map(double, numbers, 2, small=1))
