"""The site probe of a pipeline's hospitals, on the images that its studies train on and score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.special import logit

from chestfed.core.console import plural
from chestfed.core.diseases import format_title
from chestfed.core.errors import ConfigError
from chestfed.core.pseudonyms import key_for
from chestfed.data.checks.site_probe import MOST_IMAGES, SiteProbe, draw_rows, probe_sites, shrink
from chestfed.data.images.cache import fill_cache
from chestfed.results.evaluation.estimates import Estimate, auc_estimates
from chestfed.results.evaluation.intervals.methods import Intervals
from chestfed.results.evaluation.labeled import Scored
from chestfed.results.tables.grid import Cell, make_grid, number, pair, rich_table
from chestfed.results.tables.views import drop_single_mean
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.training.data.overlap import SiteOverlap, separate_sites
from chestfed.studies.training.data.sites import TEST, UNUSED, StudySite, open_sites

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
    shared: tuple[SiteOverlap, ...] = ()  #: what two hospitals' probed images share, and what was left out for it

    @property
    def numbers(self) -> dict[str, Any]:
        """Numbers for programs."""
        aucs = {of.disease: {"auc": of.value, "interval": of.interval} for of in self.ranking}
        about = {"accuracy": self.sites.accuracy, "chance": self.sites.chance, "recall": dict(self.sites.recall)}
        left_out = {" and ".join(pair.sites): pair.rows_left_out for pair in self.shared}
        images = {"images": dict(self.sites.images), "left_out": left_out}
        return {"target": self.target, **about, **images, "ranking": aucs}

    def describe_shared(self) -> list[str]:
        """The images that were left out, a sentence for each pair of hospitals."""
        return [
            f"{pair.rows_left_out:,} images of {plural(pair.patients, 'patient')}, who are at both "
            f"{' and '.join(pair.sites)}, were left out"
            for pair in self.shared
        ]


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

    Images that are not cached are decoded, and counted by `progress(site, done, total)`. Of those that are probed, none
    may be at two hospitals, as in a study (`overlap`). Raises `SiteError` for problems of a site, and `ConfigError` as
    `probe_sites` and `separate_sites`.
    """
    sites = open_sites(pipeline, file, root)
    if len(sites) < 2:
        raise ConfigError(f"{file}: a site probe needs two hospitals", kind="too few sites", sites=len(sites))
    chosen = [_choose_rows(site, target=place == 0) for place, site in enumerate(sites)]
    filled = {
        site.name: fill_cache(
            site.table.with_frame(site.table.frame[site.in_use].reset_index(drop=True)).as_cached(),
            cache,
            pipeline.preprocess,
            skip_unreadable=skip_unreadable,
            progress=partial(progress, site.name),
        )
        for site in chosen
    }
    key = key_for(public=all(site.table.phantoms for site in sites))
    separate, shared = separate_sites(chosen, lambda site, rows: filled[site.name], pipeline.overlap, key)
    images, patients, labels = {}, {}, np.zeros((0, 0))
    for before, site in zip(chosen, separate, strict=True):
        table, test = site.table, (site.table.frame["role"] == TEST).to_numpy() & (site is separate[0])
        places = np.flatnonzero(before.in_use)
        kept = np.flatnonzero((filled[site.name].records >= 0) & site.in_use[places])
        kept = kept[np.argsort(~test[places[kept]], kind="stable")]  # those of the test set first
        parts = (kept[start : start + _BATCH] for start in range(0, len(kept), _BATCH))
        images[site.name] = np.stack([shrink(picture) for part in parts for picture in filled[site.name].read(part)])
        patients[site.name] = table.frame["patient"].to_numpy(dtype=str)[places[kept]]
        if site is separate[0]:
            scored = test[places[kept]]
            labels, people = table.labels()[places[kept]][scored], patients[site.name][scored]
    probed = probe_sites(images, patients)
    own = probed.probabilities[: len(scored), 0][scored]
    odds = np.repeat(logit(np.clip(1 - own, 1e-12, 1 - 1e-12))[:, None], len(pipeline.diseases), axis=1)
    ranking = auc_estimates(Scored(odds, labels, people, pipeline.diseases), Intervals())
    return StudyProbe(sites[0].name, probed, ranking, shared)


def _choose_rows(site: StudySite, *, target: bool) -> StudySite:
    """The site with the rows to probe, of the target up to half of them test images; the others are unused."""
    tests = site.find(TEST) if target else np.zeros(0, int)
    others = np.setdiff1d(np.flatnonzero(site.in_use), tests)
    tests = tests[draw_rows(len(tests), MOST_IMAGES // 2, f"{site.name}, tests")]
    others = others[draw_rows(len(others), MOST_IMAGES - len(tests), site.name)]
    role = np.full(len(site.table.frame), UNUSED, object)
    for rows in (tests, others):
        role[rows] = site.table.frame["role"].to_numpy(dtype=object)[rows]
    return site.with_columns(role=role)
