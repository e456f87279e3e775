"""Held-out sites: each fold's result at its site, and at those that were trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chestfed.core.provenance import Origin
from chestfed.results.tables.collect import name_folder
from chestfed.results.tables.columns import COMMON, HELD_OUT
from chestfed.results.tables.frames import (
    About,
    Results,
    Row,
    list_estimates,
    make_differences,
    make_estimates,
    write_frames,
)


@dataclass(frozen=True)
class Fold:
    """One held-out site: its own result, and those of the sites that were trained on."""

    site: str
    images: int
    folder: str
    row: Row
    seen: Mapping[str, Row]


def collect_folds(folds: Sequence[Fold], title: str, origin: Origin, about: About) -> Results:
    """The folds as results of the view `held_out`: a model is named by the site held out."""
    rows: list[dict[str, Any]] = []
    for fold in folds:
        for site, row in ((fold.site, fold.row), *fold.seen.items()):
            head = {"view": "held_out", "data": str(origin), "model": fold.site, "hospital": site, "k": row.k}
            head |= {"design": HELD_OUT, "site_out": fold.site, "kind": COMMON}
            head |= {"takes_part": site != fold.site, "protocol": about["protocol"]}
            rows += list_estimates([row], **head, images=fold.images if site == fold.site else None)
    return Results(title, origin, {"seeds": [], **about}, make_estimates(rows), make_differences([]))


def write_folds(results: Results, folds: Sequence[Fold], out: Path) -> Path:
    """Write `held_out.csv` into a folder named by the folds' runs; returns it."""
    folder = name_folder([fold.folder for fold in folds], results.origin, out, "held-out")
    folder.mkdir(parents=True, exist_ok=True)
    write_frames(folder, results.estimates, results.differences, ("held_out",))
    return folder
