"""AUCs that view, sex, age, file and other columns reach alone: a selection that may look like a diagnosis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pandas as pd

from chestfed.data.checks.free_columns import MOST_VALUES
from chestfed.data.checks.problems import Inspection
from chestfed.data.sites.config import SiteConfig
from chestfed.data.sites.groups import PREFIX

#: Values of fewer images are one value; a disease needs so many positive and negative images in each half.
_FEWEST: Final = 10
_OTHERS: Final = "\0others"

#: Column -> disease -> AUC; None where too few images tell.
Shortcuts = Mapping[str, Mapping[str, float | None]]


def measure_shortcuts(config: SiteConfig, site: Inspection, columns: Mapping[str, np.ndarray]) -> Shortcuts:
    """The AUC that each column reaches alone for each disease, without an image being looked at.

    A value of a column stands for the share of positives that one half of the patients has at it, and is scored on the
    other half; the mean of both ways. Columns without two frequent values are left out.
    """
    table = site.survey.table
    half = (pd.factorize(table.frame["patient"])[0] % 2).astype(bool)
    labels, shortcuts = table.labels(), {}
    for name, cells in {**_list_known(config, site), **columns}.items():
        codes = _encode(cells)
        if codes.max(initial=0) > 0:
            of_disease = zip(table.diseases, labels.T, strict=True)
            shortcuts[name] = {disease: score_column(codes, column, half) for disease, column in of_disease}
    return shortcuts


def score_column(codes: np.ndarray, labels: np.ndarray, half: np.ndarray) -> float | None:
    """AUC of values int `[n]` for labels float32 `[n]` in {0, 1, NaN}; `half` bool `[n]` says who is scored by whom."""
    size = int(codes.max(initial=0)) + 1
    group = np.where(np.isnan(labels), 4, 2 * half + (labels == 1))
    counts = np.bincount(group * size + codes, minlength=5 * size)[: 4 * size].reshape(2, 2, size)
    if counts.sum(axis=2).min() < _FEWEST:
        return None
    return float(np.mean([_rank(counts[1 - part], counts[part]) for part in (0, 1)]))


def _rank(seen: np.ndarray, scored: np.ndarray) -> float:
    """AUC of `scored`, counts `[2, values]` of negatives and positives, by the shares of positives in `seen`."""
    prevalence = seen[1].sum() / seen.sum()
    shares = (seen[1] + prevalence) / (seen.sum(axis=0) + 1)
    _, ranks = np.unique(shares, return_inverse=True)
    negatives, positives = (np.bincount(ranks, weights=of_label) for of_label in scored)
    below = np.cumsum(negatives) - negatives / 2
    return float((positives * below).sum() / (positives.sum() * negatives.sum()))


def _list_known(config: SiteConfig, site: Inspection) -> dict[str, np.ndarray]:
    """List known properties of the images: name -> `[n]`."""
    frame, scan = site.survey.table.frame, site.scan
    if frame.empty:  # its columns have no type
        return {}
    known = {"view": frame["view"].cat.codes.to_numpy(), "sex": frame["sex"].cat.codes.to_numpy()}
    known["age group"] = frame["age"].to_numpy() // 10
    known |= {name.removeprefix(PREFIX): frame[name].to_numpy() for name in map(str, frame) if name.startswith(PREFIX)}
    if config.table is not None and config.table.patient_prefix is not None:
        known["site"] = frame["patient"].str.partition("/")[0].to_numpy(dtype=object)
    if frame["image"].str.contains("/", regex=False).any():
        folders: dict[str, int] = {}
        codes = [folders.setdefault(image.rpartition("/")[0], len(folders)) for image in frame["image"].tolist()]
        if 2 <= len(folders) <= MOST_VALUES:
            known["folder"] = np.array(codes)
    if scan is not None:
        files = scan.frame
        for name, keys in (("file kind", ["format", "bits", "mode"]), ("image size", ["width", "height"])):
            groups = files.groupby(keys, dropna=False, observed=True, sort=False).ngroup()
            known[name] = np.where(scan.readable, groups.to_numpy(), -1)
    return known


def _encode(cells: np.ndarray) -> np.ndarray:
    """Codes int `[n]` of values, a missing one among them; the values of fewer than ten images are one."""
    codes, _ = pd.factorize(cells, use_na_sentinel=False)
    rare = np.bincount(codes) < _FEWEST
    return pd.factorize(np.where(rare[codes], -1, codes))[0] if len(codes) else codes
