"""One study: its configuration, one frame per site, the machine; and the images, which are cut once from the frames."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from chestfed.core.disk import check_folder, check_room
from chestfed.core.errors import ConfigError, Problem
from chestfed.core.provenance import Origin
from chestfed.core.pseudonyms import SiteKey, key_for
from chestfed.data.images.batches import Images, NoiseImages, PooledImages
from chestfed.data.images.cache import CachedImages, fill_caches, lacking_bytes
from chestfed.data.images.copies import VARIABLE, find_copies
from chestfed.data.images.features import FeatureStore
from chestfed.data.images.place import find_cache
from chestfed.data.sites.reader import SPLITS
from chestfed.data.sites.stats import people
from chestfed.data.sites.table import SiteTable
from chestfed.learning.models import FeatureOptions
from chestfed.results.evaluation.protocols import list_views
from chestfed.studies.experiment.device import Machine
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.quick import IMAGES as QUICK_IMAGES
from chestfed.studies.experiment.quick import SCORED_IMAGES as QUICK_SCORED_IMAGES
from chestfed.studies.training.data.clients import ClientData, NoImages, TestSet, make_test_set, pool_tests
from chestfed.studies.training.data.features import check_features, open_features
from chestfed.studies.training.data.overlap import SiteOverlap, separate_sites
from chestfed.studies.training.data.prevalence import thin_positives
from chestfed.studies.training.data.sites import (
    OWN_TEST,
    SCORED_ROLES,
    TEST,
    TRAIN,
    UNUSED,
    VALID,
    StudySite,
    left_out_views,
    limit_scored,
    limit_training,
    permute_labels,
    refuse_unlabeled,
)
from chestfed.studies.training.data.trained_patients import refuse_trained
from chestfed.studies.training.reporting import current


@dataclass(frozen=True, eq=False)
class Experiment:
    """One study: what is configured, the sites' rows and, once `load_images` has them, the images, and the machine.

    `sites` is empty for a public collection, and where hospitals keep their images: these have clients at once.
    """

    pipeline: Pipeline
    machine: Machine
    sites: tuple[StudySite, ...] = ()
    joins: Mapping[str, int] = field(default_factory=dict)  #: site scored on patients of its own -> from which K on
    reasons: Mapping[str, str] = field(default_factory=dict)  #: disease -> why the sites' labels give it no AUC
    clients: tuple[ClientData, ...] = ()  #: in the order of addition
    test: TestSet = field(default_factory=TestSet.blank)  #: what every evaluated round is scored on
    hospitals: Mapping[str, TestSet] = field(default_factory=dict)  #: scored by the finished model of each K
    validation: Mapping[str, TestSet] = field(default_factory=dict)  #: of hospitals, to choose settings on
    digests: Mapping[str, str] = field(default_factory=dict)  #: keyed digest of each client, and of the `test set`
    quarantined: Mapping[str, Sequence[Problem]] = field(default_factory=dict)  #: site -> unreadable images, left out
    shared: tuple[SiteOverlap, ...] = ()
    members: Mapping[int, Sequence[str]] = field(default_factory=dict)  #: K -> its clients, where some have left

    def list_clients(self, k: int) -> tuple[ClientData, ...]:
        """The clients of K: the first `k`, without those that left before it began."""
        first = self.clients[:k]
        return tuple(client for client in first if client.name in self.members[k]) if k in self.members else first

    @property
    def diseases(self) -> tuple[str, ...]:
        return self.pipeline.tasks

    @property
    def held_out(self) -> str | None:
        """The site that the test images are from, if none of the clients is."""
        return None if self.pipeline.held_out is None else self.pipeline.held_out.sites[0]

    @property
    def origin(self) -> Origin:
        """Origin of all clients and the test set together."""
        if not self.clients:
            return Origin.together(site.table.origin for site in self.sites)
        return Origin.together([*(client.origin for client in self.clients), self.test.origin])

    def find_model_origin(self, k: int) -> Origin:
        """Origin of the images that the model of K is trained on: stage 1 is the first client's."""
        return Origin.together(client.origin for client in (*self.clients[:1], *self.list_clients(k)))

    @property
    def notes(self) -> dict[str, list[str]]:
        """Site -> what its labels do not show by themselves, and images of its test split that are not used."""
        notes = {site.name: [*site.table.notes, *filter(None, [site.idle_test])] for site in self.sites}
        return {name: of_site for name, of_site in notes.items() if of_site}

    def find_lacking(self, k: int) -> dict[str, str]:
        """Diseases that the training images of the clients of K do not have in both classes: what is missing."""
        ratios = np.stack([client.positive_ratios() for client in self.list_clients(k)])
        present = {"labels": ~np.isnan(ratios), "positives": ratios > 0, "negatives": ratios < 1}
        missing = [(what, ~known.any(axis=0)) for what, known in present.items()]
        lacking = {disease: [what for what, none in missing if none[j]] for j, disease in enumerate(self.diseases)}
        return {disease: what[0] for disease, what in lacking.items() if what}

    def at(self, place: int) -> Experiment:
        """Experiment of one of several processes; see `Machine.at`."""
        return replace(self, machine=self.machine.at(place))

    def select_scored(self) -> tuple[dict[str, SiteTable], dict[str, SiteTable]]:
        """By site the rows of the test set, and those that the finished models are scored on as the hospital's own.

        Where both are the same rows, they are the same table.
        """
        tests = {site.name: site.select(TEST) for site in self.sites if len(site.find(TEST))}
        hospitals = {}
        for site in self.sites:
            if len(site.find(OWN_TEST)):
                hospitals[site.name] = site.select(OWN_TEST)
            elif site.name in self.joins and site.name in tests:
                hospitals[site.name] = tests[site.name]
        return tests, hospitals


