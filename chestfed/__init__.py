"""chestfed: a federated AUC-maximization benchmark on chest X-rays of five hospitals.

`chestfed.load_site` opens a site: its table, and its images as a PyTorch dataset. `chestfed.Study` reads a finished
study. Each is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chestfed.results.study import Study
    from chestfed.sites.dataset import Site, load_site

from chestfed._version import __version__

__all__ = ["Site", "Study", "__version__", "load_site"]

_MODULES = {
    "Site": "chestfed.sites.dataset",
    "Study": "chestfed.results.study",
    "load_site": "chestfed.sites.dataset",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'chestfed' has no attribute '{name}'")
