"""A resolved pipeline as plain data: the part that names its runs, and what may be shown of it elsewhere."""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePath
from typing import Any

from chestfed.core.config import drop_added
from chestfed.core.errors import ConfigError
from chestfed.core.plugins import Catalogue
from chestfed.data.collections.collection import COLLECTIONS
from chestfed.learning.algorithms import ALGORITHMS
from chestfed.learning.exchange.exchange import STEPS, chooses, list_specs
from chestfed.learning.models import MODELS, FeatureOptions, load_frozen
from chestfed.learning.models.pretrained import find_initial_weights
from chestfed.learning.objectives import OBJECTIVES
from chestfed.studies.experiment.pipeline import Evaluation, Pipeline
from chestfed.studies.experiment.stage_2 import get_part_name, idle_keys

#: Keys that say where things are or how fast they are read, and never what comes out.
_NOT_IDENTITY = (
    ("title",),
    ("titles",),
    ("data_root",),
    ("method",),
    ("tuning",),
    ("published",),
    ("alternatives",),  # beside the models of every K; their folders know their own settings
    ("engine",),
    ("overlap",),  # what it leaves out is missing in the digests of the sites' content
    ("runtime", "loader_workers"),
    ("runtime", "recompute"),  # the same bits
    ("evaluation", "interval"),  # made anew from the stored scores
    ("evaluation", "hospitals"),  # scored by the stored models
)


#: Keys of steps of the exchange that every identity has: it had them before a step could be added.
_IN_EVERY_IDENTITY = frozenset({"aggregation", "trim", "compression", "privacy", "server_optimizer"})


def identity(pipeline: Pipeline) -> dict[str, Any]:
    """The part of the resolved configuration that determines the result, as plain data.

    With the code of every plug-in that takes part, see `chestfed.core.plugins.code`, and the content of files of
    weights.
    """
    data = describe_settings(pipeline)
    if pipeline.model.initial_weights is not None:  # what is in the file, not where it lies
        file = find_initial_weights(pipeline.model.initial_weights, MODELS.find(pipeline.model.name))
        data["model"]["initial_weights"] = hash_file("model.initial_weights", file)
    if isinstance(pipeline.model, FeatureOptions):
        data["model"]["network"] = load_frozen(pipeline.model).digest
    return data


def describe_settings(pipeline: Pipeline) -> dict[str, Any]:
    """The identity without the content of files of weights, which are only named and need not be there."""
    data = pipeline.model_dump(mode="json")
    for *parents, last in _NOT_IDENTITY:
        section = data
        for parent in parents:
            section = section[parent]
        del section[last]
    for entry in data["sites"]:  # what the sites hold is in the digests of their content
        del entry["config"], entry["root"], entry["control"], entry["training_images"]
        entry.pop("positives", None)
    data["evaluation"]["resamples"] = Evaluation().resamples  # made anew from the stored scores
    if data["collection"] is not None:
        del data["collection"]["root"], data["collection"]["download"]
    _without_idle_keys(data, pipeline)
    if pipeline.model.initial_weights is not None:
        data["model"]["initial_weights"] = PurePath(pipeline.model.initial_weights).name
    return data | {"plugins": plugin_digests(pipeline)}


def shareable(pipeline: Pipeline) -> dict[str, Any]:
    """The resolved configuration without places on this machine: a file keeps its name, a folder nothing."""
    data = pipeline.relocate(lambda _, text: PurePath(text).name).model_dump(mode="json")
    data["data_root"] = None
    for entry in data["sites"]:
        entry |= {"config": PurePath(entry["config"]).name, "root": None}
    if data["collection"] is not None:
        data["collection"]["root"] = None
    return _without_idle_keys(data, pipeline)


def _without_idle_keys(data: dict[str, Any], pipeline: Pipeline) -> dict[str, Any]:
    """The data without keys that the algorithm does not use and refuses, and without later ones at their defaults."""
    for key in idle_keys(pipeline.federated.spec):
        del data["federated"][key]
    for spec in list_specs():
        if not chooses(spec, pipeline.federated):
            for key in spec.fields.keys() - _IN_EVERY_IDENTITY:
                del data["federated"][key]
    drop_added(pipeline, data)
    return data


def hash_file(key: str, path: Path) -> str:
    """SHA-256 of a file that `key` of a pipeline names; raises `ConfigError` if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(
            f"{key}: {path} cannot be read: {error.strerror}", kind="unreadable weights", key=key
        ) from None


def plugin_digests(pipeline: Pipeline) -> dict[str, str]:
    """The parts of a pipeline that are not built in, and what identifies the code of each."""
    settings = pipeline.federated
    named: list[tuple[Catalogue[Any], str]] = [
        (ALGORITHMS, settings.algorithm.name),
        (OBJECTIVES, get_part_name(settings.objective)),
        (MODELS, pipeline.model.name),
    ]
    if pipeline.collection is not None and ":" in pipeline.collection.name:  # others: by their content
        named.append((COLLECTIONS, pipeline.collection.name))
    named += [(STEPS, spec.name) for spec in list_specs() if chooses(spec, settings)]
    digests = {name: catalogue.digest(name) for catalogue, name in named}
    return {name: digest for name, digest in digests.items() if digest is not None}
