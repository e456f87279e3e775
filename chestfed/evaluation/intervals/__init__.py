"""Confidence intervals, and the names of their methods: for the command line, which imports nothing that computes."""

from __future__ import annotations

from typing import Literal

MethodName = Literal["t-logit", "obuchowski", "delong", "bca", "percentile"]
