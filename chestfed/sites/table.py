"""The validated table of a site, one row per image, and the label policy that makes it."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from chestfed.diseases import DISEASES
from chestfed.errors import Problem
from chestfed.sites.config import SPLITS, VIEWS, SiteConfig
from chestfed.sites.findings import BLANK, NEGATIVE, POSITIVE, UNCERTAIN, UNLABELLED

#: What a reader yields per image, besides one int8 finding per disease; `file` is the label file of `row`.
RAW_COLUMNS = ("image", "patient", "study", "view", "split", "sex", "age", "row", "file", "inverted")


@dataclass(frozen=True)
class SiteTable:
    """One site's images and labels. `frame` has the columns that `docs/design.md` lists.

    Patient and study names stay in here: they enter no digest, cache or message.
    """

    name: str
    title: str
    root: Path
    synthetic: bool
    diseases: tuple[str, ...]
    frame: pd.DataFrame

    def select(self, split: str | None = None, views: Collection[str] | None = None) -> SiteTable:
        """The rows of a split and of some views, in their order; may be empty."""
        kept = np.ones(len(self.frame), dtype=bool)
        if split is not None:
            kept &= (self.frame["split"] == split).to_numpy(dtype=bool)
        if views is not None:
            kept &= self.frame["view"].isin(list(views)).to_numpy(dtype=bool)
        return self.with_frame(self.frame[kept].reset_index(drop=True))

    def with_frame(self, frame: pd.DataFrame) -> SiteTable:
        """The same site with other rows."""
        return dataclasses.replace(self, frame=frame)

    def labels(self) -> np.ndarray:
        """Labels float32 `[n, diseases]`: 0, 1 or NaN."""
        return self.frame[list(self.diseases)].to_numpy(dtype=np.float32)

    def positive_ratios(self) -> np.ndarray:
        """Share of positives among the labelled rows, repeated ones counted, float64 `[diseases]`; NaN without labels."""
        labels, repeats = self.labels(), self.frame["repeats"].to_numpy()[:, None]
        labelled = (repeats * ~np.isnan(labels)).sum(axis=0)
        positive = (repeats * (labels == 1)).sum(axis=0)
        return np.divide(positive, labelled, out=np.full(labelled.shape, np.nan), where=labelled > 0)

    def label_digest(self) -> str:
        """Digest of splits, views, labels and repeats as a multiset: names and row order do not enter."""
        codes = [
            self.frame[column].cat.set_categories(known).cat.codes.to_numpy()
            for column, known in (("split", SPLITS), ("view", VIEWS))
        ]
        labels = np.nan_to_num(self.labels(), nan=-1.0).T
        rows = np.stack([*codes, *labels, self.frame["repeats"].to_numpy()]).astype("<i4").T
        rows = rows[np.lexsort(rows.T[::-1])]
        header = "\x1f".join(["site table", *self.diseases]).encode()
        return hashlib.blake2b(header + np.ascontiguousarray(rows).tobytes(), digest_size=16).hexdigest()


def check(raw: pd.DataFrame, config: SiteConfig) -> list[Problem]:
    """The problems of a reader's rows that concern several rows, or that any format can have."""
    return [
        *_blank_names(raw),
        *_escaping_paths(raw),
        *_duplicate_images(raw),
        *(_patients_in_two_splits(raw) if config.splits.official else []),
        *_nothing_left(raw, config),
    ]


def apply_policy(raw: pd.DataFrame, config: SiteConfig) -> pd.DataFrame:
    """The frame of a site table from checked raw rows: views kept, findings made 0, 1 or missing; `repeats` is 1."""
    kept = raw if config.views == "all" else raw[raw["view"].isin(config.views).to_numpy(dtype=bool)]
    kept = kept.reset_index(drop=True)
    split = kept["split"] if config.splits.official else pd.Series("train", index=kept.index)
    frame = pd.DataFrame(
        {
            "image": kept["image"].astype("str"),
            "patient": kept["patient"].astype("str"),
            "study": kept["study"].astype("str"),
            "view": pd.Categorical(kept["view"], categories=VIEWS),
            "split": pd.Categorical(split, categories=SPLITS),
            "sex": pd.Categorical(kept["sex"], categories=["F", "M"]),
            "age": kept["age"].to_numpy(dtype=np.float32),
            "row": kept["row"].to_numpy(dtype=np.int64),
            "inverted": kept["inverted"].to_numpy(dtype=bool),
        }
    )
    for disease in DISEASES:
        frame[disease] = _label(kept[disease].to_numpy(), config.uncertain[disease], config.blank[disease])
    frame["repeats"] = np.ones(len(frame), dtype=np.int64)
    return frame


