"""Fields that server and hospitals compare before the first image is read."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch

from chestfed._version import __version__
from chestfed.core.errors import ConfigError
from chestfed.core.plugins.code import find_sources
from chestfed.learning.algorithms import ALGORITHMS
from chestfed.learning.models import MODELS, try_network
from chestfed.learning.objectives import OBJECTIVES
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.resolved import hash_file, identity, plugin_digests, shareable
from chestfed.studies.training.identity import RESULTS_VERSION

_LOCK = "install the locked versions on both sides (requirements/federation.txt): other ones compute other numbers"
#: Field, in the order of comparison -> what to do if it differs.
FIELDS = {
    "chestfed": "install the same version on both sides",
    "results version": "install the same version of chestfed on both sides",
    "Python": _LOCK,
    "torch": _LOCK,
    "NumPy": _LOCK,
    "labels": "the order of the diseases: use one pipeline, and the same version on both sides",
    "preprocessing": "the same version on both sides; images prepared in two ways cannot train one model",
    "pipeline": "a plug-in or a file that the pipeline names differs: install the same on both sides",
    "model": "the network's parameters and buffers: install the same versions of chestfed and of the plug-in",
}


def versions() -> dict[str, str]:
    """The part of the passport that does not depend on the pipeline.

    Of Python major and minor version: its patch releases change no numbers. Of PyTorch without the build (`+cpu`).
    """
    return {
        "chestfed": __version__,
        "results version": str(RESULTS_VERSION),
        "Python": ".".join(map(str, sys.version_info[:2])),
        "torch": torch.__version__.partition("+")[0],
        "NumPy": np.__version__,
    }


def compare_first(pipeline: Pipeline) -> dict[str, str]:
    """Collect the fields compared before an approval is asked for: no network is built, no named file is opened."""
    return versions() | {
        "labels": ", ".join(pipeline.tasks),
        "preprocessing": digest(pipeline.preprocess.model_dump(mode="json")),
    }


def passport(pipeline: Pipeline) -> dict[str, str]:
    """All fields, as this side has them; builds the network once."""
    parameters, buffers = network_sizes(pipeline)
    model = f"{parameters} parameters, {buffers} buffers"
    return compare_first(pipeline) | {"pipeline": digest(identity(pipeline)), "model": model}


def network_sizes(pipeline: Pipeline) -> tuple[int, int]:
    """Numbers of the network's parameters and buffers; builds it once."""
    network = try_network(pipeline.model, len(pipeline.tasks), pipeline.preprocess.size)
    return network.size, network.buffers().numel()


def differences(server: dict[str, str], hospital: dict[str, str]) -> list[str]:
    """One line per field that differs, with both values and what to do; `hospital` may lack what comes later."""
    return [
        f"{name}: the server has {server.get(name)}, the hospital {hospital[name]}: {advice}"
        for name, advice in FIELDS.items()
        if name in hospital and server.get(name) != hospital[name]
    ]


def digest(value: Any) -> str:
    """SHA-256 of plain data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def study_digest(pipeline: Pipeline) -> str:
    """The name of a study, which both sides compute: of what determines its numbers, and its hospitals."""
    return digest([identity(pipeline), shareable(pipeline)["sites"]])


def approval_digest(pipeline: Pipeline) -> str:
    """The digest by which a hospital approves a study: of what the pipeline says, and of the code that then runs.

    The code of chestfed and of the libraries is known by their versions, that of plug-ins by its files. Weights are
    known by the contents of their files, which nothing loads before.
    """
    contents = dict[str, str]()

    def read(key: str, file: str) -> str:
        contents[key] = hash_file(key, Path(file))
        return file

    pipeline.relocate(read)
    return digest([shareable(pipeline), contents, versions(), hash_code(pipeline)])


def hash_code(pipeline: Pipeline) -> dict[str, str]:
    """SHA-256 of the files of each part that is not built in, as they are now."""
    return {name: sha256 for name, (sha256, _) in code_of(pipeline).items()}


def code_of(pipeline: Pipeline) -> dict[str, tuple[str, tuple[Path, ...]]]:
    """The parts of a pipeline that are not built in: SHA-256 of their files' names and contents, and the files."""
    found = dict[str, tuple[str, tuple[Path, ...]]]()
    inner = getattr(pipeline.model, "network", None)  # of frozen features
    inner_name = inner["name"] if isinstance(inner, dict) else pipeline.model.name
    for name in [*plugin_digests(pipeline), *([inner_name] if MODELS.digest(inner_name) else [])]:
        installed = [part.installed[name].value for part in (ALGORITHMS, OBJECTIVES, MODELS) if name in part.installed]
        module = sys.modules.get((installed or [name])[0].partition(":")[0])
        if module is None:
            text = f"{name}: was passed as an object; a federation needs code that lies in files"
            raise ConfigError(text, kind="code without files", name=name)
        sources, total = find_sources(module), hashlib.sha256()
        for file, path in sorted(sources.items()):
            total.update(file.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
        found[name] = (total.hexdigest(), tuple(sources.values()))
    return found


def hospitals_in(pipeline: Pipeline) -> list[str]:
    """The hospitals of a pipeline's sites, in the order of addition: each is named as its YAML's file is."""
    return [PurePath(entry.config).stem for entry in pipeline.sites]


def refuse_what_cannot_be_spread(pipeline: Pipeline) -> None:
    """Refuse a pipeline that needs images in one place."""
    settings, names = pipeline.federated, hospitals_in(pipeline)
    reasons = {
        "collection": pipeline.collection is not None and "a public collection has no hospitals",
        "held_out": pipeline.held_out is not None and "a held-out hospital would be scored in several studies",
        "alternatives": pipeline.alternatives is not None and "they are trained in one process; set it to null",
        "overlap.same_patient_ids": pipeline.overlap.same_patient_ids and "names of patients stay at their hospitals",
        "overlap.found": pipeline.overlap.found == "drop"
        and "images stay at their hospitals, so they are not compared "
        "them; `chestfed key --common` counts the patients that two of them share",
        "engine": pipeline.engine is not None and "leave it out, the hospitals compute",
        "quick": pipeline.quick and "patients are dropped in one process",
        "runtime.dtype": pipeline.runtime.dtype != "float32" and "models travel as float32",
        "algorithm": settings.spec.pooled and f"{settings.spec.name} holds all images in one place",
        "objective": settings.objective_spec.kind == "server-weighted" and "its server looks at images",
        "federated.sampling": settings.sampling is not None and "batches are drawn by class in one process",
        "sites.config": len(set(names)) < len(names) and "two entries stand for one hospital, named as their files are",
        "sites.control": any(entry.control for entry in pipeline.sites) and "a negative control is run in one process",
        "sites.positives": any(entry.positives for entry in pipeline.sites) and "patients are dropped in one process",
        "sites.training_images": any(entry.training_images for entry in pipeline.sites)
        and "patients are dropped in one process",
        "sites.clients": any(entry.clients > 1 for entry in pipeline.sites) and "each hospital is one client",
        "sites.test_fraction": any(entry.test_fraction for entry in pipeline.sites[1:])
        and "test images lie at the first site only",
    }
    problems = {key: reason for key, reason in reasons.items() if reason}
    if problems:
        lines = [f"{key}: {reason}" for key, reason in problems.items()]
        text = "\n".join(["a federation cannot run this pipeline:", *lines])
        raise ConfigError(text, kind="not for a federation", keys=list(problems))
