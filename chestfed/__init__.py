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
    from chestfed.app.api import Tuned, compare, evaluate, load_pipeline, run, tune
    from chestfed.data.sites.dataset import Site, load_site
    from chestfed.reports.pages.comparison import Comparison
    from chestfed.reports.pages.study import Study
    from chestfed.studies.experiment.methods import PipelineFile as Pipeline

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
    "Comparison": "chestfed.reports.pages.comparison:Comparison",
    "Pipeline": "chestfed.studies.experiment.methods:PipelineFile",
    "Site": "chestfed.data.sites.dataset:Site",
    "Study": "chestfed.reports.pages.study:Study",
    "Tuned": "chestfed.app.api:Tuned",
    "compare": "chestfed.app.api:compare",
    "evaluate": "chestfed.app.api:evaluate",
    "load_pipeline": "chestfed.app.api:load_pipeline",
    "load_site": "chestfed.data.sites.dataset:load_site",
    "run": "chestfed.app.api:run",
    "tune": "chestfed.app.api:tune",
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
