"""All problems of a site in one report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from chestfed.core.diseases import TITLES, nearest_hint, title_of
from chestfed.core.errors import Problem
from chestfed.inspection.counts import Counts, count
from chestfed.inspection.crossing import shared_patients, shared_pictures
from chestfed.inspection.pictures import damaged_files, gray_level_problems, repeated_pictures, verify_checksums
from chestfed.inspection.problems import NO_LABELS, NO_VIEWS, ONE_CLASS, OTHER_SITE, REMARK, Looked, sort_out
from chestfed.inspection.scan import scan_images
from chestfed.sites.config import SiteConfig
from chestfed.sites.opening import survey_site

#: What is being done, how much is done, and the total.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class CheckReport:
    """What a check found."""

    site: str
    title: str
    synthetic: bool
    errors: tuple[Problem, ...]  #: what has to be fixed; with any of them the check fails
    warnings: tuple[Problem, ...]  #: what should be inspected
    counts: Counts
    against: dict[str, int]  #: the other sites that it was compared with: name -> number of images compared
    looked: Looked  #: the rows and the scan of the images (None if they were not inspected), for a card
    others: Mapping[str, Looked]  #: the same of the other sites, by name

    @property
    def passed(self) -> bool:
        """Whether there is no error."""
        return not self.errors


def check_site(
    config: SiteConfig,
    data_root: Path,
    *,
    labels_file: Path | None = None,
    against: Sequence[SiteConfig] = (),
    images: bool = True,
    checksums: Path | None = None,
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
    checksums
        A release's SHA256SUMS.txt: images and label files are compared with it.
    progress
        Called as `progress(what, done, total)`.
    """
    tell = progress or (lambda what, done, total: None)

    def look(its: SiteConfig, labels_file: Path | None, images: bool) -> Looked:
        survey = survey_site(its, data_root, labels_file, partial(tell, f"headers of {its.site}"))
        if not images or not survey.has_images or survey.table.frame.empty:
            return Looked(survey, None)
        pictures = partial(tell, f"images of {its.site}")
        return Looked(survey, scan_images(survey.table, cache_root, workers=workers, progress=pictures))

    site = look(config, labels_file, images)
    problems = _own_problems(site)
    if checksums is not None:
        problems += verify_checksums(site, checksums, workers, progress)
    others: dict[str, Looked] = {}
    for other_config in against:
        other = look(other_config, None, images and site.scan is not None)
        others[other_config.site] = other
        problems += _compared(site, other)
    table, compared = site.survey.table, {name: len(other.survey.table.frame) for name, other in others.items()}
    about, counts = (table.name, table.title, table.synthetic), count(site.survey, site.scan)
    return CheckReport(*about, *sort_out(problems), counts, compared, site, others)


def _own_problems(site: Looked) -> list[Problem]:
    """All that is wrong with a site by itself."""
    problems = [*site.survey.problems, *_unknown_views(site), *_idle_diseases(site)]
    problems += [Problem(REMARK, "labels", note) for note in (*site.survey.table.notes, *_odd_names(site))]
    if site.scan is not None:
        problems += damaged_files(site, site.scan)
        problems += repeated_pictures(site, site.scan)
        problems += gray_level_problems(site, site.scan)
    return problems


def _compared(site: Looked, other: Looked) -> list[Problem]:
    """What a site shares with another, as far as that can be read."""
    name, images = other.survey.table.name, len(other.survey.table.frame)
    problems = []
    own, _ = sort_out(other.survey.problems)
    if own:
        text = f"{name} itself has problems ({len(own):,}, the first: {own[0].kind}); its {images:,} readable rows are "
        problems.append(Problem(OTHER_SITE, name, f"{text}compared", None, f"check {name} by itself"))
    problems += shared_patients(site, other)
    if site.scan is not None and other.scan is not None:
        problems += shared_pictures(site, site.scan, other, other.scan)
    return problems


def _unknown_views(site: Looked) -> list[Problem]:
    """That no image that is kept has a known view."""
    views = site.survey.table.frame["view"]
    if views.empty or (views != "unknown").any():
        return []
    text = f"no view of the {len(views):,} images is known: laterals, if any, are kept and used for training"
    advice = "set columns.view in the YAML, or table.default_view: frontal if all images are frontal"
    return [Problem(NO_VIEWS, "views", text, None, advice)]


def _odd_names(site: Looked) -> list[str]:
    """Diseases that are nearly called like a known one, which other sites have."""
    names = [name for name in site.survey.table.diseases if name not in TITLES]
    hints = {name: hint for name in names if (hint := nearest_hint([name], TITLES, 0.8))}
    return [f"'{name}' is not a known name{hint}; other sites must use the same" for name, hint in hints.items()]


def _idle_diseases(site: Looked) -> list[Problem]:
    """Diseases that cannot be learned or measured in a split."""
    found = []
    table = site.survey.table
    for part in count(site.survey, None).splits:
        for disease in table.diseases if part.split != "all" else ():
            labels = part.labels[disease]
            name = title_of(disease)
            if labels.positive + labels.negative == 0:
                text = f"{name} has no label in '{part.split}'"
                advice = "remove the disease from 'diseases' if the site does not label it"
                found.append(Problem(NO_LABELS, f"diseases.{disease}", text, None, advice))
            elif labels.positive == 0:
                text = f"{name} has no positive in '{part.split}' ({labels.negative:,} negatives)"
                advice = "an AUC is undefined there: check 'labels' in the YAML, or use other splits"
                found.append(Problem(ONE_CLASS, f"diseases.{disease}", text, None, advice))
    return found
