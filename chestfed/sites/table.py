"""The validated table of a site, one row per image, and the label policy that makes it."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from chestfed.core.errors import ChestfedError, Problem
from chestfed.core.provenance import Origin
from chestfed.images.levels import InvertedBy, Stored
from chestfed.sites.reader import BLANK, NEGATIVE, POSITIVE, RAW_COLUMNS, SPLITS, UNCERTAIN, UNLABELLED, VIEWS

if TYPE_CHECKING:
    from chestfed.sites.config import SiteConfig

#: Views that a mean frontal film is compared with.
_FRONTAL: Final = ("pa", "ap", "frontal", "unknown")
#: The kind of problem of an image that is not below the site's root.
OUTSIDE = "path outside the root"


@dataclass(frozen=True, eq=False)
class SiteTable:
    """One site's images and labels. `frame` has the columns that `docs/design.md` lists.

    `notes` say what the labels do not show by themselves, such as terms that nobody has confirmed yet. `inverted_by`
    and `bits` are the configuration's `pictures`. Patient and study names stay in here: they enter no digest, cache or
    message.
    """

    name: str
    title: str
    root: Path
    synthetic: bool
    diseases: tuple[str, ...]
    frame: pd.DataFrame = field(repr=False)
    notes: tuple[str, ...] = ()
    inverted_by: InvertedBy = "column"
    bits: int | None = None

    @property
    def origin(self) -> Origin:
        """Patients or a program."""
        return Origin.of([self.synthetic])

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

    def about(self, diseases: Sequence[str]) -> SiteTable:
        """The same rows with these diseases; those that the site does not label are missing."""
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

    def stored(self) -> list[Stored]:
        """What the site says of each row's gray levels: who decides on its polarity is `inverted_by`."""
        column = self.frame["inverted"].to_numpy() & (self.inverted_by != "never")
        by_picture = self.frame["view"].isin(_FRONTAL).to_numpy() & (self.inverted_by == "picture")
        return [Stored(*row, self.bits) for row in zip(column.tolist(), by_picture.tolist(), strict=True)]

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


_CODES: Final = (POSITIVE, NEGATIVE, UNCERTAIN, BLANK, UNLABELLED)


def check_rows(raw: Any, reader: str, diseases: Sequence[str], *, cells: bool = True) -> None:
    """Check the form of what a reader returned: a mistake there is the reader's, not one in the site's files.

    Without `cells` only the columns: rows in which the reader found problems may hold anything.

    Raises
    ------
    ChestfedError
        With the name of the reader and all that is wrong.
    """
    mistakes = [f"read() returned {type(raw).__name__}, not a pandas frame"]
    if isinstance(raw, pd.DataFrame):
        wanted = [*RAW_COLUMNS, *diseases]
        mistakes = [f"no column '{column}'" for column in wanted if column not in raw.columns]
        mistakes += [f"duplicate column '{column}'" for column in wanted if list(raw.columns).count(column) > 1]
        mistakes = mistakes or (_wrong_cells(raw, diseases) if cells else [])
    if mistakes:
        raise ChestfedError(
            f"reader '{reader}' returned invalid rows: {'; '.join(mistakes)}. This is a bug in the reader; "
            "docs/own_reader.md says what it must return"
        )


def _wrong_cells(raw: pd.DataFrame, diseases: Sequence[str]) -> list[str]:
    mistakes = []
    for column, words in (("view", VIEWS), ("split", SPLITS), ("sex", ("F", "M"))):
        known = raw[column].isin(words) | (raw[column].isna() if column == "sex" else False)
        if not known.all():
            mistakes.append(f"{column}: {int((~known).sum())} cells are not one of {', '.join(words)}")
    if not (pd.api.types.is_integer_dtype(raw["row"]) or raw.empty) or (raw["row"] < 1).any():
        mistakes.append("row: not integers from 1")
    if not (pd.api.types.is_bool_dtype(raw["inverted"]) or raw.empty):
        mistakes.append("inverted: not bool")
    if not (pd.api.types.is_numeric_dtype(raw["age"]) or raw["age"].isna().all()):
        mistakes.append("age: not numbers")
    for column in ("image", "patient", "study", "file"):
        if not raw[column].map(lambda cell: isinstance(cell, str) or pd.isna(cell)).all():
            mistakes.append(f"{column}: not text")
    for disease in diseases:
        if not np.isin(raw[disease].to_numpy(), _CODES).all():
            mistakes.append(f"{disease}: not findings, which are {', '.join(map(str, map(int, _CODES)))}")
    return mistakes


def check(raw: pd.DataFrame, config: SiteConfig) -> list[Problem]:
    """The problems of a reader's rows that concern several rows, or that any format can have."""
    return [
        *_blank_names(raw),
        *_escaping_paths(raw),
        *_duplicate_images(raw),
        *(_patients_in_two_splits(raw) if config.splits.official else []),
    ]


