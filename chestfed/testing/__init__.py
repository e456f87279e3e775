"""For the tests of a plug-in: does it keep what the rest of chestfed relies on?

    from chestfed.testing import check_model, check_site

    def test_our_hospital() -> None:
        check_site("site_configs/our_hospital.yaml", "tests/small_files")

    def test_our_network() -> None:
        check_model("mylab.nets:VIT", size=224, patch=16)

Stable, as docs/stability.md says; a minor version may add checks. Each is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chestfed.testing.algorithms import check_algorithm
    from chestfed.testing.contract import ContractError
    from chestfed.testing.models import check_model
    from chestfed.testing.objectives import check_objective
    from chestfed.testing.sites import CHECKS, check_site

__all__ = [
    "CHECKS",
    "ContractError",
    "check_algorithm",
    "check_model",
    "check_objective",
    "check_site",
]

_MODULES = {
    "ContractError": "contract",
    "check_algorithm": "algorithms",
    "check_model": "models",
    "check_objective": "objectives",
    "CHECKS": "sites",
    "check_site": "sites",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(f"chestfed.testing.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'chestfed.testing' has no attribute '{name}'")