def make_experiment(pipeline: Pipeline, sites: Sequence[StudySite], machine: Machine) -> Experiment:
    """The rows of one study; of a pipeline with `held_out`, the study of the only site that it lists.

    Raises
    ------
    ConfigError
        If the test set is empty, or the first site, which is evaluated on, lacks labels.
    """
    refuse_unlabeled(pipeline.diseases, [disease for site in sites for disease in site.labeled])
    if pipeline.held_out is not None:
        return _hold_out_site(pipeline, sites, machine)
    for place, site in enumerate(sites):
        if (place == 0 or site.entry.test_fraction is not None) and not len(site.find(TEST)):
            split = pipeline.evaluation.split
            raise _empty_test_error(site.table, f"evaluation.split: {split}", split, pipeline)
    lacking = [disease for disease in pipeline.diseases if disease not in sites[0].labeled]
    if lacking:
        raise ConfigError(
            f"site '{sites[0].name}' is the target and does not label {', '.join(lacking)}: nothing could be evaluated "
            "there. Change 'diseases' in the pipeline, or the site's YAML"
        )
    joins = list_joins(pipeline, {site.name: len(site.clients) for site in sites})
    is_tuned = pipeline.alternatives is not None and pipeline.alternatives.needs_validation
    if pipeline.alternatives is not None:
        pipeline.alternatives.refuse_unknown([site.name for site in sites])
    study: list[StudySite] = []
    for place, site in enumerate(sites):
        target = site.clients[0] if place == 0 else ""
        site = change_rows(site, pipeline.training_seed, target, quick=pipeline.quick)
        if site.name not in joins:
            site = site.move([OWN_TEST], UNUSED, "test images of a hospital that is not scored on its own patients")
        has_test = len(site.find(OWN_TEST)) or (site.name in joins and len(site.find(TEST)))
        study.append(site if is_tuned and has_test else site.move([VALID], UNUSED, "set aside for validation"))
    return Experiment(pipeline, machine, tuple(study), joins)


def make_selection(
    pipeline: Pipeline, sites: Sequence[StudySite], machine: Machine, *, alone: bool = False
) -> Experiment:
    """The rows of a search for settings: validation patients replace the test set, which is excluded.

    `alone`: also those of hospitals that are not in the test set, for settings of their own data.
    """
    experiment = make_experiment(pipeline, sites, machine)
    selection = []
    for used, site in zip(experiment.sites, sites, strict=True):
        chosen = site.find(VALID) if len(site.find(TEST)) else np.zeros(0, np.int64)
        if len(site.find(TEST)) and not len(chosen):
            raise ConfigError(
                "no validation image has the views of evaluation.protocol: set a larger validation_fraction at the site"
            )
        of_others = site.find(VALID) if alone and not len(site.find(TEST)) else np.zeros(0, np.int64)
        used = used.move(SCORED_ROLES, UNUSED, "not read by a search for settings")
        role, reason = (used.table.frame[name].to_numpy(dtype=object, copy=True) for name in ("role", "reason"))
        role[chosen], reason[chosen] = TEST, ""
        role[of_others], reason[of_others] = VALID, ""
        selection.append(used.with_columns(role=role, reason=reason))
    return replace(experiment, sites=tuple(selection), joins={})


