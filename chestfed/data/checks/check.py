"""All problems of a site in one report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from chestfed.core.diseases import TITLES, format_title, nearest_hint
from chestfed.core.errors import Problem
from chestfed.data.checks.counts import ALL_SPLITS, Counts, count
from chestfed.data.checks.free_columns import find_normal_with_finding, read_free_columns
from chestfed.data.checks.headers import compare_headers
from chestfed.data.checks.idle_images import describe_idle_images
from chestfed.data.checks.persons import find_several_persons
from chestfed.data.checks.pictures import damaged_files, gray_level_problems, repeated_pictures, shared_pictures
from chestfed.data.checks.problems import (
    NO_LABELS,
    NO_VIEWS,
    ONE_CLASS,
    OPPOSITE,
    OTHER_SITE,
    REMARK,
    SITES_SHARE_PATIENT,
    UNREAD,
    Inspection,
    Problems,
    split_by_severity,
)
from chestfed.data.checks.scan import scan_images
from chestfed.data.checks.shortcuts import Shortcuts, measure_shortcuts
from chestfed.data.sites.config import SiteConfig
from chestfed.data.sites.opening import survey_site
from chestfed.data.sites.tables.values import find_opposites

#: Callback with the step, how much is done, and the total.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class CheckReport:
    """The result of a check."""

    site: str
    title: str
    synthetic: bool
    errors: Problems  #: what has to be fixed; with any of them the check fails
    warnings: Problems  #: what should be inspected
    counts: Counts
    against: dict[str, int]  #: the other sites that it was compared with: name -> number of images compared
    inspection: Inspection  #: the rows and the scan of the images (None if they were not inspected), for a card
    others: Mapping[str, Inspection]  #: the same of the other sites, by name
    shortcuts: Shortcuts  #: column -> disease -> the AUC that the column reaches alone

    @property
    def passed(self) -> bool:
        """Whether there is no error."""
        return not self.errors

    @property
    def kinds(self) -> dict[str, Problems]:
        """The problems of each kind, errors first."""
        return self.errors.kinds | self.warnings.kinds


def check_site(
    config: SiteConfig,
    data_root: Path,
    *,
    labels_file: Path | None = None,
    against: Sequence[SiteConfig] = (),
    images: bool = True,
    cache_root: Path = Path("cache"),
    workers: int | None = None,
    progress: Progress | None = None,
) -> CheckReport:
    """Read all of a site, and report all problems.

    Raises `ChestfedError` if results cannot be saved; never for problems of the site.

    Parameters
    ----------
    labels_file
        Read this label file instead of those below the root; then no image is inspected.
    against
        Other sites below the same data root, whose patients and pictures should not be in this one.
    images
        Whether image files are inspected; results are kept below `cache_root`, so that a check can resume.
    progress
        Called as `progress(what, done, total)`.
    """
    report = progress or (lambda what, done, total: None)

    def inspect(config: SiteConfig, labels_file: Path | None, images: bool) -> Inspection:
        survey = survey_site(config, data_root, labels_file, partial(report, f"headers of {config.site}"))
        if not images or not survey.has_images or survey.table.frame.empty:
            return Inspection(survey, None)
        pictures = partial(report, f"images of {config.site}")
        return Inspection(survey, scan_images(survey.table, cache_root, workers=workers, progress=pictures))

    site = inspect(config, labels_file, images)
    counts = count(site.survey, site.scan)
    columns = read_free_columns(config, data_root, labels_file, site)
    problems = [*_check_alone(config, site, counts), *find_normal_with_finding(site, columns)]
    problems += compare_headers(config, data_root, site, partial(report, f"headers of {config.site}"))
    shortcuts = measure_shortcuts(config, site, columns)
    others: dict[str, Inspection] = {}
    for other_config in against:
        other = inspect(other_config, None, images and site.scan is not None)
        others[other_config.site] = other
        problems += _compare(site, other)
    table, compared = site.survey.table, {name: len(other.survey.table.frame) for name, other in others.items()}
    errors, warnings = split_by_severity(problems, config.allow)
    return CheckReport(
        table.name, table.title, table.synthetic, errors, warnings, counts, compared, site, others, shortcuts
    )


def _check_alone(config: SiteConfig, site: Inspection, counts: Counts) -> list[Sequence[Problem]]:
    """All that is wrong with a site by itself."""
    opposites = find_opposites(config)  # which are among the notes too
    notes = [*site.survey.table.notes, *_find_odd_names(site)]
    remarks = [Problem(REMARK, "labels", note) for note in notes if note not in opposites]
    advice = "fix the meaning in 'table.codes' or the label map, if a word does not mean the opposite there"
    parts: list[Sequence[Problem]] = [
        site.survey.problems,
        find_several_persons(site) if config.table is not None else [],
        [Problem(OPPOSITE, "labels", text, None, advice) for text in opposites],
        _find_unknown_views(site),
        _find_unread_columns(config, site),
        _find_idle_diseases(site, counts),
        remarks,
    ]
    if site.scan is not None:
        parts.append([Problem(REMARK, "images", text) for text in describe_idle_images(config, site.survey)])
        parts += damaged_files(site, site.scan)
        parts += repeated_pictures(site, site.scan)
        parts += gray_level_problems(site, site.scan)
    return parts


def _compare(site: Inspection, other: Inspection) -> list[Sequence[Problem]]:
    """Find what a site shares with another, as far as that can be read."""
    name, images = other.survey.table.name, len(other.survey.table.frame)
    parts: list[Sequence[Problem]] = []
    errors, _ = split_by_severity([other.survey.problems])
    if errors:
        text = (
            f"{name} itself has problems ({len(errors):,}, the first: {errors[0].kind}); its {images:,} readable rows "
        )
        text += "are compared"
        parts.append([Problem(OTHER_SITE, name, text, None, f"check {name} by itself")])
    parts.append(_find_shared_patients(site, other))
    if site.scan is not None and other.scan is not None:
        parts += shared_pictures(site, site.scan, other, other.scan)
    return parts


def _find_shared_patients(site: Inspection, other: Inspection) -> Sequence[Problem]:
    """One problem per patient whose name the other site also has, at the patient's first row."""
    mine, theirs = (inspection.survey.table.frame["patient"] for inspection in (site, other))
    first = theirs[~theirs.duplicated()]
    places = pd.Index(first).get_indexer(pd.Index(mine))
    rows = np.flatnonzero((places >= 0) & ~mine.duplicated().to_numpy(dtype=bool))
    name = other.survey.table.name

    def describe(row: int, _: str) -> str:
        place = other.locate(int(first.index[places[row]]))
        return f"this row's patient has the same name as one in {name}: {place}"

    advice = "if it is the same person, keep the rows of one site only; short numbers may match by chance"
    return site.report_rows(SITES_SHARE_PATIENT, rows, describe, advice)


