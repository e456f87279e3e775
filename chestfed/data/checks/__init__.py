"""Inspecting a site before it is used: every image file once, and all problems in one report."""

from chestfed.data.checks.check import CheckReport, check_site
from chestfed.data.checks.scan import Scan, scan_images

__all__ = ["CheckReport", "Scan", "check_site", "scan_images"]
