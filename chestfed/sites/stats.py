"""The dataset table: images, patients, training rows and positive ratios per site, beside the paper's Table 2.

A positive ratio is the share of positives among the rows whose label is not missing, with every row counted as often
as it stands in the training list.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

import pandas as pd

from chestfed.diseases import DISEASES, TITLES
from chestfed.sites.config import SPLITS
from chestfed.sites.table import SiteTable

if TYPE_CHECKING:
    from rich.table import Table

#: What a row of the table counts: one split, all of them, or the figures that the paper prints.
ALL, PAPER = "all", "paper"


def dataset_table(tables: Sequence[SiteTable]) -> pd.DataFrame:
    """One row per site and split, one for all splits where there are several, and the paper's row if it has one.

    Columns: `site`, `title`, `synthetic`, `part` (train, valid, test, all, paper), `images`, `patients`, `rows`
    (images with repeats), `views`, per disease the positive ratio, and per disease `<disease>_missing`, the images
    without a label. The paper's row has only `images` and the ratios.
    """
    rows: list[dict[str, object]] = []
    for table in tables:
        present = [split for split in SPLITS if (table.frame["split"] == split).any()]
        rows += [_row(table.select(split), split) for split in present]
        if len(present) > 1:
            rows.append(_row(table, ALL))
        paper = _paper().get(table.name)
        if paper is not None:
            rows.append({**_names(table), "part": PAPER, **paper})
    columns = ["site", "title", "synthetic", "part", "images", "patients", "rows", "views"]
    frame = pd.DataFrame(rows, columns=[*columns, *DISEASES, *(f"{disease}_missing" for disease in DISEASES)])
    counts = ["images", "patients", "rows", *(f"{disease}_missing" for disease in DISEASES)]
    return frame.astype(dict.fromkeys(counts, "Int64"))


def render(frame: pd.DataFrame) -> Table:
    """The table of `dataset_table` for a terminal: ratios to three decimals, missing labels in a last column."""
    from rich.table import Table

    synthetic = "SYNTHETIC hospitals: " if frame["synthetic"].any() else ""
    shown = Table(title=f"{synthetic}images and positive ratios", title_justify="left", caption_justify="left")
    shown.caption = (
        "ratio: positives among labelled rows, repeated training rows counted; paper: Table 2 of the CODASCA paper"
    )
    for name in ("site", "part"):
        shown.add_column(name)
    for name in ("images", "patients", "rows", *(TITLES[disease] for disease in DISEASES)):
        shown.add_column(name, justify="right")
    shown.add_column("views")
    shown.add_column("missing labels")
    for row in frame.to_dict("records"):
        ratios = ["-" if pd.isna(row[disease]) else f"{row[disease]:.3f}" for disease in DISEASES]
        lacking = {TITLES[disease]: row[f"{disease}_missing"] for disease in DISEASES}
        lacking = {name: count for name, count in lacking.items() if not pd.isna(count) and count > 0}
        same = len(lacking) == len(DISEASES) and len(set(lacking.values())) == 1
        missing = f"{next(iter(lacking.values())):,} each" if same else ""
        shown.add_row(
            "" if row["part"] == PAPER else str(row["title"]),
            str(row["part"]),
            *("" if pd.isna(row[name]) else f"{row[name]:,}" for name in ("images", "patients", "rows")),
            *ratios,
            "" if pd.isna(row["views"]) else str(row["views"]),
            missing or ", ".join(f"{name} {count:,}" for name, count in lacking.items()),
            style="dim" if row["part"] == PAPER else None,
            end_section=row["part"] == PAPER,
        )
    return shown


def _row(table: SiteTable, part: str) -> dict[str, object]:
    frame = table.frame
    views = frame["view"].value_counts()
    row: dict[str, object] = {
        **_names(table),
        "part": part,
        "images": len(frame),
        "patients": frame["patient"].nunique(),
        "rows": int(frame["repeats"].sum()),
        "views": ", ".join(f"{view} {count:,}" for view, count in views.items() if count),
    }
    row.update(zip(table.diseases, table.positive_ratios(), strict=True))
    row.update({f"{disease}_missing": int(frame[disease].isna().sum()) for disease in table.diseases})
    return row


def _names(table: SiteTable) -> dict[str, object]:
    return {"site": table.name, "title": table.title, "synthetic": table.synthetic}


@cache
def _paper() -> dict[str, dict[str, object]]:
    """Per site the paper's number of images and positive ratios."""
    with resources.files("chestfed.sites").joinpath("paper_table2.csv").open(encoding="utf-8") as file:
        frame = pd.read_csv(file, comment="#", index_col="site").rename(columns={"samples": "images"})
    return {str(site): dict(row) for site, row in frame.iterrows()}
