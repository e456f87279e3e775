"""The validated table of a site, one row per image, and counts of its labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from chestfed.core.provenance import Origin
from chestfed.data.images.levels import Stored
from chestfed.data.sites.config import Pictures


@dataclass(frozen=True, eq=False)
class SiteTable:
    """One site's images and labels. `frame` has the columns that `docs/design.md` lists.

    `notes` say what the labels do not show by themselves, such as terms that are not confirmed yet;
    `not_understood` counts labels that are missing because the meaning of a cell is unknown, as reason -> disease ->
    images of the label files. `pictures` is the configuration's; `left_out` counts the rows that its `rows` and
    `images.unmatched` drop, by key, and `other_views` the images whose view it does not keep. `columns` says what each
    column of a hospital's own table is read as; of one that is not read, nothing. Patient and study names stay in here:
    they enter no cache or message.
    """

    name: str
    title: str
    root: Path
    synthetic: bool
    diseases: tuple[str, ...]
    frame: pd.DataFrame = field(repr=False)
    notes: tuple[str, ...] = ()
    pictures: Pictures = field(default_factory=Pictures)
    left_out: Mapping[str, int] = field(default_factory=dict)
    other_views: int = 0
    not_understood: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: Whether the files are those of bundled phantoms, by their digest: names may be made with the published key.
    phantoms: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    part_of: str = ""  #: the site that this is a part of
    draws_discarded: int = 0  #: draws of the partition before the one that made this part

    @property
    def cache_name(self) -> str:
        """The site whose cache has the decoded images."""
        return self.part_of or self.name

    def as_cached(self) -> SiteTable:
        """The table, with the name of the site whose cache has the decoded images."""
        return replace(self, name=self.cache_name)

    @property
    def origin(self) -> Origin:
        """Patients or a program."""
        return Origin.of([self.synthetic])

    def select(self, split: str | None = None, views: Collection[str] | None = None) -> SiteTable:
        """The rows of a split and of some views, in their order; may be empty."""
        mask = np.ones(len(self.frame), dtype=bool)
        if split is not None:
            mask &= (self.frame["split"] == split).to_numpy(dtype=bool)
        if views is not None:
            mask &= self.frame["view"].isin(list(views)).to_numpy(dtype=bool)
        return self.with_frame(self.frame[mask].reset_index(drop=True))

    def with_frame(self, frame: pd.DataFrame) -> SiteTable:
        """Site table with other rows."""
        return dataclasses.replace(self, frame=frame)

    def about(self, diseases: Sequence[str]) -> SiteTable:
        """Site table with these diseases; those that the site does not label are missing."""
        blank = {disease: np.float32(np.nan) for disease in diseases if disease not in self.diseases}
        return dataclasses.replace(self, diseases=tuple(diseases), frame=self.frame.assign(**blank))

    def labels(self) -> np.ndarray:
        """Labels float32 `[n, diseases]`: 0, 1 or NaN."""
        return self.frame[list(self.diseases)].to_numpy(dtype=np.float32)

    def positive_ratios(self) -> np.ndarray:
        """Share of positives among labeled rows, with repeats: float64 `[diseases]`, NaN without labels."""
        labels, repeats = self.labels(), self.frame["repeats"].to_numpy()[:, None]
        labeled = (repeats * ~np.isnan(labels)).sum(axis=0)
        positive = (repeats * (labels == 1)).sum(axis=0)
        return np.divide(positive, labeled, out=np.full(labeled.shape, np.nan), where=labeled > 0)

    def frontal(self) -> np.ndarray:
        """Which rows may be compared with a mean frontal film, bool `[n]`: an unknown view may."""
        return self.frame["view"].isin(("pa", "ap", "frontal", "unknown")).to_numpy(dtype=bool)

    def stored(self) -> list[Stored]:
        """Properties of each row's file; `pictures.inverted` decides on the polarity."""
        pictures = self.pictures
        column = self.frame["inverted"].to_numpy() & (pictures.inverted != "never")
        by_picture = self.frontal() & (pictures.inverted == "picture")
        parts = None if pictures.body_parts == "all" else tuple(pictures.body_parts)
        policy = (pictures.bits, parts, pictures.for_processing)
        kinds = {
            (inverted, decided): Stored(inverted, decided, *policy)
            for inverted in (False, True)
            for decided in (False, True)
        }
        return [kinds[row] for row in zip(column.tolist(), by_picture.tolist(), strict=True)]


@dataclass(frozen=True)
class LabelCounts:
    """Labels of a disease; `prevalence` is the share of positives among the labeled images, None without any."""

    positive: int
    negative: int
    missing: int
    prevalence: float | None


def count_labels(labels: np.ndarray) -> list[LabelCounts]:
    """Count labels `[n, J]` in {0, 1, NaN} of each disease."""
    counts = []
    for column in labels.T:
        positive, negative = int((column == 1).sum()), int((column == 0).sum())
        labeled = positive + negative
        ratio = positive / labeled if labeled else None
        counts.append(LabelCounts(positive, negative, len(column) - labeled, ratio))
    return counts
