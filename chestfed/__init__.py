"""chestfed: a benchmark suite for federated learning on chest X-rays of five hospitals.

The names below are imported when they are first used: `import chestfed` loads neither PyTorch nor pandas.
"""

from __future__ import annotations

import getpass
import os
from importlib import import_module
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from chestfed._version import __version__

if TYPE_CHECKING:
    from chestfed import statistics
    from chestfed.api import Tuned, compare, evaluate, load_pipeline, run, tune
    from chestfed.experiment.methods import PipelineFile as Pipeline
    from chestfed.report.comparison import Comparison
    from chestfed.report.study import Study
    from chestfed.sites.dataset import Site, load_site

__all__ = [
    "Comparison",
    "Pipeline",
    "Site",
    "Study",
    "Tuned",
    "__version__",
    "compare",
    "evaluate",
    "load_pipeline",
    "load_site",
    "run",
    "statistics",
    "tune",
]

_PLACES = {
    "Comparison": "chestfed.report.comparison:Comparison",
    "Pipeline": "chestfed.experiment.methods:PipelineFile",
    "Site": "chestfed.sites.dataset:Site",
    "Study": "chestfed.report.study:Study",
    "Tuned": "chestfed.api:Tuned",
    "compare": "chestfed.api:compare",
    "evaluate": "chestfed.api:evaluate",
    "load_pipeline": "chestfed.api:load_pipeline",
    "load_site": "chestfed.sites.dataset:load_site",
    "run": "chestfed.api:run",
    "tune": "chestfed.api:tune",
}


def __getattr__(name: str) -> object:
    if name == "statistics":
        return import_module("chestfed.statistics")
    if name in _PLACES:
        return resolve_name(_PLACES[name])
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
