"""Batch-norm statistics that a study's test images were scored with, and the sentence about them in every caption."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError, safe_open

from chestfed.core.errors import ChestfedError

#: own: re-estimated on training images of each hospital that is scored; averaged: the mean over the clients, as the
#: server has it; stored: as the model file has them.
Statistics = Literal["own", "averaged", "stored"]


def describe_statistics(statistics: Statistics | None, whose: str = "each hospital's") -> str:
    """One sentence; empty for a network without batch normalization (None)."""
    if statistics is None:
        return ""
    sources = {
        "own": f"batch-norm statistics of {whose} own training images",
        "averaged": "the clients' averaged batch-norm statistics",
        "stored": "the batch-norm statistics stored in the model file",
    }
    return f"Scored with {sources[statistics]}."


def read_statistics(model: Path, configuration: Mapping[str, Any]) -> Statistics | None:
    """Those of a study with this configuration; None if the model file is missing or has no batch normalization.

    Raises `ChestfedError` if the file is damaged.
    """
    if not model.is_file():
        return None
    try:
        with safe_open(model, framework="numpy") as tensors:
            names = list(tensors.keys())
    except (SafetensorError, OSError) as error:
        raise ChestfedError(f"{model}: cannot be read ({error}). Run the same study again.") from None
    if not any(name.endswith("running_mean") for name in names):
        return None
    other_images = configuration.get("collection") or configuration.get("held_out")  # of no training hospital
    averaged = other_images or configuration["evaluation"].get("batch_norm") == "averaged"
    return "averaged" if averaged else "own"
