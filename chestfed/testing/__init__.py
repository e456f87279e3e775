"""For the tests of a plug-in: does it keep what the rest of chestfed relies on?

    from chestfed.testing import check_site

    def test_our_hospital() -> None:
        check_site("site_configs/our_hospital.yaml", "tests/small_files")

Stable: these names and their meaning change with a major version only; a minor version may add checks.
"""

from __future__ import annotations

from chestfed.testing.sites import CHECKS, ConformanceError, ConformanceReport, Violation, check_site

__all__ = ["CHECKS", "ConformanceError", "ConformanceReport", "Violation", "check_site"]
