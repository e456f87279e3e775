"""The label side of a study: which rows train at which client, and which are scored. Reads label files only."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from chestfed.core.config import expand_path
from chestfed.core.diseases import nearest_hint
from chestfed.core.errors import ConfigError
from chestfed.core.provenance import Origin
from chestfed.evaluation.protocols import views_of
from chestfed.experiment.pipeline import AnyPipeline, Pipeline, SiteEntry
from chestfed.sites import load_site_config, open_site
from chestfed.sites.partition import cut_into_clients, hold_out, with_permuted_labels
from chestfed.sites.stats import people, site_facts
from chestfed.sites.table import SiteTable


@dataclass(frozen=True, eq=False)
class SiteRows:
    """One site of a pipeline: the training rows of each client that it is cut into, by name.

    `test` are the rows of the evaluated split and views; no client trains on their patients. May be empty. `own` are
    those that the site's own AUC is about: the same at the target and with `test_fraction`, else of its test split, or
    of its valid split if it has no other. `validation` are those of the patients that `validation_fraction` sets aside.
    """

    entry: SiteEntry
    whole: SiteTable
    clients: tuple[tuple[str, SiteTable], ...]
    test: SiteTable
    own: SiteTable
    validation: SiteTable
    facts: dict[str, Any]

    @property
    def name(self) -> str:
        return self.whole.name


@dataclass(frozen=True, eq=False)
class StudyTables:
    """The rows of one study.

    `hospitals` are test rows of each site that takes part, by name: only the finished model of each K is scored there.
    """

    whole: tuple[SiteTable, ...]  #: one table per site, as read
    clients: tuple[tuple[str, SiteTable], ...]  #: name and training rows of each, in the order of addition
    tests: tuple[SiteTable, ...]  #: what every evaluated round is scored on; mostly of the first site only
    held_out: str | None = None  #: the site that the test rows are from, if none of the clients is
    hospitals: dict[str, SiteTable] = field(default_factory=dict)
    joins: dict[str, int] = field(default_factory=dict)  #: each of them, and those without such rows -> from which K on
    reasons: dict[str, str] = field(default_factory=dict)  #: disease -> why the sites' labels give it no AUC
    noise: frozenset[str] = frozenset()  #: clients whose images are replaced by noise
    validation: dict[str, SiteTable] = field(default_factory=dict)  #: of these hospitals, to choose settings on
    facts: tuple[dict[str, Any], ...] = ()  #: of each site: its participants and labels, see `sites.stats.site_facts`

    @property
    def parts(self) -> tuple[tuple[SiteTable, bool], ...]:
        """Every table whose images are read, and whether it is scored."""
        scored = dict.fromkeys((*self.tests, *self.hospitals.values(), *self.validation.values()))
        return *((table, False) for _, table in self.clients), *((table, True) for table in scored)

    @property
    def origin(self) -> Origin:
        """Of all sites together."""
        return Origin.together(table.origin for table in self.whole)


def resolve_data_root(pipeline: Pipeline, override: Path | None) -> Path:
    """The folder of the sites' roots: the override, else the pipeline's, else $CHESTFED_DATA."""
    if override is not None:
        return override
    if pipeline.data_root is not None:
        return expand_path(pipeline.data_root, Path.cwd())
    variable = os.environ.get("CHESTFED_DATA")
    if not variable:
        raise ConfigError(
            "where are the sites' files? Give their folder with --data DIR, or set CHESTFED_DATA, "
            "or data_root in the pipeline"
        )
    return Path(variable).expanduser()


def open_sites(
    pipeline: Pipeline, pipeline_file: Path, data_root: Path, *, target_first: bool = True
) -> tuple[SiteRows, ...]:
    """Read every site's label files, cut clients, and set the test patients apart.

    `target_first`: the first site is the target of the study; False if the target is elsewhere.

    Raises
    ------
    SiteError
        All problems of a site's tables in one report.
    ConfigError
        If two sites have the same name, or a client would have nothing to train on.
    """
    configs = [load_site_config(pipeline_file.parent / entry.config) for entry in pipeline.sites]
    _refuse_duplicate_names([config.site for config in configs])
    found: list[SiteRows] = []
    seed = pipeline.seed
    for entry, config in zip(pipeline.sites, configs, strict=True):
        if not set(config.diseases) & set(pipeline.diseases):
            raise ConfigError(
                f"site '{config.site}' labels {', '.join(config.diseases)}: none of the study's diseases, which are "
                f"{', '.join(pipeline.diseases)}{nearest_hint(pipeline.diseases, config.diseases)}. Nothing could be "
                "learned from it: leave it out, or change 'diseases'"
            )
        placed = config if entry.root is None else config.model_copy(update={"root": entry.root, "other_roots": []})
        table = open_site(placed, data_root)
        training, scored, own, validation = _parts(table, entry, pipeline, target=target_first and not found)
        clients = [(name, part.about(pipeline.diseases)) for name, part in _cut(table.name, training, entry, seed)]
        test = scored.about(pipeline.diseases)
        own = test if own is scored else own.about(pipeline.diseases)
        validation, facts = validation.about(pipeline.diseases), site_facts(placed, table, training, own)
        found.append(SiteRows(entry, table, tuple(clients), test, own, validation, facts))
    _check_clients([client for site in found for client in site.clients], pipeline.diseases)
    return tuple(found)


def study_tables(pipeline: Pipeline, sites: Sequence[SiteRows]) -> StudyTables:
    """The rows of one study; of a pipeline with `held_out`, the study of the only site that it lists.

    Raises
    ------
    ConfigError
        If the test set is empty, or the first site, which is evaluated on, lacks labels.
    """
    _check_provided(pipeline, sites)
    if pipeline.held_out is not None:
        return _held_out(pipeline, sites)
    tests = [site for place, site in enumerate(sites) if place == 0 or site.entry.test_fraction is not None]
    for site in tests:
        if len(site.test.frame) == 0:
            split = pipeline.evaluation.split
            raise ConfigError(_no_test_image(site.whole, f"evaluation.split: {split}", split, pipeline))
    target = sites[0].whole
    lacking = [disease for disease in pipeline.diseases if disease not in target.diseases]
    if lacking:
        raise ConfigError(
            f"site '{target.name}' is the target and does not label {', '.join(lacking)}: nothing could be evaluated "
            "there. Change 'diseases' in the pipeline, or the site's YAML"
        )
    clients = tuple(client for site in sites for client in site.clients)
    whole = tuple(site.whole for site in sites)
    joins = joins_of(pipeline, {site.name: len(site.clients) for site in sites})
    own = {site.name: site.own for site in sites if site.name in joins and len(site.own.frame)}
    scored = tuple(site.test for site in tests)
    tuned = pipeline.alternatives is not None and pipeline.alternatives.fine_tuned is not None
    validation = {site.name: site.validation for site in sites if tuned and site.name in own}
    return StudyTables(
        whole,
        clients,
        scored,
        hospitals=own,
        joins=joins,
        validation=validation,
        noise=_noise(sites),
        facts=tuple(site.facts for site in sites),
    )


def _check_provided(pipeline: Pipeline, sites: Sequence[SiteRows]) -> None:
    """Refuse a disease that no site provides: it is most likely misspelled."""
    provided = list(dict.fromkeys(disease for site in sites for disease in site.whole.diseases))
    if lacking := [disease for disease in pipeline.diseases if disease not in provided]:
        raise ConfigError(
            f"no site of the study labels {', '.join(lacking)}{nearest_hint(lacking, provided)}. The sites label "
            f"{', '.join(provided)}: change 'diseases' in the pipeline, or in a site's YAML"
        )


def joins_of(pipeline: Pipeline, clients: Mapping[str, int]) -> dict[str, int]:
    """The sites whose own AUCs are wanted, and the first K that each takes part in; none if there is one site only.

    `clients` are the number of clients of each site, in the order of addition.
    """
    before = itertools.accumulate(clients.values(), initial=0)
    found = {
        name: next(k for k in pipeline.k if k > first)
        for name, first in zip(clients, before, strict=False)
        if first < max(pipeline.k)
    }
    return found if len(found) > 1 and pipeline.evaluation.hospitals == "own_test" else {}


def with_validation(pipeline: AnyPipeline, fraction: float) -> AnyPipeline:
    """The pipeline with this `validation_fraction` at every scored site that has none of its own."""
    sites = [
        entry.model_copy(update={"validation_fraction": fraction})
        if entry.validation_fraction is None and (place == 0 or entry.test_fraction is not None)
        else entry
        for place, entry in enumerate(pipeline.sites)
    ]
    return pipeline.model_copy(update={"sites": sites})


def selection_tables(pipeline: Pipeline, sites: Sequence[SiteRows]) -> StudyTables:
    """The rows of a search for settings: validation patients in place of the test set, of which no row is in it."""
    tables = study_tables(pipeline, sites)
    found = tuple(site.validation for site in sites if site.test in tables.tests)
    if not all(len(table.frame) for table in found):
        raise ConfigError(
            "no validation image has the views of evaluation.protocol: set a larger validation_fraction at the site"
        )
    return replace(tables, tests=found, hospitals={}, joins={})


def left_out_views(table: SiteTable, split: str | None) -> str:
    """Why a split (None: all) is empty under its protocol, if it is for its views; otherwise an empty string."""
    views = table.select(split=split).frame["view"].value_counts()
    counts = ", ".join(f"{view} {count:,}" for view, count in views.items() if count)
    if not counts:
        return ""
    return f". It leaves out the images there for their views ({counts}): if they are frontal, take protocol all-image"


def _held_out(pipeline: Pipeline, sites: Sequence[SiteRows]) -> StudyTables:
    """All other sites train; images of the held-out one are scored, whatever their split."""
    assert pipeline.held_out is not None
    name, images = pipeline.held_out.sites[0], pipeline.held_out.images
    held, others = next(site for site in sites if site.name == name), [site for site in sites if site.name != name]
    clients = tuple(client for site in others for client in site.clients)
    split = None if images == "all" else images
    test = held.whole.select(split=split, views=views_of(pipeline.evaluation.protocol))
    if len(test.frame) == 0:
        raise ConfigError(_no_test_image(held.whole, f"held_out.images: {images}", split, pipeline))
    test = test.with_frame(test.frame.assign(repeats=np.ones(len(test.frame), np.int64))).about(pipeline.diseases)
    nobody = test.with_frame(test.frame.iloc[:0])
    untaught = [
        disease for disease in pipeline.diseases if all(part.frame[disease].isna().all() for _, part in clients)
    ]
    reasons = dict.fromkeys(untaught, "no site that was trained on labels it")
    unlabeled = [disease for disease in pipeline.diseases if disease not in held.whole.diseases]
    also = [site for site in others if len(site.test.frame) and pipeline.evaluation.hospitals == "own_test"]
    return StudyTables(
        tuple(site.whole for site in sites),
        clients,
        (_without(test, untaught),),
        held_out=name,
        hospitals={site.name: _without(site.test, untaught) for site in also},
        reasons=reasons | dict.fromkeys(unlabeled, f"{name} does not label it"),
        noise=_noise(others),
        facts=tuple(site.facts | ({"people": people(nobody, test)} if site is held else {}) for site in sites),
    )


def _noise(sites: Sequence[SiteRows]) -> frozenset[str]:
    return frozenset(name for site in sites if site.entry.control == "noise" for name, _ in site.clients)


def _without(table: SiteTable, diseases: Sequence[str]) -> SiteTable:
    """The table without the labels of diseases that no client knows."""
    if not diseases:
        return table
    return table.with_frame(table.frame.assign(**dict.fromkeys(diseases, np.float32(np.nan))))


def _parts(
    table: SiteTable, entry: SiteEntry, pipeline: Pipeline, *, target: bool
) -> tuple[SiteTable, SiteTable, SiteTable, SiteTable]:
    """A site's training rows, and `test`, `own` and `validation` of `SiteRows`, which may be empty."""
    training, held_out, validation = _set_aside(table, entry, pipeline.seed)
    views = views_of(pipeline.evaluation.protocol)
    test = table.select(split=pipeline.evaluation.split) if entry.test_fraction is None else held_out
    test = own = test.select(views=views)
    if not target and entry.test_fraction is None:
        own = next((rows for split in ("test", "valid") if len((rows := table.select(split, views)).frame)), own)
    return training, test, own, validation.select(views=views)


