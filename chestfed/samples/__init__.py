"""Synthetic sample hospitals: chest phantoms in the layouts of the five real sets. No patient, no clinical meaning."""

from chestfed.samples.extra import SHAPES, ExtraHospital, write_extra
from chestfed.samples.hospitals import SIZES
from chestfed.samples.writing import HospitalSummary, is_complete, write_hospitals, write_labels

__all__ = [
    "SHAPES",
    "SIZES",
    "ExtraHospital",
    "HospitalSummary",
    "is_complete",
    "write_extra",
    "write_hospitals",
    "write_labels",
]
