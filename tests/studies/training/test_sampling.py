"""Batches that are drawn by class: what they go with, and that the problem stays the one of all pairs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from chestfed.core.errors import ConfigError
from chestfed.learning.algorithms import ALGORITHMS
from chestfed.learning.models import FlatModule
from chestfed.learning.objectives.declaration import is_normalized
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.experiment.resolved import identity
from chestfed.studies.experiment.stage_2 import Federated
from chestfed.studies.training.assemble import Federation, form_federation, make_member_host
from chestfed.studies.training.data.collection import load_collection
from chestfed.studies.training.pretrain import new_network
from chestfed.studies.training.run import run_study
from tests.cases import assert_refused, each
from tests.studies.training.test_resume_algorithms import BY_CLASS, make_pipeline

HALF = {"positives": 0.5}
CPU = torch.device("cpu")

#: Of two clients and three diseases: shares of positives; nobody has a positive of the third.
RATIOS = np.array([[1 / 3, 0.25, 0.0], [0.5, np.nan, 0.0]])


def federate(algorithm: str, objective: object = None, options: object = None, share: float = 0.5) -> Federation:
    pipeline = make_pipeline(algorithm)
    settings = Federated.model_validate(
        {"algorithm": options or algorithm, "objective": objective, "batch_size": 8, "sampling": {"positives": share}}
    )
    pipeline = pipeline.model_copy(
        update={"federated": settings, "runtime": pipeline.runtime.model_copy(update={"dtype": "float64"})}
    )
    return Federation.of(pipeline, {"c0": 12, "c1": 4}, RATIOS, torch.ones(2, 3).double(), CPU)


def test_pass_over_all_images_is_refused() -> None:
    refused = []
    for name in ALGORITHMS.built_in:
        settings = Federated.model_validate({"algorithm": name, "sampling": HALF})
        if settings.objective_spec.by_class:
            try:
                settings.check()
            except ValueError:
                refused.append(name)
    assert refused == [name for name, spec in ALGORITHMS.built_in.items() if "F" in spec.describe_gradients()]
    assert {*refused} == {"mime", "mime_lite", "q_fedavg"}


@each(
    "algorithm, objective, accepted",
    [
        ("fedavg", "cross_entropy", True),
        ("fedavg", "sopa_s", True),
        ("fedavg", "soap", False),  # precision depends on the share
        ("fedavg", "ratio_loss", False),
        ("codasca", "auc", True),
        ("fedxl2", "pool_partial_auc", True),
        ("local_scgdam", "compositional_auc", False),
        ("centralized_auc", "auc", True),
        ("pdmm", "cross_entropy", True),
    ],
)
def test_objectives_that_change_are_refused(algorithm: str, objective: str, accepted: bool) -> None:
    settings = Federated.model_validate({"algorithm": algorithm, "objective": objective, "sampling": HALF})
    if accepted:
        settings.check()
    else:
        with pytest.raises(ValueError, match="sampling"):
            settings.check()


@each("share, size", [(0.01, 32), (0.99, 32), (0.5, 1)])
def test_batch_of_one_class_is_refused(share: float, size: int) -> None:
    settings = Federated.model_validate({"batch_size": size, "sampling": {"positives": share}})
    with pytest.raises(ValueError, match=r"sampling\.positives"):
        settings.check()


def test_default_is_in_no_identity() -> None:
    assert "sampling" not in identity(make_pipeline("codasca"))["federated"]
    assert identity(make_pipeline("codasca", BY_CLASS))["federated"]["sampling"] == HALF
    assert not {"normalize", "margin"} & identity(make_pipeline("codasca"))["federated"]["objective"].keys()


def test_population_is_that_of_the_batches() -> None:
    population = federate("codasca").population
    assert population.positive_ratio.tolist() == [0.5, 0.5, 0.0]
    assert population.site_ratios.tolist() == [[0.5, 0.5, 0.0], [0.5, 0.0, 0.0]]
    assert population.labeled is not None
    assert population.labeled.tolist() == [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]
    assert federate("codasca", share=0.3).population.positive_ratio.tolist() == [0.25, 0.25, 0.0]  # 2 of 8 images


def draw_scores() -> list[dict[int, tuple[np.ndarray, np.ndarray]]]:
    """Of each client, by disease: scores of its positives and of its negatives."""
    draw = np.random.default_rng(3)
    sizes: list[dict[int, tuple[int, int]]] = [{0: (2, 4), 1: (1, 3)}, {0: (2, 2)}]
    return [{j: tuple(draw.uniform(0.05, 0.95, size) for size in pair) for j, pair in part.items()} for part in sizes]  # type: ignore[misc]


def mean_loss(federation: Federation, extra: torch.Tensor, dual: torch.Tensor, positives: int) -> torch.Tensor:
    """The weighted sum of the clients' losses, over batches of 48 images: every image of a class equally often."""
    total = torch.zeros(()).double()
    for number, diseases in enumerate(draw_scores()):
        losses = []
        for j, (positive, negative) in diseases.items():
            counts = (positives // len(positive), (48 - positives) // len(negative))
            scores = np.concatenate([np.repeat(positive, counts[0]), np.repeat(negative, counts[1])])
            labels = torch.full((48, 3), torch.nan).double()
            labels[:, j] = torch.from_numpy(np.arange(48) < positives).double()
            logits = torch.zeros(48, 3).double()
            logits[:, j] = torch.logit(torch.from_numpy(scores))
            losses.append(federation.objective(number).loss(logits, labels, extra, dual))
        total += federation.weights[number] * torch.stack(losses).mean()
    return total


@each("share, positives", [(0.5, 24), (0.25, 12)])
def test_saddle_is_that_of_all_pairs(share: float, positives: int) -> None:
    federation, scores = federate("codasca", share=share), draw_scores()
    extra, dual, expected = torch.zeros(6).double(), torch.zeros(3).double(), 0.0
    for j, clients in ((0, (0, 1)), (1, (0,))):
        means, squares = (
            [np.mean([np.mean(scores[k][j][side] ** power) for k in clients]) for side in (0, 1)] for power in (1, 2)
        )
        extra[j], extra[3 + j], dual[j] = means[0], means[1], means[1] - means[0]
        pairs = 1 - 2 * (means[0] - means[1]) + squares[0] + squares[1] - 2 * means[0] * means[1]
        weight = sum(federation.weights[k] for k in clients)
        expected += weight * share * (1 - share) * (pairs - 1) / 3
    extra.requires_grad_()
    dual.requires_grad_()
    value = mean_loss(federation, extra, dual, positives)
    value.backward()  # type: ignore[no-untyped-call]
    assert value.item() == pytest.approx(expected, abs=1e-12)
    assert extra.grad is not None
    assert dual.grad is not None
    assert torch.cat([extra.grad, dual.grad]).abs().max() < 1e-12


def test_cross_entropy_is_that_of_even_classes() -> None:
    federation, scores = federate("fedavg"), draw_scores()
    expected = 0.0
    for number, diseases in enumerate(scores):
        terms = [(-np.log(p).mean() - np.log(1 - n).mean()) / 2 for p, n in diseases.values()]
        expected += federation.weights[number] * sum(terms) / 3
    blank = torch.zeros(0).double()
    assert mean_loss(federation, blank, blank, 24).item() == pytest.approx(expected, abs=1e-12)
    weighted = federate("fedavg", {"name": "cross_entropy", "weights": "balanced"})
    assert mean_loss(weighted, blank, blank, 24).item() == pytest.approx(expected, abs=1e-12)


def test_normalized_step_knows_its_curvature() -> None:
    options = {"name": "coda_plus", "dual_step": "preconditioned", "dual_lr": 0.2}
    for objective, curvature in (("auc", 0.25 / 3), ({"name": "auc", "normalize": True}, 1 / 3)):
        step = federate("coda_plus", objective, options).rule(0).dual_lr
        assert step.tolist() == pytest.approx([0.2 / curvature, 0.2 / curvature, 0.2])  # nobody has the third
    compositional = {"name": "compositional_auc", "normalize": True}
    pipeline = make_pipeline("local_scgdam", f"methods.*.objective={json.dumps(compositional)}")
    labeled = torch.ones(2, 1).double()
    federation = Federation.of(pipeline, {"c0": 4, "c1": 4}, np.array([[0.5], [0.25]]), labeled, CPU)
    assert is_normalized(federation.objective())


def test_clients_draw_by_class() -> None:
    for algorithm, members, images in (("codasca", 3, 4), ("centralized", 1, 12)):
        pipeline = make_pipeline(algorithm, BY_CLASS)
        experiment = load_collection(pipeline, None, prepare_machine(pipeline.runtime))
        federation = form_federation(experiment, 3)
        network: FlatModule = new_network(pipeline, experiment.machine)
        assert len(federation.names) == members
        client = experiment.clients[0]
        host = make_member_host(experiment, federation, 0, client, network)
        drawn = [host.client.batches.next().labels for _ in range(5)]  # type: ignore[attr-defined]
        assert all(labels.sum() == images / 2 and len(labels) == images for labels in drawn)
        assert client.positive_ratios()[0] < 0.2


def test_client_of_one_class_is_refused(tmp_path: Path) -> None:
    pipeline = make_pipeline("codasca", BY_CLASS, "k=[1,3]")
    experiment = load_collection(pipeline, None, prepare_machine(pipeline.runtime))
    clients = list(experiment.clients)
    clients[2] = replace(clients[2], labels=np.ones_like(clients[2].labels))
    experiment = replace(experiment, clients=tuple(clients))
    with assert_refused(ConfigError, "no class to draw", clients=["digits-3"]):
        form_federation(experiment, 3)
    with assert_refused(ConfigError, "no class to draw", clients=["digits-3"]):
        run_study(experiment, "one_class", tmp_path)
    assert not [*tmp_path.rglob("*.safetensors")]
