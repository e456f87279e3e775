"""Synthetic sample hospitals: chest phantoms in the layouts of the five real sets. No patient, no clinical meaning."""

from chestfed.samples.hospitals import SIZES
from chestfed.samples.writing import HospitalSummary, is_complete, write_hospitals

__all__ = ["SIZES", "HospitalSummary", "is_complete", "write_hospitals"]
