"""What the source papers' studies take at full size: days, bytes and money, from costs that are measured first.

    python -m benchmarks.scale                              (Tables 3 to 5, and up to 10,000 clients, on this machine)
    python -m benchmarks.scale --images-per-second 1200     (trained on a device, as benchmarks.gpu measures it)
    python -m benchmarks.scale --check                      (also small studies, run and forecast)

Forecasts count work alone: no waiting for disks or networks, no failed runs. Sites have the images of Table 2.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from PIL import Image
from pydicom.uid import JPEG2000Lossless

from benchmarks.__main__ import machine
from benchmarks.speed_parts.prepare import film, write_dicom
from chestfed.core.bundled import bundled
from chestfed.data.images.cache import pixels
from chestfed.data.images.levels import Stored
from chestfed.learning.algorithms.codasca import Codasca
from chestfed.learning.algorithms.variables import Point, byte_count
from chestfed.studies.designs.design import list_variants
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.methods import PipelineFile
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.training.costs import Timings, bytes_per_client_round, time_steps
from chestfed.studies.training.data.experiment import make_experiment
from chestfed.studies.training.data.sites import open_sites
from chestfed.studies.training.plan import plan_study

#: How each site's films are stored: suffix, height, width, bits.
FILMS = {
    "chexpert": (".jpg", 2828, 2320, 8),
    "chestxray8": (".png", 1024, 1024, 8),
    "padchest": (".png", 3000, 2500, 16),
    "mimic_cxr": (".jpg", 3056, 2544, 8),
    "vindr": (".dicom", 3000, 2500, 12),
}
TABLES = {3: "table3_chestxray_ih", 4: "source_addition_densenet121", 5: "source_addition_densenet161"}
CHEXPERT_TEST = 202  # frontal images of its validation split
CLIENTS = (5, 100, 1000, 10_000)
_NUMBERS = 1_000_000
_DAY = 24 * 3600
_NOT_TIMED = Timings(0, 0, 0, 0, 0, None)


@dataclass(frozen=True)
class Costs:
    """Seconds: of a core for films and the server, of the training device for all else.

    Attributes
    ----------
    film
        Site -> preparing one of its images.
    trained, scored
        An image, forward and backward with its input; forward alone.
    updated
        A number of the model, in a local step of CODASCA beside the gradient.
    averaged
        A number of the model, of one client in one round, at the server.
    parameters, buffers
        Of the network.
    """

    film: Mapping[str, float]
    trained: float
    scored: float
    updated: float
    averaged: float
    parameters: int
    buffers: int


@dataclass(frozen=True)
class Work:
    """What a study does: rows of stage 1, images that are scored after a round, and once per K."""

    pipeline: Pipeline
    first_rows: int
    scored: int
    scored_once: int = 0

    def stage_1(self, costs: Costs) -> float:
        """Seconds of the device."""
        steps = self.pipeline.pretrain.steps(self.first_rows)
        return steps * self.pipeline.pretrain.batch_size * costs.trained

    def stage_2(self, costs: Costs, k: int, devices: int = 1) -> float:
        """Seconds of stage 2 with `k` clients, which take turns on the devices, and then of the server."""
        settings = self.pipeline.federated
        clients = settings.taking_part(k)
        step = settings.images_per_step * costs.trained + costs.parameters * costs.updated
        scored = len(self.pipeline.evaluated_rounds) * self.scored + self.scored_once
        turns = math.ceil(clients / devices)
        server = settings.rounds * clients * costs.parameters * costs.averaged
        return settings.steps * turns * step + server + scored * costs.scored


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images-per-second", type=float, help="that DenseNet121 trains on, if not on this machine")
    parser.add_argument("--devices", type=int, default=1, help="devices that clients train on at a time")
    parser.add_argument("--cores", type=int, default=16, help="cores that prepare images at a time")
    parser.add_argument("--price", type=float, default=3.0, help="of a device for an hour, in dollars")
    parser.add_argument("--check", action="store_true", help="run small studies and compare")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {"machine": machine(), "options": {**vars(options), "save": None}}
    films = measure_films()
    found["core seconds per film"] = {site: round(seconds, 4) for site, seconds in films.items()}
    pipelines = {number: load_pipeline(bundled("pipelines") / f"{name}.yaml") for number, name in TABLES.items()}
    costs = {number: measure(pipeline.resolve(), films) for number, pipeline in pipelines.items()}
    if options.images_per_second:  # every network is as much faster as DenseNet121
        faster = options.images_per_second * costs[4].trained
        costs = {
            number: replace(one, trained=one.trained / faster, scored=one.scored / faster, updated=one.updated / faster)
            for number, one in costs.items()
        }
    found["images trained a second"] = {number: round(1 / one.trained, 2) for number, one in costs.items()}
    found["tables"] = {number: _table(one, costs[number], options) for number, one in pipelines.items()}
    found["clients"] = _clients(pipelines[4].resolve(), costs[4], options)
    if options.check:
        found["check"] = check()
    print(json.dumps(found, indent=1))
    if options.save:
        options.save.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _table(pipeline: PipelineFile, costs: Costs, options: argparse.Namespace) -> dict[str, Any]:
    """One of the papers' tables: every study in it."""
    images = table_2()
    shares = [entry.test_fraction or 0.0 for entry in pipeline.sites]
    sites = dict(zip(list(images)[: len(shares)], shares, strict=True))
    scored = round(sum(images[site] * share for site, share in sites.items())) or CHEXPERT_TEST
    variants = list_variants(pipeline, bundled("pipelines") / "any.yaml")
    works = [Work(one.pipeline, images["chexpert"], scored) for one in variants]
    train = sum(work.stage_2(costs, k, options.devices) for work in works for k in work.pipeline.k)
    films_ = sum(images[site] * costs.film[site] for site in sites)
    device = works[0].stage_1(costs) + train
    sent = sum(_sent(work.pipeline, costs, k) for work in works for k in work.pipeline.k)
    return {
        "studies": sum(len(work.pipeline.k) for work in works),
        "images": sum(images[site] for site in sites),
        "core hours to prepare them": round(films_ / 3600, 1),
        "days to prepare them": round(films_ / options.cores / _DAY, 2),
        "days of stage 1": round(works[0].stage_1(costs) / _DAY, 2),
        "days of stage 2": round(train / _DAY, 2),
        "days": round((films_ / options.cores + device) / _DAY, 2),
        "dollars": round(device * options.devices / 3600 * options.price),
        "GB of cache": round(sum(images[site] for site in sites) * pipeline.preprocess.size**2 / 1e9, 1),
        "GB sent": round(sent / 1e9, 1),
    }


