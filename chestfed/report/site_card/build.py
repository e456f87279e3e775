"""The content of a card as plain values, without any name of a patient, a study or an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from chestfed.core.errors import ChestfedError
from chestfed.core.provenance import Origin
from chestfed.core.randomness import numpy_stream
from chestfed.images.decode import decode
from chestfed.images.preprocess import Preprocess
from chestfed.inspection import CheckReport, check_site
from chestfed.inspection.check import Progress
from chestfed.inspection.letters import LetterCounts, LetterScan, scan_letters
from chestfed.inspection.problems import Looked
from chestfed.report.drift import Drift, drift
from chestfed.report.figures import Picture
from chestfed.results.grid import Grid
from chestfed.sites.config import SiteConfig
from chestfed.sites.label_counts import count_labels

#: Images that are shown, and pixels of their sides.
SHOWN, SIDE = 8, 128


@dataclass(frozen=True, eq=False)
class Profile:
    """What is compared between sites."""

    name: str
    title: str
    synthetic: bool
    images: int  #: readable images
    #: Pixels per bin of all preprocessed images, int64 `[64]`; None without a readable image.
    gray_levels: np.ndarray | None
    #: Per disease the share of positives among the labeled images of all splits; None without labels.
    prevalence: Mapping[str, float | None]

    def drift_to(self, other: Profile) -> Drift | None:
        """Distance to another site; None if one of the two has no readable images."""
        if self.gray_levels is None or other.gray_levels is None:
            return None
        return drift(self.gray_levels.tolist(), other.gray_levels.tolist(), self.prevalence, other.prevalence)

    def shared(self, other: Profile) -> list[str]:
        """The diseases that both label."""
        return [name for name, share in self.prevalence.items() if None not in (share, other.prevalence.get(name))]


@dataclass(frozen=True, eq=False)
class Thumbnail:
    """An image without a name: uint8 `[SIDE, SIDE]`, its split, its positive diseases, and whether any is labeled."""

    pixels: np.ndarray
    split: str
    positive: tuple[str, ...]
    labeled: bool


@dataclass(frozen=True, eq=False)
class SiteCard:
    """A site, ready to be written."""

    config: SiteConfig
    report: CheckReport
    profile: Profile
    others: tuple[Profile, ...]
    letters: LetterCounts | None  #: of text in the images; None if no image was examined
    thumbnails: tuple[Thumbnail, ...]
    with_pictures: bool  #: whether images may be shown

    @property
    def synthetic(self) -> bool:
        """Whether the site has no patients."""
        return self.report.synthetic

    @property
    def origin(self) -> Origin:
        """The same, as tables mark it."""
        return Origin.of([self.report.synthetic])


@dataclass(frozen=True)
class Section:
    """A part of the card: sentences, tables, figures, and remarks to read them by."""

    name: str
    title: str
    words: tuple[str, ...] = ()
    tables: tuple[Grid, ...] = ()
    figures: tuple[Picture, ...] = ()
    remarks: tuple[str, ...] = ()


def make_card(
    config: SiteConfig,
    data_root: Path,
    *,
    against: Sequence[SiteConfig] = (),
    pictures: bool | None = None,
    cache_root: Path = Path("cache"),
    workers: int | None = None,
    progress: Progress | None = None,
) -> SiteCard:
    """Check a site, look for text in its images, and compare it with the others.

    Raises `ChestfedError` if nothing of the site can be read, or a site is given twice.

    `against` are other sites below the same data root. A few small images are on the card if `pictures`; None: only of
    a synthetic site.
    """
    names = [config.site, *(other.site for other in against)]
    for name in names:
        if names.count(name) > 1:
            raise ChestfedError(
                f"site '{name}' is given twice: a site is not compared with itself; "
                "two parts of one hospital need two names ('site' in their YAMLs)"
            )
    report = check_site(config, data_root, against=against, cache_root=cache_root, workers=workers, progress=progress)
    if report.looked.survey.table.frame.empty:
        first = f": {report.errors[0]}" if report.errors else ": its label files have no rows that are kept"
        raise ChestfedError(
            f"nothing of site '{config.site}' can be read, so there is no card{first}. "
            "`chestfed site check` with the same YAML and --data lists all problems"
        )
    looking = None if progress is None else partial(progress, f"text in images of {config.site}")
    scan = report.looked.scan
    letters = None if scan is None else scan_letters(scan, cache_root, workers=workers, progress=looking)
    shown = report.synthetic if pictures is None else pictures
    return SiteCard(
        config,
        report,
        _profile(report.looked),
        tuple(_profile(other) for other in report.others.values()),
        None if letters is None else letters.counts(),
        _thumbnails(letters) if shown and letters is not None else (),
        shown,
    )


def _profile(looked: Looked) -> Profile:
    table, scan = looked.survey.table, looked.scan
    counts = zip(table.diseases, count_labels(table.labels()), strict=True)
    prevalence = {disease: found.prevalence for disease, found in counts}
    readable = 0 if scan is None else int(scan.readable.sum())
    gray = scan.histograms.sum(axis=0, dtype=np.int64) if scan is not None and readable else None
    return Profile(table.name, table.title, table.synthetic, readable, gray, prevalence)


def _thumbnails(letters: LetterScan) -> tuple[Thumbnail, ...]:
    """Some images drawn at random from those without a flag; re-encoded from pixels, so no metadata is carried over."""
    from PIL import Image

    table = letters.scan.table
    images, stored, splits = table.frame["image"].tolist(), table.stored(), table.frame["split"].tolist()
    labels = table.labels()
    found: list[Thumbnail] = []
    for row in numpy_stream(0, "pictures of a card", table.name).permutation(letters.presentable).tolist():
        if len(found) == SHOWN:
            break
        try:
            gray = decode(table.root / images[row], stored[row])
        except (ChestfedError, OSError):  # changed or removed since it was looked at
            continue
        small = Image.fromarray(Preprocess().apply(gray)).resize((SIDE, SIDE), Image.Resampling.BOX)
        positive = tuple(name for name, value in zip(table.diseases, labels[row], strict=True) if value == 1)
        labeled = not bool(np.isnan(labels[row]).all())
        found.append(Thumbnail(np.asarray(small), str(splits[row]), positive, labeled))
    return tuple(found)
