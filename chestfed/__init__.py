"""chestfed: a benchmark suite for federated learning on chest X-rays of five hospitals.

The names below are imported when they are first used: `import chestfed` loads neither PyTorch nor pandas.
"""

from __future__ import annotations

import getpass
import os
from importlib import import_module
from typing import TYPE_CHECKING

from chestfed._version import __version__

if TYPE_CHECKING:
    from chestfed import statistics
    from chestfed.api import compare, evaluate, run
    from chestfed.report.study import Study
    from chestfed.sites.dataset import Site, load_site

__all__ = ["Site", "Study", "__version__", "compare", "evaluate", "load_site", "run", "statistics"]

_PLACES = {
    "Site": "chestfed.sites.dataset",
    "Study": "chestfed.report.study",
    "compare": "chestfed.api",
    "evaluate": "chestfed.api",
    "load_site": "chestfed.sites.dataset",
    "run": "chestfed.api",
}


def __getattr__(name: str) -> object:
    if name == "statistics":
        return import_module("chestfed.statistics")
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'chestfed' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__


def _name_user() -> None:
    """Give a user without a name one (a container's `--user 12345`): MONAI and torch.compile fail without it."""
    try:
        getpass.getuser()
    except (ImportError, KeyError, OSError):
        os.environ["USER"] = "unknown"


_name_user()
