"""Positives per client: every page and table counts an image once; the training list is longer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from chestfed.core.bundled import bundled
from chestfed.data.sites import load_site_config, open_site
from chestfed.data.sites.stats import dataset_table
from chestfed.data.sites.table import LabelCounts, count_labels
from chestfed.studies.training.plan import ImageCounts


def test_an_image_counts_once_in_every_table(tiny_study: Path) -> None:
    (run,) = (tiny_study / "runs").glob("synthetic-source_addition_samples-*")
    card = json.loads((run / "sites.json").read_text())["sites"][0]
    config = load_site_config(bundled("site_configs") / "synthetic" / "chexpert.yaml")
    train = open_site(config, tiny_study / "synthetic_hospitals").select("train")
    repeats, labels = train.frame["repeats"].to_numpy(), train.frame["cardiomegaly"]
    positives, negatives = int((labels == 1).sum()), int((labels == 0).sum())
    assert card["rows"] == repeats.sum() > len(train.frame)
    shown = card["diseases"]["cardiomegaly"]
    assert (shown["positives"], shown["negatives"]) == (positives, negatives)
    assert shown["prevalence"] == positives / (positives + negatives) < train.positive_ratios()[0]
    assert dataset_table([train])["cardiomegaly"][0] == shown["prevalence"]
    planned = ImageCounts.of("chexpert", train.labels(), repeats)
    assert (planned.positives[0], planned.negatives[0], planned.rows) == (positives, negatives, repeats.sum())


def test_no_images_no_prevalence() -> None:
    labels = np.array([[1, np.nan], [0, np.nan], [np.nan, np.nan]], np.float32)
    assert count_labels(labels) == [LabelCounts(1, 1, 1, 0.5), LabelCounts(0, 0, 3, None)]
