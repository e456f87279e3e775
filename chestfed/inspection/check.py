"""Everything that may be wrong with a site, in one report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chestfed.core.diseases import TITLES
from chestfed.core.errors import Problem
from chestfed.inspection.counts import Counts, count
from chestfed.inspection.crossing import shared_patients, shared_pictures
from chestfed.inspection.pictures import damaged_files, repeated_pictures
from chestfed.inspection.problems import NO_LABELS, NO_VIEWS, ONE_CLASS, OTHER_SITE, REMARK, Looked, sort_out
from chestfed.inspection.scan import scan_images
from chestfed.inspection.spellings import alike_in_two_splits
from chestfed.sites.config import SiteConfig
from chestfed.sites.opening import survey_site

#: What is being done, how much of it, and of how much.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class CheckReport:
    """What a check found.

    Attributes
    ----------
    errors
        What has to be mended; with any of them the check fails.
    warnings
        What should be looked at.
    against
        The other sites that it was compared with, by name: how many images each has that were compared.
    looked
        The rows and the scan of the images (None if they were not looked at), for a card.
    others
        The same of the other sites, by name.
    """

    site: str
    title: str
    synthetic: bool
    errors: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    counts: Counts
    against: dict[str, int]
    looked: Looked
    others: Mapping[str, Looked]

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
    cache_root: Path = Path("cache"),
    workers: int | None = None,
    progress: Progress | None = None,
) -> CheckReport:
    """Read all of a site, and report all that is wrong.

    Parameters
    ----------
    labels_file
        Read this label file in place of those under the root; then no image is looked at.
    against
        Other sites below the same data root, whose patients and pictures should not be here.
    images
        Whether image files are looked at; what was found is kept below `cache_root`, so that a check goes on.
    progress
        Called as `progress(what, done, total)`.

    Raises
    ------
    ChestfedError
        If results cannot be kept; never for what is wrong with the site.
    """
    site = _look(config, data_root, labels_file, images, cache_root, workers, progress)
    problems = [*site.survey.problems, *alike_in_two_splits(site), *_unknown_views(site), *_idle_diseases(site)]
    problems += [Problem(REMARK, "labels", note) for note in site.survey.table.notes]
    if site.scan is not None:
        problems += damaged_files(site, site.scan)
        problems += repeated_pictures(site, site.scan)
    compared: dict[str, int] = {}
    others: dict[str, Looked] = {}
    for other_config in against:
        other = _look(other_config, data_root, None, images and site.scan is not None, cache_root, workers, progress)
        name = other_config.site
        others[name] = other
        compared[name] = len(other.survey.table.frame)
        own, _ = sort_out(other.survey.problems)
        if own:
            first, number = own[0].kind, len(own)
            text = (
                f"{name} has problems of its own ({number:,}, the first: {first}); what can be read of it is compared: "
            )
            text += f"{compared[name]:,} images"
            problems.append(Problem(OTHER_SITE, name, text, None, f"check {name} by itself"))
        problems += shared_patients(site, other)
        if site.scan is not None and other.scan is not None:
            problems += shared_pictures(site, site.scan, other, other.scan)
    errors, warnings = sort_out(problems)
    table = site.survey.table
    return CheckReport(
        table.name,
        table.title,
        table.synthetic,
        errors,
        warnings,
        count(site.survey, site.scan),
        compared,
        site,
        others,
    )


def _look(
    config: SiteConfig,
    data_root: Path,
    labels_file: Path | None,
    images: bool,
    cache_root: Path,
    workers: int | None,
    progress: Progress | None,
) -> Looked:
    def headers(done: int, total: int) -> None:
        if progress is not None:
            progress(f"headers of {config.site}", done, total)

    def pictures(done: int, total: int) -> None:
        if progress is not None:
            progress(f"images of {config.site}", done, total)

    survey = survey_site(config, data_root, labels_file, headers)
    if not images or not survey.has_images or survey.table.frame.empty:
        return Looked(survey, None)
    return Looked(survey, scan_images(survey.table, cache_root, workers=workers, progress=pictures))


def _unknown_views(site: Looked) -> list[Problem]:
    """That no image that is kept has a known view."""
    views = site.survey.table.frame["view"]
    if views.empty or (views != "unknown").any():
        return []
    text = f"the view of none of the {len(views):,} images is known: laterals, if there are any, are kept and train"
    advice = "name the column of the views in the YAML (columns.view), or say table.default_view: frontal if all are"
    return [Problem(NO_VIEWS, "views", text, None, advice)]


def _idle_diseases(site: Looked) -> list[Problem]:
    """Diseases that nothing can be learnt or measured of in a split."""
    found = []
    table = site.survey.table
    for part in count(site.survey, None).splits:
        for disease in table.diseases if part.split != "all" else ():
            labels = part.labels[disease]
            name = TITLES[disease]
            if labels.positive + labels.negative == 0:
                text = f"{name} has no label in '{part.split}'"
                advice = "leave the disease out of 'diseases' if the site does not label it"
                found.append(Problem(NO_LABELS, f"diseases.{disease}", text, None, advice))
            elif labels.positive == 0:
                text = f"{name} has no positive in '{part.split}' ({labels.negative:,} negatives)"
                advice = "an AUC is not defined there: check 'labels' in the YAML, or take other splits"
                found.append(Problem(ONE_CLASS, f"diseases.{disease}", text, None, advice))
    return found