def repeat_positives(frame: pd.DataFrame, config: SiteConfig) -> pd.DataFrame:
    """The same frame with `repeats`: 1, and in train for each up-sampled disease of a row its number of extra copies."""
    repeats = np.ones(len(frame), dtype=np.int64)
    train = (frame["split"] == "train").to_numpy(dtype=bool)
    for disease, copies in config.upsample.items():
        repeats += copies * (train & (frame[disease] == 1).to_numpy())
    return frame.assign(repeats=repeats)


def _label(findings: np.ndarray, uncertain: str, blank: str) -> np.ndarray:
    """Labels float32 [n] of findings int8 [n]."""
    value = {"positive": 1.0, "negative": 0.0, "missing": np.nan}
    table = {
        POSITIVE: 1.0,
        NEGATIVE: 0.0,
        UNCERTAIN: value[uncertain],
        BLANK: value[blank],
        UNLABELLED: np.nan,
    }
    labels = np.full(len(findings), np.nan, dtype=np.float32)
    for finding, label in table.items():
        labels[findings == finding] = label
    return labels


def _blank_names(raw: pd.DataFrame) -> list[Problem]:
    problems = []
    for column in ("image", "patient"):
        for place in np.flatnonzero(raw[column].isna()):
            problems.append(_at(raw, place, "blank name", f"no {column}", "fill the cell or remove the row"))
    return problems


def _escaping_paths(raw: pd.DataFrame) -> list[Problem]:
    paths = raw["image"].astype("str").str.replace("\\", "/", regex=False)
    bad = paths.str.startswith("/") | paths.str.contains(r"(?:^|/)\.\.(?:/|$)") | paths.str.match(r"^[A-Za-z]:")
    advice = "image paths are relative to the site's root and stay inside it; mend the row"
    return [
        _at(
            raw,
            place,
            "path outside the root",
            f"image '{raw['image'].iat[place]}' leaves the site's root",
            advice,
        )
        for place in np.flatnonzero(bad.to_numpy(dtype=bool) & raw["image"].notna().to_numpy())
    ]


def _duplicate_images(raw: pd.DataFrame) -> list[Problem]:
    problems = []
    named = raw["image"].notna().to_numpy()
    repeated = raw["image"].duplicated().to_numpy() & named
    first = raw[~raw["image"].duplicated() & named].set_index("image") if repeated.any() else raw
    for place in np.flatnonzero(repeated):
        earlier = first.loc[raw["image"].iat[place]]
        text = f"image '{raw['image'].iat[place]}' stands already at {earlier['file']}:{earlier['row']}"
        problems.append(_at(raw, place, "duplicate image", text, "keep one row per image"))
    return problems


def _patients_in_two_splits(raw: pd.DataFrame) -> list[Problem]:
    first = raw.drop_duplicates("patient").set_index("patient")
    home = raw["patient"].map(first["split"])
    strayed = (home != raw["split"]).to_numpy() & raw["patient"].notna().to_numpy()
    problems = []
    for place in np.flatnonzero(strayed & ~raw["patient"].where(strayed).duplicated().to_numpy()):
        earlier = first.loc[raw["patient"].iat[place]]
        text = (
            f"this row's patient is in '{raw['split'].iat[place]}' here "
            f"and in '{earlier['split']}' at {earlier['file']}:{earlier['row']}"
        )
        advice = "all images of a patient belong to one split; mend the split file, or set splits.official: false"
        problems.append(_at(raw, place, "patient in two splits", text, advice))
    return problems


def _nothing_left(raw: pd.DataFrame, config: SiteConfig) -> list[Problem]:
    if raw.empty or config.views == "all" or raw["view"].isin(config.views).any():
        return []
    found = ", ".join(f"{view} ({count})" for view, count in raw["view"].value_counts().items())
    text = f"no image has one of the views {', '.join(config.views)}; found: {found}"
    return [Problem("nothing left", raw["file"].iat[0], text, None, "change 'views' in the site's YAML")]


def _at(raw: pd.DataFrame, place: int, kind: str, message: str, advice: str) -> Problem:
    return Problem(kind, str(raw["file"].iat[place]), message, int(raw["row"].iat[place]), advice)
