"""Subjects of a search: what gets settings of its own, and the images that it trains on and is scored on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from chestfed.core.errors import ConfigError
from chestfed.learning.objectives.declaration import measure_gradients
from chestfed.results.tables.columns import CENTRALIZED, COMMON, OWN_DATA
from chestfed.studies.experiment.alternatives import centralized_settings
from chestfed.studies.experiment.methods import PipelineFile
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.ranges import Space, find_scaled_keys, select_ranges
from chestfed.studies.experiment.stage_2 import Federated
from chestfed.studies.training.alternatives import isolate
from chestfed.studies.training.assemble import form_federation
from chestfed.studies.training.data.clients import TestSet, pool_tests
from chestfed.studies.training.data.experiment import Experiment
from chestfed.studies.training.data.sites import TEST, TRAIN, VALID, StudySite


@dataclass(frozen=True)
class Subject:
    """One search: a method with the first `k` clients; or with a hospital's own data, or all images in one place.

    `name` is that of its trials.
    """

    name: str
    method: str
    k: int
    kind: str = COMMON
    site: str = ""

    def settings(self, pipeline: Pipeline) -> Federated:
        """Its settings before the search, from the pipeline of its method."""
        settings = pipeline.federated.model_copy(update={"by_k": {}})
        if self.kind != CENTRALIZED:
            return settings
        assert pipeline.alternatives is not None
        return centralized_settings(settings, pipeline.alternatives.centralized or {})

    def experiment(self, data: Experiment, pipeline: Pipeline, settings: Federated) -> Experiment:
        """Its training images, and the validation images in place of a test set."""
        if self.kind == OWN_DATA:
            client = next(client for client in data.clients if client.name == self.site)
            test = data.validation.get(self.site) or _list_parts(data)[self.site]
            return isolate(replace(data, pipeline=pipeline), client, test, settings)
        pipeline = pipeline.model_copy(update={"federated": settings, "k": [self.k], "alternatives": None})
        return replace(data, pipeline=pipeline, test=_select_validation(data, self.k))

    def list_ranges(
        self, data: Experiment, pipeline: Pipeline, chosen: Mapping[str, list[Any] | None]
    ) -> dict[str, Space]:
        """The ranges as they are tried, from the labels of its clients alone; `chosen` are those of the pipeline."""
        settings = self.settings(pipeline)
        clients = [client for client in data.clients if client.name == self.site or self.kind != OWN_DATA]
        pipeline = pipeline.model_copy(update={"federated": settings})
        return self.scale(select_ranges(settings, chosen), replace(data, clients=tuple(clients), pipeline=pipeline))

    def list_scaled(
        self, pipeline: Pipeline, chosen: Mapping[str, list[Any] | None], ranges: Mapping[str, Space]
    ) -> list[str]:
        """Keys whose `ranges`, those of `list_ranges`, are not as the pipeline and the declarations have them."""
        given = select_ranges(self.settings(pipeline), chosen)
        return [key for key, space in ranges.items() if space != given[key]]

    def scale(self, spaces: dict[str, Space], experiment: Experiment) -> dict[str, Space]:
        """The ranges to search: those of step sizes divided by the size of the loss' gradients."""
        unit = measure_gradients(form_federation(experiment, self.k_trained).objective())
        keys = find_scaled_keys(experiment.pipeline.federated)
        return {key: space.scaled(unit) if key in keys else space for key, space in spaces.items()}

    @property
    def k_trained(self) -> int:
        """Clients that train."""
        return 1 if self.kind == OWN_DATA else self.k


def list_subjects(pipeline: PipelineFile, sites: Sequence[StudySite], *, every_k: bool) -> list[Subject]:
    """All searches: the methods at the largest K; or one method at every K, and what else its hospitals could do.

    `sites` have the roles of a search.

    Raises `ConfigError` if several methods are to be searched at every K.
    """
    names, ks = [method.name for method in pipeline.selected_methods], pipeline.resolve().k
    if not every_k:
        return [Subject(name, name, ks[-1]) for name in names]
    if len(names) > 1:
        text = f"--k searches every K of one method, and {len(names)} are selected; name one with --methods"
        raise ConfigError(text, kind="several methods", methods=tuple(names))
    (name,) = names
    subjects = [Subject(f"{name}:K={k}", name, k) for k in ks]
    alternatives = pipeline.alternatives
    if alternatives is None:
        return subjects
    for site in filter(alternatives.includes, _list_alone(sites, ks) if alternatives.own_data else ()):
        subjects.append(Subject(f"{name}:{OWN_DATA}:{site}", name, 1, OWN_DATA, site))
    if alternatives.centralized is not None:
        subjects.append(Subject(f"{name}:{CENTRALIZED}", name, ks[-1], CENTRALIZED))
    return subjects


def _list_alone(sites: Sequence[StudySite], ks: Sequence[int]) -> list[str]:
    """Hospitals that are one client of the largest K, with both classes of a disease in training and validation.

    The target's own data are K=1, if that is trained.
    """
    places = [(site, name) for site in sites for name in site.clients][: ks[-1]]
    return [
        name
        for place, (site, name) in enumerate(places)
        if name == site.name and (place or 1 not in ks)
        if any((_has_both(site, TRAIN) & _has_both(site, role)).any() for role in (TEST, VALID))
    ]


def _has_both(site: StudySite, role: str) -> np.ndarray:
    """The diseases of which the images of a role have both classes, bool `[J]`."""
    labels = site.select(role).labels()
    return (labels == 0).any(axis=0) & (labels == 1).any(axis=0)


def _list_parts(data: Experiment) -> dict[str, TestSet]:
    """The validation images of each hospital."""
    return {part.site: part for part in (data.test.parts or (data.test,))}


def _select_validation(data: Experiment, k: int) -> TestSet:
    """Those of the hospitals among the first `k` clients; all, if none of these has any."""
    clients = {client.name for client in data.list_clients(k)}
    sites = {site.name for site in data.sites if clients & set(site.clients)}
    parts = {name: part for name, part in _list_parts(data).items() if name in sites}
    if len(parts) in (0, len(_list_parts(data))):
        return data.test
    return pool_tests(parts, data.pipeline.evaluation.over_hospitals)
