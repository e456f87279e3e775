"""The dataset table: images, patients, training rows and positive ratios per site, beside the paper's Table 2.

A positive ratio is the share of positives among the images whose label is not missing, each counted once. Where a site
repeats training rows, one more line counts them as often as they are in the training list. `site_facts` is what a study
says of a hospital: counts and policies, no names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from chestfed.core.console import text_table
from chestfed.core.diseases import format_title, sort_names
from chestfed.core.provenance import Origin
from chestfed.data.sites.config import SiteConfig
from chestfed.data.sites.reader import SPLITS
from chestfed.data.sites.table import SiteTable, count_labels

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Part that a row of the table counts: one split, all, all with the views that are left out, or what the paper prints.
ALL, ALL_VIEWS, REPEATED, PAPER = "all", "all views", "train, oversampled", "paper"


def dataset_table(tables: Sequence[SiteTable], all_views: Sequence[SiteTable | None] = ()) -> pd.DataFrame:
    """One row per site and split, one for all splits where there are several, and below a training split the paper's.

    `all_views` are the same sites with the views that their configurations leave out, where there are such: one row
    more. Columns: `site`, `title`, `synthetic`, `part` (a split, or one of the names above), `images`, `patients`,
    `rows` (images with repeats), `views`, per disease the positive ratio, and per disease
    `<disease>_missing`, the images without a label. The paper's row has only `images` and the ratios.
    """
    rows: list[dict[str, object]] = []
    for table, wider in zip_longest(tables, all_views):
        parts = {split: _count_part(part) for split in SPLITS if len((part := table.select(split)).frame)}
        parts |= {ALL: _count_part(table)} if len(parts) > 1 else {}
        parts |= {} if wider is None else {ALL_VIEWS: _count_part(wider)}
        training = table.select("train")
        if (training.frame["repeats"] > 1).any():
            ratios = dict(zip(table.diseases, training.positive_ratios(), strict=True))
            parts[REPEATED] = {**parts["train"], **ratios}
        if "train" in parts and table.name in _load_paper():  # the paper's figures are of training images
            parts[PAPER] = _load_paper()[table.name]
        site = {"site": table.name, "title": table.title, "synthetic": table.synthetic}
        rows += [{**site, "part": part, **counts} for part, counts in parts.items()]
    columns = ["site", "title", "synthetic", "part", "images", "patients", "rows", "views"]
    diseases = sort_names(disease for table in tables for disease in table.diseases)
    frame = pd.DataFrame(rows, columns=[*columns, *diseases, *(f"{disease}_missing" for disease in diseases)])
    counts = ["images", "patients", "rows", *(f"{disease}_missing" for disease in diseases)]
    return frame.astype(dict.fromkeys(counts, "Int64"))


def render(frame: pd.DataFrame) -> RenderableType:
    """The table of `dataset_table` for a terminal: ratios to three decimals; views and missing labels below it."""
    from rich.console import Group
    from rich.text import Text

    mark = Origin.of(map(bool, frame["synthetic"])).short_mark
    diseases = [name.removesuffix("_missing") for name in map(str, frame) if name.endswith("_missing")]
    heads, rows = ("images", "patients", "rows", *map(format_title, diseases)), []
    notes = []
    for row in frame.to_dict("records"):
        paper = row["part"] == PAPER
        ratios = ["-" if pd.isna(row[disease]) else f"{row[disease]:.3f}" for disease in diseases]
        counts = ["" if pd.isna(row[name]) else f"{row[name]:,}" for name in ("images", "patients", "rows")]
        rows.append(["" if paper else str(row["title"]), str(row["part"]), *counts, *ratios])
        if row["part"] not in (REPEATED, PAPER):
            missing = {format_title(disease): row[f"{disease}_missing"] for disease in diseases}
            counted = ", ".join(f"{name} {n:,}" for name, n in missing.items() if not pd.isna(n) and n) or "none"
            notes.append(f"{row['title']}, {row['part']}: {row['views']}; missing labels: {counted}")
    parts = {str(part) for part in frame["part"]}
    about = "Ratio: positives among labeled images, each counted once"
    about += f"; in '{REPEATED}' as often as it is in the training list" * (REPEATED in parts)
    about += ". Paper: Table 2 of the CODASCA paper, which counts after oversampling" * (PAPER in parts)
    notes.append(f"{about}.")
    shown = text_table(f"{mark}images and positive ratios", ("site", "part"), heads, rows, light=True)
    return Group(shown, Text("\n".join(notes)))


#: A patient with more than this share of a split's images, and more images than that, is noted.
_LARGE_SHARE: Final = 0.1
_FEW_IMAGES: Final = 5


def describe_test_split(table: SiteTable, config: SiteConfig, least: int) -> list[str]:
    """Notes on the test patients: diseases with fewer than `least` of a class, and how they were drawn.

    Also on a patient with a large share of the images of any split.
    """
    test, sentences = table.select("test"), []
    counts, totals = _count_classes(test), _count_classes(table)
    few = {
        disease: min(totals[disease]) for disease in table.diseases if len(test.frame) and min(counts[disease]) < least
    }
    if few:
        named = "; ".join(
            f"{format_title(disease)} {counts[disease][0]:,} positive and {counts[disease][1]:,} negative"
            for disease in few
        )
        how = advise_splits(config.splits.file, "test")
        sentences.append(
            f"Test patients: {named}. With fewer than {least} of a class the AUC stays out of the mean; with "
            f"0 there is none. {advise_test_patients(few, least, how)}"
        )
    for split in SPLITS:
        images = table.select(split).frame["patient"].value_counts()
        if len(images) and images.iloc[0] > max(_FEW_IMAGES, _LARGE_SHARE * images.sum()):
            sentences.append(
                f"One patient has {images.iloc[0]:,} of the {images.sum():,} {split} images: make sure that the number "
                "is that of one person."
            )
    drawn = [name for name in ("valid", "test") if getattr(config.splits, f"{name}_fraction")]
    if drawn:
        sentences.append(
            f"The {' and '.join(drawn)} patients are drawn from splits.seed, the site's name ({table.name}) and all "
            "its patients and labels: if an image or label changes, most of them may be others, whom earlier models "
            "trained on. `chestfed site check --fix-splits` writes the splits to a file, which keeps them."
        )
    return sentences


def _count_classes(table: SiteTable) -> dict[str, tuple[int, int]]:
    """Patients with a positive and with a negative image, of each disease."""
    patients = table.frame["patient"].to_numpy()
    return {
        disease: (len(set(patients[labels == 1])), len(set(patients[labels == 0])))
        for disease, labels in zip(table.diseases, table.labels().T, strict=True)
    }


def advise_splits(file: str | None, split: str) -> str:
    """Advice for more patients in a split of a site: `Raise splits.test_fraction`; with a file of splits another."""
    if file is None:
        return f"Raise splits.{split}_fraction in the site's YAML"
    return f"Move training patients to {split} in {Path(file).name}, before a model is trained on them,"


def advise_test_patients(few: Mapping[str, int], least: int, how: str) -> str:
    """Advice on diseases with too few test patients of a class: how to test more, or that the hospital has too few.

    `few` has the hospital's patients of that class, of each disease: half of them may be tested.
    """
    enough = [format_title(disease) for disease, patients in few.items() if patients >= 2 * least]
    scarce = [f"{format_title(disease)} ({count:,} in all)" for disease, count in few.items() if count < 2 * least]
    sentences = [f"{how} to test more patients with {', '.join(enough)}."] if enough else []
    sentences += [f"The hospital has too few patients for {', '.join(scarce)}."] if scarce else []
    return " ".join(sentences)


def _count_part(table: SiteTable) -> dict[str, object]:
    frame = table.frame
    views = frame["view"].value_counts()
    labels = list(zip(table.diseases, count_labels(table.labels()), strict=True))
    return {
        "images": len(frame),
        "patients": frame["patient"].nunique(),
        "rows": int(frame["repeats"].sum()),
        "views": ", ".join(f"{view} {count:,}" for view, count in views.items() if count),
        **{disease: counts.prevalence for disease, counts in labels},
        **{f"{disease}_missing": counts.missing for disease, counts in labels},
    }


@cache
def _load_paper() -> dict[str, dict[str, object]]:
    """Per site the paper's number of images and positive ratios."""
    with resources.files("chestfed.data.sites").joinpath("paper_table2.csv").open(encoding="utf-8") as file:
        frame = pd.read_csv(file, comment="#", index_col="site").rename(columns={"samples": "images"})
    return {str(site): dict(row) for site, row in frame.iterrows()}