def _set_aside(table: SiteTable, entry: SiteEntry, seed: int) -> tuple[SiteTable, SiteTable, SiteTable]:
    """A site's training rows without patients held out, those of `test_fraction`, and of `validation_fraction`."""
    training = table.select(split="train")
    test = validation = table.with_frame(table.frame[:0])
    if entry.test_fraction is not None:
        training, test = hold_out(training, entry.test_fraction, seed)
    if entry.validation_fraction is not None:
        training, validation = hold_out(training, entry.validation_fraction, seed, "validation")
    return training, test, validation


def client_tables(table: SiteTable, entry: SiteEntry, seed: int) -> list[tuple[str, SiteTable]]:
    """The training rows of each client of a site, by name, as a study with this seed cuts them."""
    return _cut(table.name, _set_aside(table, entry, seed)[0], entry, seed)


def _cut(name: str, training: SiteTable, entry: SiteEntry, seed: int) -> list[tuple[str, SiteTable]]:
    """The clients that a site's training rows are cut into, by name; a negative control's says so everywhere."""
    parts = [training] if entry.clients == 1 else cut_into_clients(training, entry.clients, seed, entry.cut)
    names = [name] if entry.clients == 1 else [f"{name}-{number}" for number in range(1, len(parts) + 1)]
    if entry.control is None:
        return list(zip(names, parts, strict=True))
    if entry.control == "labels_permuted":
        parts = [with_permuted_labels(part, seed) for part in parts]
    return [(f"{name} ({entry.control.replace('_', ' ')})", part) for name, part in zip(names, parts, strict=True)]


