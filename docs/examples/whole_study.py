"""Does adding hospitals raise the AUC at the first one? A whole study, from label files to the table, in one file.

The hospitals are SYNTHETIC: phantoms, no patients. Start it with `python docs/examples/whole_study.py`.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import chestfed
from chestfed.learning.algorithms import ALGORITHMS
from chestfed.learning.models import FlatModule, build_model, network_options, reset_classifier
from chestfed.learning.objectives import OBJECTIVES
from chestfed.leaves.samples.writing import write_hospitals
from chestfed.plugins import Objective, Point, Population, Setting
from chestfed.results.evaluation.estimates import auc_estimates
from chestfed.results.evaluation.intervals.methods import Intervals
from chestfed.results.evaluation.labeled import Scored

SITES = ("chexpert", "mimic_cxr", "chestxray8")  # in the order of addition; the first is the target
SEED, IMAGE_SIZE, BATCH = 1, 64, 8
NETWORK = network_options("small", init_features=8, growth_rate=8, blocks=[1, 2, 2], norm="group")
PRETRAIN_STEPS, PRETRAIN_LR = 40, 1e-2
WINDOW, STAGES, ROUNDS, LOCAL_LR, LR_DECAY = 4, 2, 5, 0.5, 3  # I local steps per round, rounds per stage


class Client:
    """The training images of one hospital: float32 `[n, 3, h, w]`; labels `[n, J]` in {0, 1, NaN for missing}."""

    def __init__(self, number: int, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels
        self.generator = torch.Generator().manual_seed(SEED + number)
        self.labeled_share = (~labels.isnan()).double().mean(dim=0)
        self.positive_ratio = labels.double().nanmean(dim=0).nan_to_num()  # 0 without labels

    def draw_batch(self) -> tuple[Tensor, Tensor]:
        """Images and labels of the next batch, drawn by this client's own generator."""
        rows = torch.randint(len(self.labels), (BATCH,), generator=self.generator)
        return self.images[rows], self.labels[rows]


def load_images(site: chestfed.Site) -> tuple[Tensor, Tensor, np.ndarray]:
    """All frontal images of a site in memory, their labels, and a number per patient `[n]`."""
    dataset = site.dataset("all", IMAGE_SIZE, "frontal", workers=1)
    return torch.stack([image for image, _ in dataset]), torch.from_numpy(dataset.labels), dataset.patients


def hold_out_patients(patients: np.ndarray, share: float) -> np.ndarray:
    """True for the images `[n]` of a random share of the patients. No patient is on both sides."""
    names = np.unique(patients)
    chosen = np.random.default_rng(SEED).choice(names, round(share * len(names)), replace=False)
    return np.isin(patients, chosen)


def build_network(outputs: int) -> FlatModule:
    """A small DenseNet whose parameters are one flat vector `[d]`; group normalization has no running statistics."""
    return FlatModule(build_model(NETWORK, outputs, SEED))


def pretrain(network: FlatModule, client: Client) -> Tensor:
    """Stage 1: cross-entropy at the target alone, in plain PyTorch. Returns the weights `[d]`, the last layer new."""
    weights = torch.nn.Parameter(network.parameters())
    network.bind(weights.data)
    adam = torch.optim.Adam([weights], PRETRAIN_LR)
    for _ in range(PRETRAIN_STEPS):
        images, labels = client.draw_batch()
        known = ~labels.isnan()
        logits = network.module(images)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits[known], labels[known])
        weights.grad, _ = network.differentiate(loss)
        adam.step()
    reset_classifier(network.module, NETWORK, labels.shape[1], SEED)
    return network.parameters()


def compute_gradients(
    network: FlatModule, client: Client, objective: Objective, primal: Tensor, dual: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of the objective on the next batch, by v = (weights, a, b) `[d + 2J]` and by alpha `[J]`."""
    images, labels = client.draw_batch()
    network.bind(primal)
    extra, alpha = primal[network.size :].clone().requires_grad_(), dual.clone().requires_grad_()
    return network.differentiate(objective.loss(network.module(images), labels, extra, alpha), extra, alpha)


def train_codasca(network: FlatModule, weights: Tensor, clients: list[Client]) -> Tensor:
    """Stage 2: federated AUC maximization over the clients. Returns the weights `[d]`."""
    share = [1 / len(clients)] * len(clients)
    ratios = torch.stack([client.positive_ratio for client in clients]).float()
    labeled = torch.stack([client.labeled_share for client in clients]).float()
    p = (ratios * (labeled > 0)).sum(dim=0) / (labeled > 0).sum(dim=0).clamp(min=1)  # one p per disease, for all
    auc, codasca = OBJECTIVES.find("auc"), ALGORITHMS.find("codasca")
    objectives = [auc.build(auc.options(), Population(p, ratios, k, labeled)) for k in range(len(clients))]
    options = codasca.options.model_validate({"dual_step": "preconditioned", "dual_lr": 0.1, "prox": 1e-3})

    extra = torch.zeros(objectives[0].extra_size)  # a and b of each disease
    point = Point(torch.cat([weights, extra]), torch.zeros(objectives[0].dual_size))
    for stage in range(STAGES):
        factor = LR_DECAY**-stage
        rule = codasca.build(options, Setting(WINDOW, LOCAL_LR * factor, factor, len(clients), p))
        server, states = rule.start_stage(point), [rule.start_client(point) for _ in clients]
        for _ in range(ROUNDS):
            message, updates = rule.message(server), []
            for k, client in enumerate(clients):
                gradients = partial(compute_gradients, network, client, objectives[k])
                update, states[k] = rule.local_round(message, states[k], gradients)
                updates.append(update)
            server = rule.server_round(server, updates, share)
        point = rule.current(server)
    return point.primal[: network.size]


def score(network: FlatModule, weights: Tensor, images: Tensor) -> np.ndarray:
    """Probabilities float64 `[n, J]`."""
    network.bind(weights.clone())
    with torch.inference_mode():
        return torch.sigmoid(network.module(images).double()).numpy()


def run(folder: Path, size: str = "tiny") -> pd.DataFrame:
    """One row per K: the mean AUC over the diseases on held-out patients of the target, with its 95% interval."""
    write_hospitals(folder, seed=SEED, size=size, workers=1)
    cache, names = folder / "cache", [f"site_configs/synthetic/{name}.yaml" for name in SITES]
    sites = [chestfed.load_site(name, folder, cache=cache) for name in names]
    (images, labels, patients), *others = map(load_images, sites)
    held_out = torch.from_numpy(hold_out_patients(patients, share=0.5))
    training = [(images[~held_out], labels[~held_out]), *((images, labels) for images, labels, _ in others)]
    diseases, rows = sites[0].diseases, []
    for k in range(1, len(sites) + 1):
        clients = [Client(number, *part) for number, part in enumerate(training[:k])]
        network = build_network(outputs=len(diseases))
        weights = train_codasca(network, pretrain(network, clients[0]), clients)
        scores = score(network, weights, images[held_out])
        scored = Scored(scores, labels[held_out].numpy(), patients[held_out.numpy()], diseases)
        *_, mean = auc_estimates(scored, Intervals())  # one estimate per disease, then of their mean
        rows.append({"K": k, "added": sites[k - 1].name, **mean.record("auc")})
    return pd.DataFrame(rows)[["K", "added", "auc", "low", "high"]]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        print(run(Path(temporary)).round(3).to_string(index=False))