def site_facts(config: SiteConfig, whole: SiteTable, training: SiteTable, test: SiteTable) -> dict[str, Any]:
    """Flow, people and label policy of a hospital, as plain data; `training` and `test` are the parts that are used."""
    views = "all" if config.views == "all" else ", ".join(config.views)
    left_out = {f"other views than {views}": whole.other_views} | {
        f"rows: {reason.replace('_', ' ')}": count for reason, count in whole.left_out.items()
    }
    return {
        "site": whole.name,
        "title": whole.title,
        **{name: getattr(config, name) for name in ("license", "source", "citation", "reference_standard")},
        "policy": {
            "names": config.model_dump(mode="json")["labels"],
            **{name: dict(getattr(config, name)) for name in ("uncertain", "blank", "upsample")},
        },
        "found": len(whole.frame) + sum(left_out.values()),
        "left_out": {reason: count for reason, count in left_out.items() if count},
        "people": people(training, test),
    }


def people(training: SiteTable, test: SiteTable) -> dict[str, Any]:
    """Who is in these parts of a hospital: images, patients, sex, age and views."""
    return {"train": _describe_people(training), "test": _describe_people(test)}


def _describe_people(part: SiteTable) -> dict[str, Any]:
    patients = part.frame.drop_duplicates("patient")
    sex, ages = patients["sex"].dropna(), patients["age"].dropna()
    views = part.frame["view"].value_counts()
    return {
        "images": len(part.frame),
        "patients": len(patients),
        "women": float((sex == "F").mean()) if len(sex) else None,
        "age": [float(ages.quantile(q)) for q in (0.25, 0.5, 0.75)] if len(ages) else None,
        "views": {str(view): int(count) for view, count in views.items() if count},
    }
