"""The site probe of a pipeline's hospitals, on the images that its studies train on and score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.special import logit

from chestfed.core.diseases import format_title
from chestfed.core.errors import ConfigError
from chestfed.data.checks.site_probe import MOST_IMAGES, SiteProbe, draw_rows, probe_sites, shrink
from chestfed.data.images.cache import fill_cache
from chestfed.data.sites.table import SiteTable
from chestfed.results.evaluation.estimates import Estimate, auc_estimates
from chestfed.results.evaluation.intervals.methods import Intervals
from chestfed.results.evaluation.labeled import Scored
from chestfed.results.tables.grid import Cell, make_grid, number, pair, rich_table
from chestfed.results.tables.views import drop_single_mean
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.training.data.sites import TEST, StudySite, open_sites

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Images that are read at once.
_BATCH: Final = 200


@dataclass(frozen=True, eq=False)
class StudyProbe:
    """A probe of the hospitals of a pipeline."""

    target: str
    sites: SiteProbe
    #: Of each disease, and their mean: the AUC of the log odds of another hospital than the target, at those of the
    #: target's test images that are probed.
    ranking: tuple[Estimate, ...]

    @property
    def numbers(self) -> dict[str, Any]:
        """Numbers for programs."""
        aucs = {of.disease: {"auc": of.value, "interval": of.interval} for of in self.ranking}
        about = {"accuracy": self.sites.accuracy, "chance": self.sites.chance, "recall": dict(self.sites.recall)}
        return {"target": self.target, **about, "images": dict(self.sites.images), "ranking": aucs}


def render(probe: StudyProbe) -> RenderableType:
    """The AUCs of the log odds, for a terminal."""
    lines = []
    for of in drop_single_mean(probe.ranking):
        counts = "" if of.positives is None else f"{of.positives:,} / {of.negatives:,}"
        auc = Cell(number(of.value), (pair(of.interval),) if of.interval else ())
        lines.append((format_title(of.disease), (counts, auc)))
    caption = (
        f"AUC of the log odds of another hospital than {probe.target}, at its test images, with 95% over patients. Far "
        "from .50, a model can use the hospital in place of the disease"
    )
    return rich_table(make_grid("ranking", caption, ("disease", "n+ / n-", "AUC"), lines), caption)


def probe_study(
    pipeline: Pipeline,
    file: Path,
    root: Path,
    cache: Path,
    *,
    skip_unreadable: bool = False,
    progress: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> StudyProbe:
    """Probe the images of a pipeline's hospitals, at most `MOST_IMAGES` of each; `file` is the pipeline's.

    Images that are not cached are decoded, and counted by `progress(site, done, total)`. Raises `SiteError` for
    problems of a site, and `ConfigError` as `probe_sites`.
    """
    sites = open_sites(pipeline, file, root)
    if len(sites) < 2:
        raise ConfigError(f"{file}: a site probe needs two hospitals", kind="too few sites", sites=len(sites))
    images, patients, labels = {}, {}, np.zeros((0, 0))
    for place, site in enumerate(sites):
        table, tests = _choose_rows(site, target=place == 0)
        filled = fill_cache(
            table, cache, pipeline.preprocess, skip_unreadable=skip_unreadable, progress=partial(progress, site.name)
        )
        readable = np.flatnonzero(filled.records >= 0)
        parts = (readable[start : start + _BATCH] for start in range(0, len(readable), _BATCH))
        images[site.name] = np.stack([shrink(picture) for part in parts for picture in filled.read(part)])
        patients[site.name] = table.frame["patient"].to_numpy(dtype=str)[readable]
        if place == 0:
            scored = readable < tests
            labels, people = table.labels()[readable][scored], patients[site.name][scored]
    probed = probe_sites(images, patients)
    own = probed.probabilities[: len(scored), 0][scored]
    odds = np.repeat(logit(np.clip(1 - own, 1e-12, 1 - 1e-12))[:, None], len(pipeline.diseases), axis=1)
    ranking = auc_estimates(Scored(odds, labels, people, pipeline.diseases), Intervals())
    return StudyProbe(sites[0].name, probed, ranking)


def _choose_rows(site: StudySite, *, target: bool) -> tuple[SiteTable, int]:
    """Rows to probe, of the target its test images first, and how many these are."""
    tests = site.find(TEST) if target else np.zeros(0, int)
    others = np.setdiff1d(np.flatnonzero(site.in_use), tests)
    tests = tests[draw_rows(len(tests), MOST_IMAGES // 2, f"{site.name}, tests")]
    others = others[draw_rows(len(others), MOST_IMAGES - len(tests), site.name)]
    frame = site.table.frame.iloc[np.concatenate([tests, others])].reset_index(drop=True)
    return site.table.with_frame(frame), len(tests)
