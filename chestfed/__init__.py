"""chestfed: a federated AUC-maximization benchmark on chest X-rays of five hospitals.

`chestfed.Study` reads a finished study; it is imported when it is first asked for, and pandas with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chestfed.report.study import Study

from chestfed._version import __version__

__all__ = ["Study", "__version__"]


def __getattr__(name: str) -> object:
    if name == "Study":
        from chestfed.report.study import Study

        return Study
    raise AttributeError(f"module 'chestfed' has no attribute '{name}'")
