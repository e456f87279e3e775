"""Confidence intervals, and the names of their methods: for the command line, which imports nothing that computes."""

from __future__ import annotations

from typing import Final, Literal

MethodName = Literal["obuchowski", "bca", "percentile"]
#: The method whose measured coverage is closest to 95% (docs/evaluation.md).
DEFAULT: Final[MethodName] = "obuchowski"
