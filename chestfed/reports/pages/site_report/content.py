"""The result of a check with what is shown of it: the site beside others, small images, and the first things to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any, Final

import numpy as np

from chestfed.core.console import plural
from chestfed.core.diseases import format_title
from chestfed.core.errors import ChestfedError
from chestfed.core.provenance import Origin
from chestfed.core.randomness import numpy_stream
from chestfed.data.checks import CheckReport, check_site
from chestfed.data.checks.problems import FIRST, PICTURES_READ, REMARK, Inspection, Problems, printable
from chestfed.data.checks.site_probe import SiteProbe, probe_sites, shrink
from chestfed.data.images.decode import decode
from chestfed.data.images.preprocess import Preprocess
from chestfed.data.sites.config import SiteConfig
from chestfed.data.sites.table import count_labels
from chestfed.reports.pages.drift import Drift, drift

#: Images that are shown, and pixels of their sides.
SHOWN, SIDE = 8, 128
#: Images of a site that the site probe decodes.
PROBED: Final = 200
#: Ages from here on are one group: higher ones can identify a person.
OLDEST: Final = 90
_FIRST_THINGS: Final = 5
_ROWS: Final = 12  # runs of rows of a kind of problem that are named
_REMARKS: Final = (REMARK, PICTURES_READ)  # they say how the site was read, and need no action


@dataclass(frozen=True, eq=False)
class Profile:
    """Values that are compared between sites."""

    name: str
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
    """An image without a name: uint8 `[SIDE, SIDE]`, and its split and positive diseases in words."""

    pixels: np.ndarray
    label: str


@dataclass(frozen=True, eq=False)
class SiteReport:
    """A checked site, ready to be shown."""

    config: SiteConfig
    check: CheckReport

    @property
    def origin(self) -> Origin:
        """Origin that tables mark it with."""
        return Origin.of([self.check.synthetic])

    @cached_property
    def profile(self) -> Profile:
        """The site's part of the comparison."""
        return _describe(self.check.inspection)

    @cached_property
    def other_sites(self) -> tuple[Profile, ...]:
        """The sites that it is compared with."""
        return tuple(_describe(other) for other in self.check.others.values())

    @cached_property
    def probe(self) -> SiteProbe | None:
        """Accuracy of naming the sites by small images; None unless two have enough patients with readable images."""
        images, patients = {}, {}
        for site in (self.check.inspection, *self.check.others.values()):
            small = _draw_small(site)
            people = site.survey.table.frame["patient"].iloc[list(small)].tolist()
            if len(set(people)) > 1:
                images[site.survey.table.name], patients[site.survey.table.name] = np.stack([*small.values()]), people
        return probe_sites(images, patients) if len(images) > 1 else None

    def name_site(self, site: Profile) -> str:
        """A site's short name; on the report of a real site, a synthetic one is marked."""
        return f"{site.name} (synthetic)" if site.synthetic and not self.check.synthetic else site.name

    @property
    def verdict(self) -> str:
        """Passed or failed, with the numbers of errors and warnings."""
        word = "passed" if self.check.passed else "FAILED"
        return f"{word}: {plural(len(self.check.errors), 'error')}, {plural(len(self.check.warnings), 'warning')}"

    @property
    def headline(self) -> str:
        """Images, patients, ages and positives in one line."""
        counts = self.check.counts
        ages = counts.ages
        parts = [plural(counts.images, "image"), plural(counts.patients, "patient")]
        if ages.youngest is not None and ages.oldest is not None:
            parts.append(f"{years(ages.youngest)} to {years(ages.oldest)} years")
        labels = counts.splits[-1].labels if counts.splits else {}
        positives = ", ".join(f"{format_title(name)} {counts.positive:,}" for name, counts in labels.items())
        parts += [f"positives: {positives}"] if positives else []
        return "; ".join(parts)

    def first_things(self, *, named: bool) -> list[str]:
        """At most five kinds of problems to look at first, with their numbers; if `named`, where the first one is."""
        kinds, errors = self.check.kinds, self.check.errors.kinds
        ranks = {kind: (kind not in errors, FIRST.index(kind) if kind in FIRST else len(FIRST)) for kind in kinds}
        words = [kind for kind in sorted(kinds, key=ranks.__getitem__) if kind not in _REMARKS][:_FIRST_THINGS]
        first = {kind: next((item for item in kinds[kind] if item.row is not None), kinds[kind][0]) for kind in words}
        at = {kind: item.file if item.row is None else f"{item.file}:{item.row}" for kind, item in first.items()}
        where = {kind: f", first at {printable(at[kind])}" if named else "" for kind in words}
        return [f"{kind} ({len(kinds[kind]):,}){where[kind]}" for kind in words]

    def thumbnails(self) -> tuple[Thumbnail, ...]:
        """Some images drawn at random from the readable ones without declared text; re-encoded from pixels."""
        from PIL import Image

        table, scan = self.check.inspection.survey.table, self.check.inspection.scan
        if scan is None:
            return ()
        hidden = scan.frame[["blank", "text", "overlays"]].any(axis=1).to_numpy(dtype=bool)
        images, stored, splits = table.frame["image"].tolist(), table.stored(), table.frame["split"].tolist()
        labels = table.labels()
        shown: list[Thumbnail] = []
        candidates = np.flatnonzero(scan.readable & ~hidden)
        for row in numpy_stream(0, "pictures of a card", table.name).permutation(candidates).tolist():
            if len(shown) == SHOWN:
                break
            try:
                gray = decode(table.root / images[row], stored[row])
            except (ChestfedError, OSError):  # changed or removed since it was examined
                continue
            small = Image.fromarray(Preprocess().apply(gray)).resize((SIDE, SIDE), Image.Resampling.BOX)
            positive = [
                format_title(name) for name, value in zip(table.diseases, labels[row], strict=True) if value == 1
            ]
            words = ", ".join(positive) or ("no label" if np.isnan(labels[row]).all() else "none of the diseases")
            shown.append(Thumbnail(np.asarray(small), f"{splits[row]}: {words}"))
        return tuple(shown)