def with_label_clients(experiment: Experiment) -> Experiment:
    """The experiment whose clients have labels and no images, where they are not loaded; for counts and shares."""
    parts = [(name, site.select(TRAIN, name)) for site in experiment.sites for name in site.clients]
    clients = [
        ClientData(name, NoImages(len(part.frame)), part.labels(), part.frame["repeats"].to_numpy(), part.origin)
        for name, part in parts
    ]
    return replace(experiment, clients=experiment.clients or tuple(clients))


def list_joins(pipeline: Pipeline, clients: Mapping[str, int]) -> dict[str, int]:
    """Sites with an AUC of their own, and the first K that each takes part in; empty if there is only one site.

    `clients` are the number of clients of each site, in the order of addition.
    """
    before = itertools.accumulate(clients.values(), initial=0)
    joins = {
        name: next(k for k in pipeline.k if k > first)
        for name, first in zip(clients, before, strict=False)
        if first < max(pipeline.k)
    }
    return joins if len(joins) > 1 and pipeline.evaluation.hospitals == "own_test" else {}


def change_rows(site: StudySite, seed: int, target: str = "", *, quick: bool) -> StudySite:
    """The site with the share of positives, the negative control and the number of images that its entry asks for.

    `target` is the client that alone has so many images, if the site has several.
    """
    site = thin_positives(site, seed)
    site = permute_labels(site) if site.entry.control == "labels_permuted" else site
    images = site.entry.training_images
    site = limit_scored(site, QUICK_SCORED_IMAGES) if quick else site
    for client in site.clients if quick else ():
        if len(site.find(TRAIN, client)) > QUICK_IMAGES:
            site = limit_training(site, QUICK_IMAGES, seed, client if len(site.clients) > 1 else "")
    if images is None or (quick and images >= QUICK_IMAGES):
        return site
    site = limit_training(site, images, seed, target if len(site.clients) > 1 else "")
    if not all(len(site.find(TRAIN, name)) for name in site.clients):
        text = f"training_images: {images} are fewer than one patient of {site.name} has"
        raise ConfigError(text, kind="no training image", site=site.name)
    return site


def _hold_out_site(pipeline: Pipeline, sites: Sequence[StudySite], machine: Machine) -> Experiment:
    """All other sites train; images of the held-out one are scored, whatever their split."""
    assert pipeline.held_out is not None
    name, images = pipeline.held_out.sites[0], pipeline.held_out.images
    held = next(site for site in sites if site.name == name)
    others = [change_rows(site, pipeline.seed, quick=pipeline.quick) for site in sites if site is not held]
    split, views = None if images == "all" else images, list_views(pipeline.evaluation.protocol)
    frame = held.table.frame
    rows = np.ones(len(frame), bool)
    if split is not None:
        rows &= (frame["split"] == split).to_numpy(dtype=bool)
    if views is not None:
        rows &= frame["view"].isin(list(views)).to_numpy(dtype=bool)
    if not rows.any():
        raise _empty_test_error(held.table, f"held_out.images: {images}", split, pipeline)
    held = replace(held, clients=()).with_columns(
        role=np.where(rows, TEST, UNUSED), client="", reason=np.where(rows, "", "held out: its split or view")
    )
    held = limit_scored(held, QUICK_SCORED_IMAGES) if pipeline.quick else held
    training = [site.select(TRAIN).labels() for site in others]
    untaught = [
        disease for j, disease in enumerate(pipeline.diseases) if all(np.isnan(part[:, j]).all() for part in training)
    ]
    people_scored = held.select(TEST)
    facts = held.facts | {"people": people(people_scored.with_frame(people_scored.frame.iloc[:0]), people_scored)}
    held = replace(_blank_labels(held, untaught), facts=facts)
    if pipeline.evaluation.hospitals == "own_test":
        others = [site.move([TEST], OWN_TEST) for site in others]
    else:
        others = [site.move([TEST, OWN_TEST], UNUSED, "evaluation.hospitals: none") for site in others]
    others = [_blank_labels(site.move([VALID], UNUSED, "set aside for validation"), untaught) for site in others]
    by_name = {site.name: site for site in (held, *others)}
    reasons = dict.fromkeys(untaught, "no site that was trained on labels it")
    unlabeled = [disease for disease in pipeline.diseases if disease not in held.labeled]
    reasons |= dict.fromkeys(unlabeled, f"{name} does not label it")
    return Experiment(pipeline, machine, tuple(by_name[site.name] for site in sites), reasons=reasons)


