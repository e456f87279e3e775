"""Synthetic sample hospitals: chest phantoms in the layouts of the five real sets. No patient, no clinical meaning."""

from chestfed.data.samples.extra import SHAPES, ExtraHospital, write_extra
from chestfed.data.samples.hospitals import SIZES
from chestfed.data.samples.writing import HospitalSummary, is_complete, write_hospitals, write_labels

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