def _clients(pipeline: Pipeline, costs: Costs, options: argparse.Namespace) -> dict[str, Any]:
    """One study with many clients: what a round takes, and what its state is."""
    zero = torch.zeros(costs.parameters)
    kept = byte_count(Codasca(1, 0.1, 0.1, server_lr=1.0, prox=0.0).start_client(Point(zero, zero[:5])))
    rounds = pipeline.federated.rounds
    return {
        f"{k:,}": {
            "seconds of a round": round(Work(pipeline, 0, 0).stage_2(costs, k, options.devices) / rounds, 2),
            "of these at the server": round(k * costs.parameters * costs.averaged, 2),
            "GB sent in a round": round(_sent(pipeline, costs, k) / rounds / 1e9, 2),
            "GB of clients' states": round(k * kept / 1e9, 2),
        }
        for k in CLIENTS
    }


def _sent(pipeline: Pipeline, costs: Costs, k: int) -> int:
    """Bytes up and down in a whole stage 2."""
    both = sum(bytes_per_client_round(pipeline, costs.parameters, costs.buffers, k))
    return both * pipeline.federated.taking_part(k) * pipeline.federated.rounds


def table_2() -> dict[str, int]:
    """Images of each site in the source paper's Table 2."""
    with resources.files("chestfed.data.sites").joinpath("paper_table2.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file, comment="#", index_col="site")["samples"].to_dict()


def measure_films() -> dict[str, float]:
    """Seconds of a core for a film of each site, without reading it from a disk."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for site, (suffix, height, width, bits) in FILMS.items():
            path = Path(folder) / f"film{suffix}"
            if suffix == ".dicom":
                write_dicom(path, film(height, width, bits), JPEG2000Lossless)
            else:
                Image.fromarray(film(height, width, bits)).save(path, quality=90)
            work = pixels(load_pipeline(bundled("pipelines") / f"{TABLES[4]}.yaml").resolve().preprocess).work
            found[site] = least_seconds(lambda work=work, path=path: work(path, Stored(bits=16)))
    return found


def measure(pipeline: Pipeline, films: Mapping[str, float] | None = None) -> Costs:
    """The costs of a pipeline's network on this machine."""
    timings = time_steps(pipeline, prepare_machine(pipeline.runtime))
    trained = timings.federated_step / pipeline.federated.images_per_step
    return Costs(films or {}, trained, timings.scored_image, *measure_updates(), timings.parameters, timings.buffers)


def measure_updates(window: int = 8, clients: int = 4) -> tuple[float, float]:
    """Seconds per number of the model: of a local step of CODASCA without its gradient; of a client at the server."""
    point, gradient = Point(torch.zeros(_NUMBERS), torch.zeros(5)), torch.ones(_NUMBERS)
    rule = Codasca(window, 0.1, 0.1, server_lr=1.0, prox=1e-3)
    server, client = rule.start_stage(point), rule.start_client(point)
    update, _ = rule.local_round(server, client, lambda v, alpha: (gradient, alpha))
    local = least_seconds(lambda: rule.local_round(server, client, lambda v, alpha: (gradient, alpha)))
    averaged = least_seconds(lambda: rule.server_round(server, [update] * clients, [1 / clients] * clients))
    return local / window / _NUMBERS, averaged / clients / _NUMBERS


#: Settings of small studies: the first gives what every study takes, the others are forecast from it.
SMALL = [
    *("samples.size=tiny", "runtime.threads=1", "preprocess.size=64", "model.blocks=[1,2]", "evaluation.resamples=20"),
    *("pretrain.batch_size=4", "federated.batch_size=4", "federated.window=4"),
]
CHECKED = {
    "what every study takes": ["k=[1]", "pretrain.epochs=0.5", "federated.stage_steps=8"],
    "longer stage 1": ["k=[1]", "pretrain.epochs=40", "federated.stage_steps=8"],
    "longer stage 2": ["k=[1]", "pretrain.epochs=0.5", "federated.stage_steps=600"],
    "more clients": ["k=[5]", "pretrain.epochs=0.5", "federated.stage_steps=160"],
    "larger network and images": ["k=[2]", "pretrain.epochs=4", "federated.stage_steps=40", "preprocess.size=128"],
}


def check() -> dict[str, Any]:
    """Processor seconds of small studies: run, and forecast from the first by what they do more."""
    found, file = dict[str, Any](), bundled("pipelines") / "source_addition_samples.yaml"
    with tempfile.TemporaryDirectory() as folder:
        for name, more in CHECKED.items():
            settings = [*SMALL, *more]
            words = [part for setting in settings for part in ("--set", setting)]
            command = [sys.executable, "-m", "chestfed", "study", "--no-tracking", *words]
            for out in ("first", "runs"):  # the first fills the cache
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run([*command, "--out", f"{name}/{out}"], check=True, cwd=folder, stdout=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            taken = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            pipeline = load_pipeline(file, settings).resolve()
            training = _training_seconds(pipeline, file, Path(folder))
            found[name] = {"seconds": round(taken, 2), "of these forecast to be training": round(training, 2)}
    (_, first), *others = found.items()
    start = first["seconds"] - first["of these forecast to be training"]
    for one in others:
        forecast = start + one[1]["of these forecast to be training"]
        one[1].update({"forecast": round(forecast, 2), "error": round(forecast / one[1]["seconds"] - 1, 3)})
    return found


def _training_seconds(pipeline: Pipeline, file: Path, folder: Path) -> float:
    """Both stages of every K, forecast on this machine."""
    data = next(folder.glob("synthetic_hospitals*"))
    sites = open_sites(pipeline, file, data)
    plan = plan_study("", make_experiment(pipeline, sites, prepare_machine(pipeline.runtime)), _NOT_TIMED)
    work, costs = Work(pipeline, plan.clients[0].rows, plan.test.images, plan.at_hospitals), measure(pipeline)
    return work.stage_1(costs) + sum(work.stage_2(costs, k) for k in pipeline.k)


def least_seconds(action: Callable[[], object], repeats: int = 3) -> float:
    """Of this process on the processor, after one call that is not counted."""
    action()
    found = []
    for _ in range(repeats):
        begin = time.process_time()
        action()
        found.append(time.process_time() - begin)
    return min(found)


if __name__ == "__main__":
    main()
