"""Files of a study in its run folder, besides its tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from torch import Tensor

from chestfed.core.checkpoint import (
    json_text,
    load_checkpoint,
    read_json,
    save_checkpoint,
    write_json,
    write_text,
)
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.manifest import MANIFEST, Part, find_damage, write_manifest
from chestfed.core.provenance import Origin
from chestfed.learning.models import MODELS, FlatModule, build_model, name_network
from chestfed.results.evaluation.protocols import describe_hospitals
from chestfed.results.tables.frames import Row
from chestfed.results.tables.predictions import predictions_frame, stored_groups, write_predictions
from chestfed.results.tables.run_folder import (
    COMMON_FILE,
    FILES_OF_K,
    HOSPITALS,
    HOSPITALS_FILE,
    MODEL_FILE,
    PREDICTIONS,
    RESULT,
    ROUNDS,
    SITES,
    STUDY,
    read_predictions,
)
from chestfed.studies.experiment.device import Machine
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.resolved import shareable
from chestfed.studies.training.data.clients import TestSet
from chestfed.studies.training.data.experiment import Experiment
from chestfed.studies.training.identity import identify, identify_settings, installed_packages, software_versions
from chestfed.studies.training.loop import History, Trained, name_common_model
from chestfed.studies.training.reporting import warn


def write_identity(folder: Path, experiment: Experiment) -> None:
    """Write `study.json`, or bring what is not in its digest up to date: the title, or the method of the intervals.

    Versions and packages stay those that the numbers are of.
    """
    pipeline, identity = experiment.pipeline, identify(experiment)
    asked: dict[str, Any] = {
        "title": pipeline.title,
        "settings": identity.settings,
        "configuration": shareable(pipeline),
        "stage_batches": pipeline.federated.stage_batches,
    }
    asked["scored"] = describe_test_set(experiment)
    if experiment.sites:
        asked["cut_seed"] = experiment.sites[0].seed  # of patients: the first of several training seeds
    if (folder / STUDY).exists():
        stored = read_json(folder / STUDY)
        if stored | asked != stored:
            write_json(folder / STUDY, stored | asked)
        return
    value = {
        "digest": identity.digest,
        **experiment.origin.keys(),
        "key": experiment.test.key,
        **asked,
        "inputs": identity.inputs,
        "quarantined": {site: len(problems) for site, problems in experiment.quarantined.items()},
        "notes": experiment.notes,
        "shared": [asdict(pair) for pair in experiment.shared],
        "results_version": identity.results_version,
        "machine": identity.machine,
        "versions": software_versions(),
        "packages": installed_packages(),
    }
    write_json(folder / STUDY, value)


def find_finished(out: Path, name: str, pipeline: Pipeline, machine: Machine) -> dict[str, list[int]]:
    """Names of run folders with these settings and sites, on whatever images, and the K that are finished in each."""
    settings, sites, finished = identify_settings(pipeline, machine).settings, _list_configs(shareable(pipeline)), {}
    for file in sorted(out.glob(f"*{name}-*/{STUDY}")):
        with suppress(ChestfedError, AttributeError, KeyError, TypeError):  # damaged: the study itself makes it again
            stored = read_json(file)
            if stored.get("settings") == settings and _list_configs(stored["configuration"]) == sites:
                finished[file.parent.name] = [k for k in pipeline.k if (file.parent / f"k{k}" / RESULT).is_file()]
    return finished


def _list_configs(configuration: Mapping[str, Any]) -> list[str]:
    return [entry["config"] for entry in configuration["sites"]]


def write_hospitals(folder: Path, experiment: Experiment) -> None:
    """Write `hospitals.json`: the hospitals that every K is scored on, and the first K that each takes part in.

    That of an earlier run that scored hospitals is removed by one that scores none.
    """
    if not experiment.joins:
        (folder / HOSPITALS_FILE).unlink(missing_ok=True)
        return
    hospitals = [
        dict(zip(("name", "images", "patients"), (name, *test.counts), strict=True))
        | {"joins": experiment.joins[name], "is_test_set": test is experiment.test}
        | {"protocol": f"{experiment.pipeline.evaluation.protocol}, {test.split}"}
        | {"scored_with": _name_common_model(experiment, [name])}
        for name, test in experiment.hospitals.items()
    ]
    write_json(
        folder / HOSPITALS_FILE,
        {"hospitals": hospitals, "untested": sorted({*experiment.joins} - {*experiment.hospitals})},
    )


def predictions_match(folder: Path, test: TestSet) -> bool:
    """Whether predictions in a folder, if they can be read, are of these images, in this order, with these labels.

    A hospital that keeps its scores leaves no predictions here.
    """
    try:
        stored = read_predictions(folder / PREDICTIONS)
    except ConfigError:  # missing or damaged, which is looked at before it is used
        return True
    labels = stored.reindex(columns=[f"label_{disease}" for disease in test.diseases]).to_numpy(np.float32)
    return stored["image"].to_list() == list(test.image_names) and np.array_equal(labels, test.labels, equal_nan=True)


def groups_changed(folder: Path, test: TestSet) -> bool:
    """Whether sex, age or view of these images are others than in the predictions: no number of a study shows them."""
    stored, now = (
        read_predictions(folder / PREDICTIONS).filter(regex="^group_").astype("str"),
        stored_groups(test.groups),
    )
    return [*stored] != [*now] or not all(stored[name].equals(now[name]) for name in now)


def write_rounds(folder: Path, history: History) -> None:
    write_text(folder / ROUNDS, "".join(json.dumps(entry) + "\n" for entry in history))


def write_model(folder: Path, trained: Trained, experiment: Experiment, origin: Origin) -> None:
    """Write `model.safetensors`: weights, architecture, diseases, preprocessing, and the `origin` of what trained it.

    Where clients have points of their own it is the target's. Those of other hospitals are in their folders, and the
    one for all other images is `common.safetensors`.
    """
    network, points, of_target = trained.network, trained.points, trained.point
    if points is not None and points.local:
        assert trained.buffers is not None
        of_target = points.at(experiment.test.target)
        write_weights(folder / COMMON_FILE, network, points.common.primal, trained.buffers, experiment, origin)
        for name, point in points.local.items():
            if name == experiment.test.site:
                continue  # it is the model itself
            hospital_folder = folder / HOSPITALS / name
            hospital_folder.mkdir(parents=True, exist_ok=True)
            write_weights(hospital_folder / MODEL_FILE, network, point.primal, trained.buffers, experiment, origin)
    write_weights(folder / MODEL_FILE, network, of_target.primal, trained.outputs.buffers, experiment, origin)


def write_weights(
    file: Path, network: FlatModule, primal: Tensor, buffers: Tensor, experiment: Experiment, origin: Origin
) -> None:
    """Write the network with these weights `[>= d]` and buffers."""
    pipeline = experiment.pipeline
    network.bind(primal)
    network.load_buffers(buffers)
    values = {
        "model": pipeline.model.model_dump(mode="json"),
        "model_source": MODELS.digest(pipeline.model.name),
        "diseases": list(experiment.diseases),
        "input": f"float32 [n, 3, {pipeline.preprocess.size}, {pipeline.preprocess.size}], see docs/images.md",
        "preprocess": pipeline.preprocess.model_dump(mode="json"),
        "output": "logits [n, diseases]",
        **origin.keys(),
    }
    save_checkpoint(file, network.state_dict(), values)


def read_model(folder: Path, experiment: Experiment, name: str = MODEL_FILE) -> FlatModule:
    """The network of a folder."""
    model = experiment.pipeline.model.model_copy(update={"initial_weights": None})
    module = build_model(model, len(experiment.diseases), experiment.pipeline.seed)
    tensors, _ = load_checkpoint(folder / name)
    module.load_state_dict(tensors)
    return FlatModule(module, experiment.machine.device, channels_last=experiment.machine.channels_last)


def write_result(folder: Path, part: Part, row: Row, scores: np.ndarray, test: TestSet) -> None:
    """Write `predictions.parquet`, the manifest, and `result.json`, whose presence says that all of the folder is.

    Where scores stay at a hospital there are no predictions.
    """
    if row.scores_stay:
        (folder / PREDICTIONS).unlink(missing_ok=True)
    else:
        frame = predictions_frame(test.image_names, test.patient_names, test.attach_scores(scores), test.groups)
        frame.attrs = {"key": test.key}
        write_predictions(folder / PREDICTIONS, frame)
    result = json_text(row.to_plain())
    write_manifest(folder, part, {*FILES_OF_K} - {RESULT}, {RESULT: result})
    write_text(folder / RESULT, result)


def describe_test_set(experiment: Experiment) -> dict[str, Any]:
    """The test set for captions: `scored` in `study.json`."""
    images, patients = experiment.test.counts[:2]
    model = name_network(experiment.pipeline.model)
    about = {"model": model, "protocol": _describe_protocol(experiment), "images": images, "patients": patients}
    sites = [part.site for part in experiment.test.parts or (experiment.test,)]
    return about | {"scored_with": _name_common_model(experiment, sites)}


def _name_common_model(experiment: Experiment, sites: Sequence[str]) -> str:
    clients = [client.name for client in experiment.clients]
    return name_common_model(experiment.pipeline.federated, clients, sites)


def _describe_protocol(experiment: Experiment) -> str:
    pipeline = experiment.pipeline
    if not pipeline.sites:
        return "test images"
    if pipeline.held_out is not None:
        images = "all images" if pipeline.held_out.images == "all" else f"{pipeline.held_out.images} split"
        return f"{pipeline.evaluation.protocol}, {images} of {experiment.held_out}, on which nothing was trained"
    several = describe_hospitals(len(experiment.test.parts), pipeline.evaluation.over_hospitals)
    return f"{pipeline.evaluation.protocol}, {experiment.test.split}{several}"


def remove_damaged(folder: Path, part: Part) -> None:
    """Remove what describes the study and cannot be used, so that it is made again; the tables are so anyway.

    Raises
    ------
    MisplacedError
        If it is the folder of another run.
    """
    if not any((folder / name).exists() for name in (MANIFEST, STUDY)):
        return
    bad = find_damage(folder, part)
    if MANIFEST in bad and not _names_run(folder / STUDY, part):
        bad.append(STUDY)
    for name in bad:
        (folder / name).unlink(missing_ok=True)
        warn(f"{folder / name}: damaged or missing, made again")
    if bad:
        (folder / SITES).unlink(missing_ok=True)  # with its pictures; both depend on the images and the seed alone


def _names_run(file: Path, part: Part) -> bool:
    try:
        return bool(read_json(file).get("digest") == part.run)
    except (ChestfedError, AttributeError):
        return False


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """One process per run folder; the lock goes with the process, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ChestfedError(
            f"{folder}: cannot be created: {error.strerror}. Choose another folder with --out."
        ) from None
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ChestfedError(f"{folder}: another process is running this study. Wait for it, or stop it.") from None
    except OSError as error:
        raise ChestfedError(f"{folder}: cannot be written: {error.strerror}. Choose another with --out.") from None
    try:
        yield
    finally:
        lock.release()
