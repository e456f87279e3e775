"""A study small enough for a test: settings and command lines."""

from __future__ import annotations

import multiprocessing
import pickle
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from chestfed.core.bundled import bundled
from chestfed.core.processes.workers import WorkerContext
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.running import Job
from chestfed.studies.training.data.collection import load_collection
from chestfed.studies.training.data.experiment import Experiment, make_experiment
from chestfed.studies.training.data.sites import open_sites
from tests.command_line import Called, call

FILE = bundled("pipelines") / "source_addition_samples.yaml"

#: What makes any study of the sample hospitals small.
SMALL = [
    "alternatives=null",
    "samples.size=tiny",
    "model.blocks=[1]",
    "pretrain.epochs=0.5",
    "pretrain.batch_size=4",
    "federated.batch_size=2",
    "federated.window=2",
    "federated.stage_steps=4",
    "evaluation.resamples=20",
    "runtime.threads=1",
    "preprocess.size=64",
    "model.pool=4",
]
#: The default study with two K, evaluated every round.
SETTINGS = [*SMALL, "k=[1,2]", "evaluation.every=1"]

#: Validation patients and a gate for `write_three`.
TUNED = [
    *(f"sites.{place}.validation_fraction=0.3" for place in range(3)),
    'alternatives={"fine_tuned": null, "centralized": null, "gate": {}}',
]


def study(*words: str, settings: list[str] = SMALL) -> list[str]:
    """The command line of a study."""
    keys = [part for setting in settings for part in ("--set", setting)]
    return [sys.executable, "-m", "chestfed", "study", *keys, *words]


def command(out: str, *more: str) -> list[str]:
    """That of the default study."""
    return study("--out", out, *more, settings=SETTINGS)


def run(home: Path, words: list[str]) -> Called:
    """Run a command line, without its interpreter, in the folder that has the hospitals."""
    return call(*words[3:], folder=home)


def read_rows(pipeline: Pipeline, file: Path, data: Path) -> Experiment:
    """The rows of a study, whose images are not loaded."""
    return make_experiment(pipeline, open_sites(pipeline, file, data), prepare_machine(pipeline.runtime))


def read_collection(pipeline: Pipeline, data: Path | None = None) -> Experiment:
    """A study of a public collection."""
    return load_collection(pipeline, data, prepare_machine(pipeline.runtime))


class Forks:
    """Jobs run in forks, pickled all the same: a new interpreter, as in cluster jobs, imports for seconds."""

    def __init__(self) -> None:
        self._fork, self.Queue = multiprocessing.get_context("fork"), WorkerContext().Queue

    def preload(self, *modules: str) -> None:
        """Nothing: a fork has what was imported."""

    def Process(self, target: Callable[[Job, Any], None], args: tuple[Job, Any]) -> BaseProcess:
        return self._fork.Process(target=lambda job, to: target(pickle.loads(pickle.dumps(job)), to), args=args)


def write_three(folder: Path) -> Path:
    """A pipeline of three sample hospitals."""
    names = ("chexpert", "chestxray8", "vindr")
    sites = "".join(f"  - config: {bundled('site_configs')}/synthetic/{name}.yaml\n" for name in names)
    file = folder / "three.yaml"
    file.write_text(f"extends: {FILE}\nsites:\n{sites}k: null\n")
    return file


def run_three(folder: Path, *words: str, settings: list[str] = SMALL) -> Called:
    """Run a study of `write_three`."""
    keys = [word for setting in settings for word in ("--set", setting)]
    called = call("study", "three.yaml", *keys, *words, "--no-tracking", folder=folder)
    assert called.code == 0, called.err
    return called
