"""Made hospitals of many shapes, each with the truth about every film."""

from __future__ import annotations

from benchmarks.hospital_shapes import files, terms, wide
from benchmarks.hospital_shapes.maker import SHAPES, Case, Place

__all__ = ["SHAPES", "Case", "Place", "files", "terms", "wide"]
