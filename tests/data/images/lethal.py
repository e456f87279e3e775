"""What the processes of test_file_store.py do that are killed. It is quick to import: no torch, no pytest."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from chestfed.data.images.cache import pixels
from chestfed.data.images.levels import Stored
from chestfed.data.images.preprocess import Preprocess


def decode_or_die(preprocess: Preprocess, path: Path, stored: Stored) -> object:
    """Decode, but die of one image if the site has a file `kill`."""
    if (path.parents[1] / "kill").exists() and path.name == "patient00002.png":
        os.kill(os.getpid(), signal.SIGKILL)
    return pixels(preprocess).work(path, stored)
