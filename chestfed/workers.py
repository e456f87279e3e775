"""Worker processes: one thread each, and none outlives its parent."""

from __future__ import annotations

import multiprocessing
import os
import threading
from multiprocessing.connection import wait


def start_worker() -> None:
    """Initializer of every process pool.

    The processes share the cores already, so OpenCV gets one thread. A parent that is killed outright cannot stop
    its workers, which would wait for work for ever: each waits for the parent's end instead, and ends with it.
    """
    import cv2

    cv2.setNumThreads(1)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), name="parent's end", daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