def _blank_labels(site: StudySite, diseases: Sequence[str]) -> StudySite:
    """The site without the labels of diseases that no client has: its training rows have none."""
    return site.with_columns(**dict.fromkeys(diseases, np.float32(np.nan))) if diseases else site


def _empty_test_error(table: SiteTable, key: str, split: str | None, pipeline: Pipeline) -> ConfigError:
    protocol = pipeline.evaluation.protocol
    counts = table.frame["split"].value_counts()
    there = ", ".join(f"{name} ({count:,} images)" for name, count in counts.items() if count and name in SPLITS)
    views = left_out_views(table, split)
    others = [name for name in ("test", "valid") if counts.get(name, 0) and name != split]
    setting = f"set {key.partition(':')[0]}: {others[0]}" if others else "give the site a test_fraction in `sites`"
    advice = "" if views else f". It has {there}: {setting}"
    text = f"site '{table.name}' has no image for {key} with protocol {protocol}{views}{advice}"
    return ConfigError(text, kind="no test image", site=table.name, key=key)


def check_cache(experiments: Sequence[Experiment], cache_root: Path) -> None:
    """Make sure that what `load_images` decodes has room."""
    preprocess, needed = experiments[0].pipeline.preprocess, Counter[Path]()
    for table, _ in _unite(experiments).values():
        folder = find_cache(cache_root, table.cache_name, table.root)
        needed[folder] += lacking_bytes(table.as_cached(), cache_root, preprocess)
    for folder, size in needed.items():
        if not folder.is_dir():  # a complete one may be there to read only
            check_folder(folder, "--cache")
        check_room(folder, size, "the decoded images", "--cache")
        if (copies := find_copies(folder)) is not None:
            check_room(copies.parent, size, "the decoded images", f"${VARIABLE}")


def _unite(experiments: Sequence[Experiment]) -> dict[str, tuple[SiteTable, np.ndarray]]:
    """Per site the rows that any of the studies reads, and the place of each row of the site among them."""
    versions, united = dict[str, list[StudySite]](), {}
    for site in (site for experiment in experiments for site in experiment.sites):
        versions.setdefault(site.name, []).append(site)
    for name, sites in versions.items():
        rows, table = np.logical_or.reduce([site.in_use for site in sites]), sites[0].table
        united[name] = table.with_frame(table.frame[rows].reset_index(drop=True)), np.cumsum(rows) - 1
    return united


def load_images(
    experiments: Sequence[Experiment], cache_root: Path, *, skip_unreadable: bool = False, key: SiteKey | None = None
) -> list[Experiment]:
    """Decode what is not cached yet, and cut clients and test sets of each study; a site has the same rows in all.

    `key` makes the keyed names; None: that of this machine. Decoding is reported as `Reporter.decoding`.

    Raises
    ------
    SiteError
        All missing or unreadable images, unless `skip_unreadable`; then they are counted and left out.
    ConfigError
        If two sites share images or patients, unless these are to be left out; if none of the images that a client
        trains on, or that are scored, can be read; as `check_features` and `refuse_trained`, before any is decoded.
    ChestfedError
        If there are real patients and their key file can't be used.
    """
    first = experiments[0]
    for experiment in experiments:
        check_features(experiment.pipeline)
        refuse_trained(experiment.sites, experiment.pipeline.model)
    key = key or key_for(public=all(site.table.phantoms for study in experiments for site in study.sites))
    reporters = current()
    united = _unite(experiments)
    images = fill_caches(
        {name: table.as_cached() for name, (table, _) in united.items()},
        cache_root,
        first.pipeline.preprocess,
        skip_unreadable=skip_unreadable,
        progress=partial(reporters.bind, "decoding"),
    )
    places = {name: place for name, (_, place) in united.items()}
    quarantined = {name: list(filled.quarantined) for name, filled in images.items() if filled.quarantined}
    kept = next(iter(images.values())).database.home  # where the first site's images are
    cuts = {"": StudyImages(images, places, key)}
    separate = cache(lambda sites: separate_sites(sites, cuts[""].take, first.pipeline.overlap, key))
    loaded = []
    for experiment in experiments:
        sites, shared = separate(experiment.sites)
        store, digest = open_features(experiment.pipeline, experiment.machine, kept)
        cut = cuts.setdefault(digest, StudyImages(images, places, key, store))
        loaded.append(_load(replace(experiment, sites=sites, shared=shared, quarantined=quarantined), cut))
    return loaded


