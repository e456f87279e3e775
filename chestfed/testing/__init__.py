"""For the tests of a package that brings a part of its own: does it keep what the rest of chestfed relies on?

    from chestfed.testing import check_site

    def test_our_hospital() -> None:
        check_site("site_configs/our_hospital.yaml", "tests/small_files")

    def test_our_network() -> None:
        check_model("mylab.nets:VIT", size=224, patch=16)

Stable: these names and what they mean change with a major version only; further checks may be added in a minor one.
"""

from __future__ import annotations

from chestfed.testing.algorithms import check_algorithm
from chestfed.testing.conformance import CHECKS, check_site
from chestfed.testing.contract import ContractError
from chestfed.testing.models import check_model
from chestfed.testing.objectives import check_objective
from chestfed.testing.report import ConformanceError, ConformanceReport, Violation

__all__ = [
    "CHECKS",
    "ConformanceError",
    "ConformanceReport",
    "ContractError",
    "Violation",
    "check_algorithm",
    "check_model",
    "check_objective",
    "check_site",
]