def make_report(
    config: SiteConfig, data_root: Path, *, against: Sequence[SiteConfig] = (), **options: Any
) -> SiteReport:
    """Check a site, and compare it with others below the same data root; `options` are those of `check_site`.

    Raises `ChestfedError` if a site is given twice, or results cannot be saved.
    """
    names = [config.site, *(other.site for other in against)]
    for name in names:
        if names.count(name) > 1:
            raise ChestfedError(
                f"site '{name}' is given twice: a site is not compared with itself; "
                "two parts of one hospital need two names ('site' in their YAMLs)",
                kind="site given twice",
                site=name,
            )
    return SiteReport(config, check_site(config, data_root, against=against, **options))


def locate(problems: Problems, label_files: Mapping[str, Sequence[str]]) -> str:
    """The rows of problems by the role of their label file in the YAML: neither messages nor files are named."""
    rows: dict[str, list[np.ndarray]] = {}
    for file, numbers in problems.list_rows().items():
        rows.setdefault(_find_role(file, label_files), []).append(numbers)
    parts = [f"{role}: {row_ranges(np.concatenate(numbers))}" for role, numbers in rows.items()]
    return "; ".join(parts) or "no single row"


def row_ranges(numbers: Sequence[int] | np.ndarray) -> str:
    """`rows 2-5, 9`, and how many more if they are many."""
    ordered = np.unique(numbers)
    runs = np.split(ordered, np.flatnonzero(np.diff(ordered) > 1) + 1)
    shown = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs[:_ROWS])
    rest = sum(map(len, runs[_ROWS:]))
    return f"row{'s' if len(ordered) > 1 else ''} {shown}{f' and {rest:,} more' if rest else ''}"


def years(age: float) -> str:
    """An age, the highest ones as one group."""
    return f"{OLDEST} or more" if age >= OLDEST else f"{age:g}"


def _find_role(file: str, label_files: Mapping[str, Sequence[str]]) -> str:
    name = PurePath(file.removesuffix(".gz"))
    return next((role for role, patterns in label_files.items() if any(map(name.match, patterns))), "label file")


def _draw_small(site: Inspection) -> dict[int, np.ndarray]:
    """Row -> small image of at most `PROBED` readable ones, drawn at random."""
    table, small = site.survey.table, dict[int, np.ndarray]()
    if site.scan is None:
        return small
    images, stored = table.frame["image"].tolist(), table.stored()
    candidates = np.flatnonzero(site.scan.readable & ~site.scan.frame["blank"].to_numpy(dtype=bool))
    for row in numpy_stream(0, "site probe of a card", table.name).permutation(candidates)[:PROBED].tolist():
        try:
            small[row] = shrink(Preprocess().apply(decode(table.root / images[row], stored[row])))
        except (ChestfedError, OSError):  # changed or removed since it was examined
            continue
    return small


def _describe(site: Inspection) -> Profile:
    table, scan = site.survey.table, site.scan
    counts = zip(table.diseases, count_labels(table.labels()), strict=True)
    readable = 0 if scan is None else int(scan.readable.sum())
    gray = scan.gray_levels if scan is not None and readable else None
    prevalence = {disease: label_counts.prevalence for disease, label_counts in counts}
    return Profile(table.name, table.synthetic, readable, gray, prevalence)
