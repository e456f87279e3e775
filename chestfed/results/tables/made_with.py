"""Versions and processors that each K of a run was trained with, as its folder records them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from chestfed.core.checkpoint import read_json

#: In the folder of a K: versions and processor of every process that trained it, in order.
MADE_WITH: Final = "made_with.json"
#: Version or processor by name.
Maker = dict[str, str]


def read_makers(folder: Path, ks: Sequence[int]) -> dict[int, list[Maker]]:
    """Read what the K of a run folder were trained with; K of an earlier version of chestfed have no such record."""
    makers = {k: read_json(folder / f"k{k}" / MADE_WITH).get("made_with", []) for k in ks}
    return {k: every for k, every in makers.items() if every}


def find_differences(makers: Sequence[tuple[str, Sequence[Maker]]]) -> list[str]:
    """A text per version, or processor, in which models differ, such as `torch 2.13.0 (K=1), 2.14.0 (K=2)`."""
    keys = dict.fromkeys(key for _, every in makers for maker in every for key in maker)
    differences = []
    for key in keys:
        holders: dict[str, list[str]] = {}
        for name, every in makers:
            for value in dict.fromkeys(maker.get(key, "") for maker in every):
                holders.setdefault(value or "not known", []).append(name)
        if len(holders) > 1:
            differences.append(f"{key} " + ", ".join(f"{value} ({', '.join(of)})" for value, of in holders.items()))
    return differences


def describe_makers(runs: Sequence[tuple[str, Path, Sequence[int]]]) -> str:
    """A sentence where not all models were made alike; else empty. Each run: what to say before its K, folder, K."""
    makers = [(f"{name}K={k}", every) for name, folder, ks in runs for k, every in read_makers(folder, ks).items()]
    differences = find_differences(makers)
    if not differences:
        return ""
    return f"Not all models were trained alike, so differences may come from that: {'; '.join(differences)}"