class StudyImages:
    """The images of some rows; what several studies have in common is made once."""

    def __init__(
        self,
        images: Mapping[str, CachedImages],
        places: Mapping[str, np.ndarray],
        key: SiteKey,
        features: FeatureStore | None = None,
    ) -> None:
        self._images, self._places, self._key, self._features = images, places, key, features
        self._made: dict[Hashable, Any] = {}

    def take(self, site: StudySite, rows: np.ndarray) -> CachedImages:
        """The images of these rows of a site, int `[n]`."""
        return self._images[site.name].take(self._places[site.name][rows])

    def make_client(self, site: StudySite, name: str) -> tuple[ClientData, str]:
        """A client that the site is cut into, and its digest."""
        rows, table = site.find(TRAIN, name), site.select(TRAIN, name)

        def make() -> tuple[ClientData, str]:
            images, noise = self.take(site, rows), site.entry.control == "noise" and site.is_control(name)
            shown = NoiseImages(images, site.seed, name) if noise else images
            given = self._give(shown)
            client = ClientData(name, given, table.labels(), table.frame["repeats"].to_numpy(), table.origin)
            return client, client.digest(self._key)

        return self._make_once((name, rows.tobytes(), table.labels().tobytes()), make)

    def make_test(self, site: StudySite, role: str, *, own_statistics: bool) -> TestSet:
        """The images of a role that are scored, with the training images that their statistics are from, if any."""
        rows, table, images = site.find(role), site.select(role), self.take
        training = [site.find(TRAIN, name) for name in site.clients] if own_statistics else []

        def make() -> TestSet:
            training_images = PooledImages([images(site, part) for part in training]) if training else None
            test = make_test_set(table, images(site, rows), self._key, training_images)
            return replace(test, images=self._give(test.images), split=site.name_split(role))

        parts = (rows.tobytes(), table.labels().tobytes(), *(part.tobytes() for part in training))
        return self._make_once((site.name, role, *parts), make)

    def digest(self, test: TestSet) -> str:
        return test.digest(self._key)

    def _give(self, images: Images) -> Images:
        """Input of the network: pixels, or their features."""
        return images if self._features is None else self._features.load(images)

    def _make_once(self, what: Hashable, make: Callable[[], Any]) -> Any:
        if what not in self._made:
            self._made[what] = make()
        return self._made[what]


def _load(experiment: Experiment, cut: StudyImages) -> Experiment:
    """The study with its clients and test sets; of hospitals those of which an image can be read."""
    pipeline, sites = experiment.pipeline, experiment.sites
    own_statistics = pipeline.evaluation.batch_norm == "own" and not isinstance(pipeline.model, FeatureOptions)
    clients = [cut.make_client(site, name) for site in sites for name in site.clients]
    tests, hospitals, validation = dict[str, TestSet](), dict[str, TestSet](), dict[str, TestSet]()
    for site in sites:
        for role, sets in ((TEST, tests), (OWN_TEST, hospitals), (VALID, validation)):
            if len(site.find(role)):
                sets[site.name] = cut.make_test(site, role, own_statistics=own_statistics)
        if site.name in experiment.joins and site.name in tests:
            hospitals[site.name] = tests[site.name]
    lost = [f"the training images of {client.name}" for client, _ in clients if not client.training_rows]
    lost += [f"the test images of {name}" for name, test in tests.items() if not len(test.labels)]
    if lost:
        text = f"none can be read of {', of '.join(lost)}: restore the files, or leave the site out"
        raise ConfigError(text, kind="no readable image", parts=lost)
    if not tests:  # a hospital of a federation that is not the target
        tests[sites[0].name] = cut.make_test(sites[0], TEST, own_statistics=own_statistics)
    test = pool_tests(tests, pipeline.evaluation.over_hospitals)
    return replace(
        experiment,
        clients=tuple(client for client, _ in clients),
        test=test,
        hospitals={name: hospital for name, hospital in hospitals.items() if len(hospital.labels)},
        validation=validation,
        digests={client.name: digest for client, digest in clients} | {"test set": cut.digest(test)},
    )
