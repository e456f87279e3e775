"""For the tests of a package that brings a site: does it keep what the rest of chestfed relies on?

    from chestfed.testing import check_site

    def test_our_hospital() -> None:
        check_site("site_configs/our_hospital.yaml", "tests/small_files")

Stable: these names and what they mean change with a major version only; further checks may be added in a minor one.
"""

from __future__ import annotations

from chestfed.testing.conformance import CHECKS, check_site
from chestfed.testing.report import ConformanceError, ConformanceReport, Violation

__all__ = ["CHECKS", "ConformanceError", "ConformanceReport", "Violation", "check_site"]