def sound_rows(raw: pd.DataFrame) -> np.ndarray:
    """The rows that are valid by themselves, bool `[n]`: named, inside the root, in a split, not a duplicate."""
    named = raw[["image", "patient"]].notna().all(axis=1).to_numpy(dtype=bool)
    sound = named & ~leaves_root(raw["image"]).to_numpy(dtype=bool) & raw["split"].notna().to_numpy(dtype=bool)
    return sound & (_first_places(raw["image"]) == np.arange(len(raw)))


def behind_links(raw: pd.DataFrame, strays: np.ndarray) -> list[Problem]:
    """The problems of the rows whose images are behind a link out of the root, bool `[n]`."""
    text, advice = "the image's path goes through a link out of the site's root", "put the images below the root"
    return _problems(raw, strays, OUTSIDE, lambda _: text, advice)


def leaves_root(images: pd.Series) -> pd.Series:
    """Which of the paths, taken by their names alone, leave the root that they are relative to."""
    paths = images.fillna("").astype("str").str.replace("\\", "/", regex=False)
    return paths.str.contains(r"(?:^|/)(?:/|[A-Za-z]:|\.\.(?:/|$))")


def nothing_left(raw: pd.DataFrame, config: SiteConfig) -> list[Problem]:
    """The problem that the views of the configuration keep no row, if so."""
    if raw.empty or config.views == "all" or raw["view"].isin(config.views).any():
        return []
    found = ", ".join(f"{view} ({count})" for view, count in raw["view"].value_counts().items())
    text = f"no image has one of the views {', '.join(config.views)}; found: {found}"
    return [Problem("nothing left", str(raw["file"].iat[0]), text, None, "change 'views' in the site's YAML")]


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
    for disease in config.diseases:
        frame[disease] = _label(kept[disease].to_numpy(), config.uncertain[disease], config.blank[disease])
    frame["repeats"] = np.ones(len(frame), dtype=np.int64)
    return frame


def repeat_positives(frame: pd.DataFrame, config: SiteConfig) -> pd.DataFrame:
    """The frame with `repeats`: 1, and in train for each up-sampled disease of a row its number of extra copies."""
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
    advice = "fill the cell or remove the row"
    images = _problems(raw, raw["image"].isna().to_numpy(), "blank name", lambda _: "no image name", advice)
    patients = _problems(raw, raw["patient"].isna().to_numpy(), "blank name", lambda _: "no patient", advice)
    return images + patients


def _escaping_paths(raw: pd.DataFrame) -> list[Problem]:
    bad = leaves_root(raw["image"]).to_numpy(dtype=bool)
    advice = "image paths are relative to the site's root and stay inside it; fix the row"
    return _problems(raw, bad, OUTSIDE, lambda _: "the image's path leaves the site's root", advice)


def _duplicate_images(raw: pd.DataFrame) -> list[Problem]:
    first = _first_places(raw["image"])
    bad = (first != np.arange(len(raw))) & raw["image"].notna().to_numpy()

    def tell(place: int) -> str:
        earlier = int(first[place])
        return f"duplicate of the image at {_where(raw, earlier)}"

    return _problems(raw, bad, "duplicate image", tell, "keep one row per image")


def _patients_in_two_splits(raw: pd.DataFrame) -> list[Problem]:
    """One problem per patient, at the first row that is elsewhere."""
    first = _first_places(raw["patient"])
    split = raw["split"].to_numpy(dtype=object)
    strayed = (split != split[first]) & raw[["patient", "split"]].notna().all(axis=1).to_numpy()
    strayed &= ~raw["patient"].where(strayed).duplicated().to_numpy()

    def tell(place: int) -> str:
        earlier = int(first[place])
        return f"this row's patient is in '{split[place]}' here and in '{split[earlier]}' at {_where(raw, earlier)}"

    advice = (
        "all images of a patient belong to one split: `chestfed site check YAML --fix-splits` writes splits where they "
        "do, or set splits.official: false"
    )
    return _problems(raw, strayed, "patient in two splits", tell, advice)


def _problems(raw: pd.DataFrame, bad: np.ndarray, kind: str, tell: Callable[[int], str], advice: str) -> list[Problem]:
    """One problem per row where `bad`; `tell(place)` is its message."""
    places = np.flatnonzero(bad)
    files, rows = raw["file"].iloc[places].tolist(), raw["row"].iloc[places].tolist()
    return [
        Problem(kind, file, tell(place), row, advice)
        for file, row, place in zip(files, rows, places.tolist(), strict=True)
    ]


def _first_places(names: pd.Series) -> np.ndarray:
    """For each row the place of the first row with the same name, int `[n]`."""
    codes, _ = pd.factorize(names, use_na_sentinel=False)
    _, first, of_row = np.unique(codes, return_index=True, return_inverse=True)
    return first[of_row]


def _where(raw: pd.DataFrame, place: int) -> str:
    return f"{raw['file'].iat[place]}:{raw['row'].iat[place]}"
