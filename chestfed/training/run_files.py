"""What a study writes into its run folder, besides its tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np

from chestfed.core.checkpoint import (
    json_text,
    load_checkpoint,
    read_json,
    save_checkpoint,
    write_json,
    write_text,
)
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.manifest import Part, write_manifest
from chestfed.experiment.device import Machine
from chestfed.experiment.pipeline import Pipeline
from chestfed.experiment.resolved import shareable
from chestfed.models import MODELS, FlatModule, build_model
from chestfed.results.files import read_predictions
from chestfed.results.predictions import predictions_frame, stored_groups, write_predictions
from chestfed.results.run_folder import FILES_OF_K, HOSPITALS_FILE, MODEL_FILE, PREDICTIONS, RESULT, ROUNDS, STUDY
from chestfed.results.table import Row
from chestfed.training.clients import Setup, StudyData, TestSet
from chestfed.training.identity import Identity, installed_packages, settings_of, software_versions
from chestfed.training.loop import History, Trained


def write_identity(
    folder: Path, pipeline: Pipeline, this: Identity, data: StudyData, scored: Mapping[str, object]
) -> None:
    """Write `study.json`, or bring what is not in its digest up to date: the title, or the method of the intervals.

    `scored` describes the test set. Versions and packages stay those that the numbers are of.
    """
    asked = {"title": pipeline.title, "settings": this.settings, "configuration": shareable(pipeline)}
    asked["scored"] = scored
    if (folder / STUDY).exists():
        stored = read_json(folder / STUDY)
        if stored | asked != stored:
            write_json(folder / STUDY, stored | asked)
        return
    value = {
        "digest": this.digest,
        **data.origin.keys(),
        "key": data.test.key,
        **asked,
        "inputs": this.inputs,
        "quarantined": {site: len(problems) for site, problems in data.quarantined.items()},
        "notes": data.notes,
        "shared": [asdict(pair) for pair in data.shared],
        "results_version": this.results_version,
        "machine": this.machine,
        "versions": software_versions(),
        "packages": installed_packages(),
    }
    write_json(folder / STUDY, value)


def finished_in(out: Path, name: str, pipeline: Pipeline, machine: Machine) -> dict[str, list[int]]:
    """Names of run folders with these settings, on whatever images, and the K that are finished in each."""
    wanted, found = settings_of(pipeline, machine).settings, {}
    for file in sorted(out.glob(f"*{name}-*/{STUDY}")):
        with suppress(ChestfedError, AttributeError):  # damaged: the study itself makes it again
            if read_json(file).get("settings") == wanted:
                found[file.parent.name] = [k for k in pipeline.k if (file.parent / f"k{k}" / RESULT).is_file()]
    return found


def write_hospitals(folder: Path, data: StudyData) -> None:
    """Write `hospitals.json`: whose own held-out patients every K is scored on, and from which K on each takes part.

    That of an earlier run that scored hospitals is removed by one that scores none.
    """
    if not data.joins:
        (folder / HOSPITALS_FILE).unlink(missing_ok=True)
        return
    found = [
        dict(zip(("name", "images", "patients"), (name, *test.counts), strict=True))
        | {"joins": data.joins[name], "is_test_set": test is data.test}
        for name, test in data.hospitals.items()
    ]
    write_json(folder / HOSPITALS_FILE, {"hospitals": found, "untested": sorted({*data.joins} - {*data.hospitals})})


def holds(folder: Path, test: TestSet) -> bool:
    """Whether predictions in a folder, if they can be read, are of these images, in this order, with these labels.

    A hospital that keeps its scores leaves no predictions here.
    """
    try:
        found = read_predictions(folder / PREDICTIONS)
    except ConfigError:  # missing or damaged, which is looked at before it is used
        return True
    labels = found.reindex(columns=[f"label_{disease}" for disease in test.diseases]).to_numpy(np.float32)
    return found["image"].to_list() == list(test.image_names) and np.array_equal(labels, test.labels, equal_nan=True)


def regrouped(folder: Path, test: TestSet) -> bool:
    """Whether sex, age or view of these images are others than in the predictions: no number of a study shows them."""
    found, now = (
        read_predictions(folder / PREDICTIONS).filter(regex="^group_").astype("str"),
        stored_groups(test.groups),
    )
    return [*found] != [*now] or not all(found[name].equals(now[name]) for name in now)


def write_rounds(folder: Path, history: History) -> None:
    write_text(folder / ROUNDS, "".join(json.dumps(entry) + "\n" for entry in history))


def write_model(folder: Path, pipeline: Pipeline, trained: Trained, data: StudyData) -> None:
    """Write `model.safetensors`: weights, architecture, diseases and preprocessing."""
    network = trained.network
    network.bind(trained.point.primal)
    network.load_buffers(trained.outputs.buffers)
    values = {
        "model": pipeline.model.model_dump(mode="json"),
        "model_source": MODELS.digest(pipeline.model.name),
        "diseases": list(data.diseases),
        "input": f"float32 [n, 3, {pipeline.preprocess.size}, {pipeline.preprocess.size}], see docs/images.md",
        "preprocess": pipeline.preprocess.model_dump(mode="json"),
        "output": "logits [n, diseases]",
        **data.origin.keys(),
    }
    tensors = network.module.state_dict()
    # Batches since this process began, which nothing reads: a resumed study would have another file for the same model.
    tensors |= {name: tensor * 0 for name, tensor in tensors.items() if name.endswith("num_batches_tracked")}
    save_checkpoint(folder / MODEL_FILE, tensors, values)


def read_model(folder: Path, setup: Setup) -> FlatModule:
    model = setup.pipeline.model.model_copy(update={"initial_weights": None})
    module = build_model(model, len(setup.data.diseases), setup.pipeline.seed)
    tensors, _ = load_checkpoint(folder / MODEL_FILE)
    module.load_state_dict(tensors)
    return FlatModule(module, setup.machine.device, channels_last=setup.machine.channels_last)


def write_result(folder: Path, part: Part, row: Row, scores: np.ndarray, test: TestSet) -> None:
    """Write `predictions.parquet`, the manifest, and `result.json`, whose presence says that all of the folder is.

    Where scores stay at a hospital there are no predictions.
    """
    if row.scores_stay:
        (folder / PREDICTIONS).unlink(missing_ok=True)
    else:
        found = predictions_frame(test.image_names, test.patient_names, test.scored(scores), test.groups)
        found.attrs = {"key": test.key}
        write_predictions(folder / PREDICTIONS, found)
    result = json_text(row.to_plain())
    write_manifest(folder, part, {*FILES_OF_K} - {RESULT}, {RESULT: result})
    write_text(folder / RESULT, result)