def _check_clients(clients: Sequence[tuple[str, SiteTable]], diseases: Sequence[str]) -> None:
    """Refuse clients without images, without labels, or of the same name."""
    empty = [name for name, part in clients if len(part.frame) == 0]
    if empty:
        raise ConfigError(
            f"no training image at: {', '.join(empty)}. The split 'train' of its table, with the views that its YAML "
            "keeps, is empty: see `chestfed site stats`",
            kind="no training image",
            clients=empty,
        )
    _refuse_duplicate_names([name for name, _ in clients])
    silent = [name for name, part in clients if np.isnan(part.labels()).all()]
    if silent:
        raise ConfigError(
            f"no training image at {', '.join(silent)} has a label of {', '.join(diseases)}: see `labels`, "
            "`uncertain` and `blank` in the site's YAML"
        )


def _refuse_duplicate_names(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        text = f"two sites have the same name: {', '.join(names)}. Change 'site' in one of their YAMLs."
        raise ConfigError(text, kind="duplicate site", sites=list(names))


def _no_test_image(table: SiteTable, key: str, split: str | None, pipeline: Pipeline) -> str:
    protocol = pipeline.evaluation.protocol
    why = left_out_views(table, split)
    return f"site '{table.name}' has no image for {key} with protocol {protocol}{why}"
