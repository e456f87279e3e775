"""A site for use in Python: its table, and its images as a PyTorch dataset."""

from __future__ import annotations

import operator
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from chestfed.core.bundled import site_file
from chestfed.core.config import as_path, listed
from chestfed.core.errors import ConfigError
from chestfed.core.python_words import speak_python
from chestfed.data.sites.config import SiteConfig, load_site_config
from chestfed.data.sites.opening import open_site
from chestfed.data.sites.reader import SPLITS, VIEWS
from chestfed.data.sites.table import SiteTable

if TYPE_CHECKING:
    from torch import Tensor

    from chestfed.data.images.dataset import ImageDataset

#: Other names of the splits.
_SPLITS: Final = {"validation": "valid", "val": "valid", "training": "train", "testing": "test"}
#: A word for several views.
_FRONTAL: Final = ("pa", "ap", "frontal")


@dataclass(frozen=True, eq=False)
class Site:
    """One site, opened: its labels are read and checked; images are decoded when a dataset is asked for.

    Attributes
    ----------
    config
        The site's YAML.
    site_table
        The validated rows, with the methods that the rest of chestfed uses.
    cache
        The folder that keeps decoded images. It holds no names of patients or files.
    """

    config: SiteConfig
    site_table: SiteTable
    cache: Path

    def __repr__(self) -> str:
        return f"Site('{self.name}', {len(self.table):,} images, {', '.join(self.diseases)})"

    @property
    def name(self) -> str:
        """The short name."""
        return self.site_table.name

    @property
    def diseases(self) -> tuple[str, ...]:
        """Diseases with labels."""
        return self.site_table.diseases

    @property
    def table(self) -> pd.DataFrame:
        """One row per image, columns as in `docs/design.md`. It names patients and files: keep it where they are."""
        return self.site_table.frame

    @speak_python
    def dataset(
        self,
        split: str = "train",
        size: int | Sequence[int] = 320,
        views: str | Sequence[str] | None = None,
        *,
        transform: Callable[[Tensor], Any] | None = None,
        augment: bool = False,
        skip_unreadable: bool = False,
        workers: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> ImageDataset:
        """The images of a split, for a `torch.utils.data.DataLoader`; what the cache lacks is decoded now.

        Parameters
        ----------
        split
            train, valid (or validation), test, or all.
        size
            Side of the square images in pixels, as 224 or (224, 224).
        views
            A view, several, or `frontal` for all frontal ones; default: the views that the YAML keeps.
        transform
            Called with each image float32 `[3, size, size]`, which is normalized with ImageNet's mean and deviation.
        augment
            Apply chestfed's random rotation, shift and scale.
        skip_unreadable
            Leave out images that are missing or cannot be decoded, instead of raising an error.
        workers, progress
            Processes that decode, one per core by default; `progress(done, total)` is called meanwhile.

        Raises
        ------
        ConfigError
            For an unknown split or view, or if no image is left.
        SiteError
            All missing and unreadable images.
        """
        from chestfed.data.images.augment import Augment
        from chestfed.data.images.cache import fill_cache
        from chestfed.data.images.dataset import ImageDataset
        from chestfed.data.images.preprocess import Preprocess

        side = _read_side(size)
        places = self._select_rows(_SPLITS.get(split, split), views)
        frame = self.table.iloc[places].reset_index(drop=True)
        images = fill_cache(
            self.site_table.with_frame(frame),
            self.cache,
            Preprocess(size=side),
            workers=workers,
            skip_unreadable=skip_unreadable,
            progress=progress,
        )
        patients, _ = pd.factorize(self.table["patient"])
        labels = self.site_table.labels()[places]
        return ImageDataset(
            images, self.diseases, labels, patients[places], places, Augment() if augment else None, transform
        )

    def _select_rows(self, split: str, views: str | Sequence[str] | None) -> np.ndarray:
        """Rows of the table, int `[n]`."""
        if split not in (*SPLITS, "all"):
            raise ConfigError(f"unknown split '{split}'; choose one of {', '.join(SPLITS)}, all")
        named = VIEWS if views is None else (views,) if isinstance(views, str) else tuple(views)
        chosen = _FRONTAL if views == "frontal" else named
        if unknown := [view for view in chosen if view not in VIEWS]:
            raise ConfigError(f"unknown view '{unknown[0]}'; choose among {', '.join(VIEWS)}")
        mask = self.table["view"].isin(chosen) & ((self.table["split"] == split) | (split == "all"))
        if not mask.any():
            existing = Counter(zip(self.table["split"], self.table["view"], strict=True))
            counts = ", ".join(f"{count:,} {name} {view}" for (name, view), count in existing.items())
            lacking = f"no image of split '{split}' and views {', '.join(chosen)}"
            raise ConfigError(f"site '{self.name}' has {lacking}; it has {counts}", kind="no such image", split=split)
        return np.flatnonzero(mask.to_numpy(dtype=bool))


def _read_side(size: Any) -> int:
    """The side in pixels, from a number or from two equal ones."""
    sides: list[Any] = list(size) if isinstance(size, Sequence) or hasattr(size, "__len__") else [size]
    try:
        numbers = {operator.index(side) for side in sides}
    except TypeError:
        numbers = set()
    if len(numbers) != 1 or len(sides) > 2:
        text = "give one whole number, or two equal ones: images are square"
        raise ConfigError(f"size={size!r}: {text}", kind="not a size", key="size")
    (side,) = numbers
    if side not in range(32, 2049):
        raise ConfigError(f"size={size!r}: choose 32 to 2048 pixels", kind="not a size", key="size")
    return side


@speak_python
def load_site(
    config: str | Path, data: str | Path | None = None, *, cache: str | Path = "auto", overrides: Sequence[str] = ()
) -> Site:
    """Open a site: read and check its label files. No image is decoded yet.

    Parameters
    ----------
    config
        The site's YAML; `site_configs/NAME.yaml` is also found where it is not in the working folder.
    data
        The folder that holds the sites' folders, as for `--data`; default: `$CHESTFED_DATA`.
    cache
        Folder for decoded images; `auto`: `cache` in the working folder if it holds the site, else beside the data.
    overrides
        Keys of the YAML, as for `--set`: `["uncertain=missing"]`.

    Raises
    ------
    ConfigError
        If the YAML is invalid, or it is not known where the files are.
    SiteError
        All problems of the label files in one report.
    """
    loaded = load_site_config(site_file(config), listed(overrides, "overrides", str))
    data = data if data is not None else os.environ.get("CHESTFED_DATA")
    if data is None and not loaded.has_place:
        raise ConfigError(
            f"where are the files of site '{loaded.site}'? Give the folder that contains its folder: "
            "load_site(..., data=DIR), or set $CHESTFED_DATA",
            kind="no data root",
            site=loaded.site,
        )
    return Site(loaded, open_site(loaded, as_path(data or ".", "data")), as_path(cache, "cache"))
