"""Each site held out in turn: trained on all others, evaluated on it.

Every fold is a study of its own (`run_study`), with the other sites as clients, in their order, and images of the
held-out site as its test set; stage 1 is on the first of the others. No image of the held-out site trains, whatever its
split. The finished model is scored on patients of the sites that it was trained on as well, who trained nothing either:
how much is lost at a hospital that the model has never seen.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from chestfed.core.checkpoint import load_checkpoint, write_json
from chestfed.core.errors import ConfigError, Problem
from chestfed.core.pseudonyms import key_for
from chestfed.evaluation.protocols import views_of
from chestfed.experiment.device import Machine
from chestfed.experiment.pipeline import Pipeline
from chestfed.images.cache import CachedImages, fill_cache
from chestfed.models import FlatModule, build_model
from chestfed.results.run_folder import MODEL_FILE
from chestfed.results.table import Row, make_row
from chestfed.sites.table import SiteTable
from chestfed.training.clients import (
    ClientData,
    StudyData,
    TestSet,
    check_clients,
    clients_of,
    digest_of,
    left_out_views,
    open_entry,
    test_of,
    training_and_test,
)
from chestfed.training.run import finished_row, row_to_plain, write_predictions
from chestfed.training.test_scores import evaluate, score


@dataclass(frozen=True)
class SiteRows:
    """The label side of one site: its clients' training rows, what is scored if it is held out, and if it is not.

    `seen` are rows of patients that train nothing; it may have none.
    """

    whole: SiteTable
    clients: tuple[tuple[str, SiteTable], ...]
    unseen: SiteTable
    seen: SiteTable


@dataclass(frozen=True)
class SiteImages:
    """The same with images."""

    name: str
    synthetic: bool
    diseases: tuple[str, ...]
    clients: tuple[ClientData, ...]
    unseen: TestSet
    seen: TestSet | None
    quarantined: tuple[Problem, ...]


@dataclass(frozen=True)
class Fold:
    """One held-out site: the pipeline and data of its study, and test sets of the sites that train, by name.

    `reasons` says for diseases without an AUC, disease -> reason, what the labels of the sites have to do with it.
    """

    site: str
    pipeline: Pipeline
    data: StudyData
    seen: dict[str, TestSet]
    reasons: dict[str, str]


def open_rows(pipeline: Pipeline, pipeline_file: Path, data_root: Path) -> list[SiteRows]:
    """Read every site's label files, in the order of the pipeline.

    Raises
    ------
    SiteError
        All problems of a site's tables in one report.
    ConfigError
        If a client or the images of a held-out site come out empty, or `held_out.sites` names another site.
    """
    assert pipeline.held_out is not None
    found = []
    split = None if pipeline.held_out.images == "all" else pipeline.held_out.images
    for entry in pipeline.sites:
        table = open_entry(entry, pipeline_file, data_root)
        training, seen = training_and_test(table, entry, pipeline)
        clients = clients_of(table.name, training, entry, pipeline)
        unseen = table.select(split=split, views=views_of(pipeline.evaluation.protocol))
        unseen = unseen.with_frame(unseen.frame.assign(repeats=np.ones(len(unseen.frame), np.int64)))
        about = tuple((name, part.about(pipeline.diseases)) for name, part in clients)
        found.append(SiteRows(table, about, unseen.about(pipeline.diseases), seen.about(pipeline.diseases)))
    check_clients([client for site in found for client in site.clients])
    wanted = held_out_sites(pipeline, [site.whole.name for site in found])
    for site in found:
        if site.whole.name in wanted and len(site.unseen.frame) == 0:
            raise ConfigError(
                f"site '{site.whole.name}' has no image for held_out.images: {pipeline.held_out.images} with protocol "
                f"{pipeline.evaluation.protocol}" + left_out_views(site.whole, split, pipeline.evaluation.protocol)
            )
    return found


def held_out_sites(pipeline: Pipeline, names: Sequence[str]) -> list[str]:
    """Names of the sites that are held out, in the order of the pipeline.

    Raises
    ------
    ConfigError
        If one is named that is not among `names`.
    """
    assert pipeline.held_out is not None
    wanted = pipeline.held_out.sites
    if wanted == "all":
        return list(names)
    for name in wanted:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
            hint = f"did you mean '{close[0]}'?" if close else f"the sites are {', '.join(names)}"
            raise ConfigError(f"held_out.sites: '{name}' is none of the study's sites; {hint}")
    return [name for name in names if name in wanted]


def variant(pipeline: Pipeline, site: str, clients: int) -> Pipeline:
    """The pipeline of one fold, which trains with all `clients` of the others."""
    assert pipeline.held_out is not None
    chosen = pipeline.held_out.model_copy(update={"sites": [site]})
    title = f"{pipeline.title}: without {site}"
    return pipeline.for_algorithm().model_copy(update={"held_out": chosen, "k": [clients], "title": title})


def load_images(
    sites: Sequence[SiteRows],
    pipeline: Pipeline,
    cache_root: Path,
    *,
    skip_unreadable: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[SiteImages]:
    """Decode what is not cached yet, and tie images to labels. `progress(site, done, total)` is called on the way.

    Raises
    ------
    SiteError
        All missing or unreadable images of a site, unless `skip_unreadable`; then they are left out.
    ChestfedError
        If there are real patients and their key file can't be used.
    """

    def cached(table: SiteTable) -> CachedImages:
        return fill_cache(table, cache_root, pipeline.preprocess, skip_unreadable=skip_unreadable)

    key = key_for(synthetic=all(site.whole.synthetic for site in sites))
    filled = []
    for site in sites:
        used = {image for table in _tables(site) for image in table.frame["image"]}
        rows = site.whole.with_frame(site.whole.frame[site.whole.frame["image"].isin(used)].reset_index(drop=True))
        tell = None if progress is None else _with_name(progress, site.whole.name)
        filled.append(
            fill_cache(
                rows, cache_root, pipeline.preprocess, skip_unreadable=skip_unreadable, progress=tell
            ).quarantined
        )
    return [
        SiteImages(
            site.whole.name,
            site.whole.synthetic,
            tuple(site.whole.diseases),
            tuple(
                ClientData(n, cached(t), t.labels(), t.frame["repeats"].to_numpy(), t.origin) for n, t in site.clients
            ),
            test_of(site.unseen, cached, key),
            test_of(site.seen, cached, key) if len(site.seen.frame) else None,
            quarantined,
        )
        for site, quarantined in zip(sites, filled, strict=True)
    ]


def fold(sites: Sequence[SiteImages], site: str, pipeline: Pipeline) -> Fold:
    """The study that holds this site out."""
    held, others = next(part for part in sites if part.name == site), [part for part in sites if part.name != site]
    clients = tuple(client for part in others for client in part.clients)
    untaught = tuple(
        disease
        for j, disease in enumerate(pipeline.diseases)
        if all(np.isnan(client.labels[:, j]).all() for client in clients)
    )
    unknown = [pipeline.diseases.index(disease) for disease in untaught]
    test = _without(held.unseen, unknown)
    key = key_for(synthetic=all(part.synthetic for part in sites))
    digests = {client.name: digest_of(key, client.images.digests, client.labels, client.repeats) for client in clients}
    digests["test set"] = digest_of(key, test.images.digests, test.labels, test.patients)
    data = StudyData(
        clients=clients,
        test=test,
        diseases=test.diseases,
        quarantined={part.name: list(part.quarantined) for part in sites if part.quarantined},
        digests=digests,
        held_out=site,
    )
    seen = {part.name: _without(part.seen, unknown) for part in others if part.seen is not None}
    reasons = dict.fromkeys(untaught, "no site that was trained on labels it")
    reasons |= {disease: f"{site} does not label it" for disease in pipeline.diseases if disease not in held.diseases}
    return Fold(site, variant(pipeline, site, len(clients)), data, seen, reasons)


def _without(test: TestSet, columns: Sequence[int]) -> TestSet:
    """The test set without the labels of diseases that nobody has taught."""
    labels = test.labels.copy()
    labels[:, columns] = np.nan
    return replace(test, labels=labels)


def score_seen(this: Fold, run_folder: Path, machine: Machine) -> dict[str, Row]:
    """The fold's finished model on the sites that it was trained on; what was scored before is taken from the folder.

    Each site has a folder `seen/SITE` beside the model, with `predictions.parquet` and `result.json`.
    """
    (k,) = this.pipeline.k
    rows, network = {}, None
    for name, test in this.seen.items():
        folder = run_folder / f"k{k}" / "seen" / name
        row = finished_row(folder)
        if row is None:
            network = network or _trained(this, run_folder / f"k{k}" / MODEL_FILE, machine)
            scores = score(
                network, network.parameters(), network.buffers(), test, this.pipeline.evaluation.batch_size, machine
            )
            clients = [client.name for client in this.data.clients]
            resamples = this.pipeline.evaluation.resamples
            row = make_row(k, clients, evaluate(scores, test), scores, test.labels, test.patients, resamples)
            folder.mkdir(parents=True, exist_ok=True)
            write_predictions(folder / "predictions.parquet", scores, replace(this.data, test=test))
            write_json(folder / "result.json", row_to_plain(row))
        rows[name] = row
    return rows


def _trained(this: Fold, path: Path, machine: Machine) -> FlatModule:
    architecture = this.pipeline.model.model_copy(update={"initial_weights": None})
    module = build_model(architecture, len(this.data.diseases), this.pipeline.seed)
    tensors, _ = load_checkpoint(path)
    module.load_state_dict(tensors)
    return FlatModule(module, machine.device)


def _tables(site: SiteRows) -> list[SiteTable]:
    return [*(table for _, table in site.clients), site.unseen, site.seen]


def _with_name(progress: Callable[[str, int, int], None], name: str) -> Callable[[int, int], None]:
    return lambda done, total: progress(name, done, total)