def _find_unknown_views(site: Inspection) -> list[Problem]:
    """That no image that is kept has a known view."""
    views = site.survey.table.frame["view"]
    if views.empty or (views != "unknown").any():
        return []
    text = f"no view of the {len(views):,} images is known: laterals, if any, are kept and used for training"
    advice = "set columns.view in the YAML, or table.default_view: frontal if all images are frontal"
    return [Problem(NO_VIEWS, "views", text, None, advice)]


def _find_unread_columns(config: SiteConfig, site: Inspection) -> list[Problem]:
    """Columns of a hospital's own table that nothing reads, and names under `ignore` that it does not have."""
    columns = site.survey.table.columns
    unread = [name for name, role in columns.items() if not role]
    absent = [name for name in (config.table.ignore if config.table else ()) if columns and name not in columns]
    texts = [f"nothing reads {', '.join(map(repr, unread))}"] if unread else []
    texts += [f"table.ignore names {', '.join(map(repr, absent))}, which the table does not have"] if absent else []
    advice = (
        "a column that says which rows to leave out goes under table.keep, any other that is not needed under ignore"
    )
    return [Problem(UNREAD, "columns", text, None, advice) for text in texts]


def _find_odd_names(site: Inspection) -> list[str]:
    """Diseases that are nearly called like a known one, which other sites have."""
    names = [name for name in site.survey.table.diseases if name not in TITLES]
    hints = {name: hint for name in names if (hint := nearest_hint([name], TITLES, 0.8))}
    return [f"'{name}' is not a known name{hint}; other sites must use the same" for name, hint in hints.items()]


def _find_idle_diseases(site: Inspection, counts: Counts) -> list[Problem]:
    """Diseases that cannot be learned or measured in a split."""
    problems = []
    for part in counts.splits:
        for disease in site.survey.table.diseases if part.split != ALL_SPLITS else ():
            labels, name = part.labels[disease], format_title(disease)
            if labels.positive + labels.negative == 0:
                kind, text = NO_LABELS, f"{name} has no label in '{part.split}'"
                advice = "remove the disease from 'diseases' if the site does not label it"
            elif labels.positive == 0:
                kind, text = ONE_CLASS, f"{name} has no positive in '{part.split}' ({labels.negative:,} negatives)"
                advice = "an AUC is undefined there: check 'labels' in the YAML, or use other splits"
            else:
                continue
            problems.append(Problem(kind, f"diseases.{disease}", text, None, advice))
    return problems
