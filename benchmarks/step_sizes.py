"""Cross-entropy against the square AUC loss at every step size, at five shares of positives: many models at once.

    python -m benchmarks.step_sizes --data radiographs --save benchmarks/results/step_sizes.json

Four clients of random patients, federated averaging every 8 local steps, 2 stages of 240 steps, batches of 16, the
second stage with a third of the step: the setting of `benchmarks.rare_findings`. Losses, gradients, sampling and splits
are written here once more, in plain tensors and without the suite's learning code, for all splits and step sizes at
once. Inputs are ImageNet features of EfficientNet-Lite0 (a linear head is trained), or 16x16 pixels with the three
scalings of `benchmarks.pixels` (one hidden layer of 32 units, trained as a whole).

Every split tests a fifth of the patients, chooses on 15% of the others and trains on the rest; patients with the
finding, or without it, leave the training images until the share is reached. A loss has the step with the highest mean
validation AUC; intervals are Nadeau and Bengio's, of splits that share patients.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from scipy.stats import rankdata
from scipy.stats import t as student
from torch import Tensor
from torch.nn import functional

from benchmarks.__main__ import machine
from benchmarks.pixels import SIDE, read_mean_image

_ROOT = Path(__file__).parents[1]
STEPS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
SHARES: Final = (0.01, 0.03, 0.1, 0.3, 0.5)
#: Loss -> whether it is the AUC loss, weights of the classes, batches half of positives.
LOSSES: Final = {
    "cross-entropy": (False, False, False),
    "weighted": (False, True, False),
    "balanced batches": (False, False, True),
    "AUC (eq. 2)": (True, False, False),
    "AUC (eq. 2), balanced batches": (True, False, True),
}
#: Collection -> site YAML, disease.
COLLECTIONS: Final = {"nih": ("nih_five", "pleural_effusion"), "guangzhou": ("guangzhou", "pneumonia")}
CLIENTS, BATCH, WINDOW, STAGE, UNITS, DUAL_STEP = 4, 16, 8, 240, 32, 0.05
_TESTED, _VALIDATED = 0.2, 0.15


def main() -> None:
    """Train what is missing, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the radiographs")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--only", default="", help="regular expression of names such as 'guangzhou, features, 0.01'")
    parser.add_argument("--save", type=Path)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    saved: dict[str, Any] = json.loads(chosen.save.read_text("utf-8")) if chosen.save and chosen.save.exists() else {}
    for collection, scalings in (("nih", ("features",)), ("guangzhou", ("features", "imagenet", "image", "pixel"))):
        wanted = [
            (scaling, share)
            for scaling in scalings
            for share in SHARES
            if re.search(chosen.only, f"{collection}, {scaling}, {share}")
        ]
        images = read_images(chosen.data, collection) if wanted else None
        for scaling, share in wanted:
            assert images is not None
            began = time.process_time()
            measured = measure(images, scaling, share, chosen.splits)
            spent = round(time.process_time() - began)
            saved[f"{collection}, {scaling}, {share}"] = {"machine": machine(), "processor seconds": spent, **measured}
            print(f"{collection}, {scaling}, {share}:", json.dumps(measured), flush=True)
            if chosen.save:
                chosen.save.write_text(json.dumps(saved, indent=1) + "\n", "utf-8")


@dataclass(frozen=True)
class Images:
    """Inputs of a collection by name, float32 `[n, d]`, whether each image has the finding, and its patient."""

    inputs: dict[str, Tensor]
    positive: np.ndarray
    patients: np.ndarray


def read_images(data: Path, collection: str) -> Images:
    """Features of the images of 128 pixels, and their pixels."""
    import chestfed
    from chestfed.learning.models import load_frozen, network_options
    from chestfed.learning.models.features import FeatureOptions

    name, disease = COLLECTIONS[collection]
    site = chestfed.load_site(_ROOT / "site_configs" / "films" / f"{name}.yaml", data=data)
    dataset = site.dataset("all", size=128, workers=1)
    network = {"name": "efficientnet-lite0", "initial_weights": "imagenet"}
    options = network_options("features", network=network)
    assert isinstance(options, FeatureOptions)
    frozen = load_frozen(options)
    features, pixels, labels = [], [], []
    for image, label in (dataset[number] for number in range(len(dataset))):
        with torch.no_grad():
            features.append(frozen.extract(image[None])[0])
        pixels.append(functional.adaptive_avg_pool2d(image.mean(0)[None], SIDE).flatten())
        labels.append(float(label[site.diseases.index(disease)]))
    gray, values = torch.stack(pixels), torch.stack(features)
    inputs = {
        "features": functional.layer_norm(values, values.shape[1:]),
        "imagenet": gray,
        "image": (gray - gray.mean(1, keepdim=True)) / (gray.std(1, keepdim=True) + 1e-6),
        "pixel": gray - read_mean_image(),
    }
    return Images(inputs, np.array(labels) > 0, np.asarray(dataset.patients))


@dataclass(frozen=True)
class Split:
    """Rows of each client's training images, of the validation and of the test images."""

    clients: list[np.ndarray]
    valid: np.ndarray
    test: np.ndarray


def split_patients(images: Images, share: float, seed: int) -> Split:
    """One split; patients of one class leave its training images at random until positives have the `share`."""
    rng = np.random.default_rng(seed)
    patients = rng.permutation(np.unique(images.patients))
    tested = round(_TESTED * len(patients))
    validated = tested + round(_VALIDATED * (len(patients) - tested))
    test, valid = (np.isin(images.patients, part) for part in (patients[:tested], patients[tested:validated]))
    train = ~test & ~valid
    leaving = images.positive == (images.positive[train].mean() > share)  # the class of which images leave
    kept = share if images.positive[train].mean() > share else 1 - share
    left = max(CLIENTS, int(kept / (1 - kept) * np.sum(train & ~leaving)))
    for patient in rng.permutation(np.unique(images.patients[train & leaving])):
        his = train & leaving & (images.patients == patient)
        if np.sum(train & leaving) - his.sum() >= left:
            train &= ~his
    client = dict(zip(rng.permutation(np.unique(images.patients[train])), np.arange(len(patients)) % CLIENTS))  # noqa: B905
    of_rows = np.array([client.get(patient, -1) for patient in images.patients])
    return Split([np.flatnonzero(train & (of_rows == c)) for c in range(CLIENTS)], *map(np.flatnonzero, (valid, test)))


def measure(images: Images, scaling: str, share: float, splits: int) -> dict[str, Any]:
    """Mean test AUC of every loss at every step, and at the step chosen on validation patients."""
    drawn = [split_patients(images, share, seed) for seed in range(splits)]
    trained = {name: train(images, scaling, drawn, *loss) for name, loss in LOSSES.items()}
    correction = 1 / splits + _TESTED / ((1 - _TESTED) * (1 - _VALIDATED))
    chosen: dict[str, Tensor] = {}
    result: dict[str, Any] = {"splits": splits, "training positives": _count_positives(images, drawn), "losses": {}}
    for name, (valid, test) in trained.items():
        best = int(valid.mean(0).argmax())
        chosen[name] = test[:, best]
        difference = chosen[name] - chosen["cross-entropy"]
        half = float(student.ppf(0.975, splits - 1)) * math.sqrt(float(difference.var()) * correction)
        mean = float(difference.mean())
        result["losses"][name] = {
            "step": STEPS[best],
            "auc": round(float(chosen[name].mean()), 4),
            "difference": [round(value, 4) for value in (mean, mean - half, mean + half)],
            "higher in": int((difference > 0).sum()),
            "auc by step": [round(float(value), 4) for value in test.mean(0)],
        }
    return result


def _count_positives(images: Images, splits: list[Split]) -> int:
    return round(float(np.mean([images.positive[np.concatenate(split.clients)].sum() for split in splits])))


def train(
    images: Images, scaling: str, splits: list[Split], auc: bool, weighted: bool, balanced: bool
) -> tuple[Tensor, Tensor]:
    """Validation and test AUC `[splits, steps]` after training with one loss."""
    inputs, labels = images.inputs[scaling], torch.from_numpy(images.positive).float()
    ratios = [float(images.positive[np.concatenate(split.clients)].mean()) for split in splits]
    ratio = torch.tensor([0.5] * len(splits) if balanced else ratios)[:, None, None, None]
    layers = draw_weights(inputs.shape[1], 0 if scaling == "features" else UNITS, len(splits))
    centers = torch.zeros(len(splits), len(STEPS), CLIENTS, 3)  # a, b and alpha
    rng = np.random.default_rng(1)
    for number in range(2 * STAGE):
        step = torch.tensor(STEPS)[None, :, None] / (1 if number < STAGE else 3)
        rows = torch.from_numpy(np.array([[_draw(rng, images, c, balanced) for c in s.clients] for s in splits]))
        positive = labels[rows][:, None]
        hidden, logits = run(layers, inputs[rows])
        scores = logits.sigmoid()
        if auc:
            slopes, of_centers = differentiate_auc(scores, positive, ratio, centers)
            centers = centers - torch.stack([step * of_centers[0], step * of_centers[1], DUAL_STEP * of_centers[2]], -1)
        else:
            slopes = scores - positive
            if weighted:
                slopes = slopes * torch.where(positive > 0, 0.5 / ratio, 0.5 / (1 - ratio))
        gradients = propagate(layers, inputs[rows], hidden, slopes / BATCH)
        layers = [
            value - step.reshape(*step.shape, *[1] * (value.dim() - 3)) * gradient
            for value, gradient in zip(layers, gradients, strict=True)
        ]
        if (number + 1) % WINDOW == 0:
            layers, centers = [average(value) for value in layers], average(centers)
    found = [
        [_find_aucs(layers, place, inputs, labels, rows) for rows in (s.valid, s.test)]
        for place, s in enumerate(splits)
    ]
    valid, test = zip(*found, strict=True)
    return torch.stack(valid), torch.stack(test)


def _draw(rng: np.random.Generator, images: Images, rows: np.ndarray, balanced: bool) -> np.ndarray:
    """Rows of a batch, with replacement; half of them positive if `balanced` and the client has positives."""
    positive = images.positive[rows]
    if not balanced or positive.all() or not positive.any():
        return rng.choice(rows, BATCH)
    return np.concatenate([rng.choice(rows[positive], BATCH // 2), rng.choice(rows[~positive], BATCH // 2)])


def draw_weights(width: int, units: int, splits: int) -> list[Tensor]:
    """Weights and bias of each layer, `[splits, steps, clients, ...]`, equal for all steps and clients."""
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int, fan_in: int) -> Tensor:
        values = torch.rand(splits, 1, 1, *shape, generator=generator) * 2 - 1
        return (values / math.sqrt(fan_in)).expand(-1, len(STEPS), CLIENTS, *shape).clone()

    if not units:
        return [draw(width, fan_in=width), draw(fan_in=width)]
    return [draw(width, units, fan_in=width), draw(units, fan_in=width), draw(units, fan_in=units), draw(fan_in=units)]


def run(layers: list[Tensor], inputs: Tensor) -> tuple[Tensor | None, Tensor]:
    """Hidden units before the rectifier, and logits `[splits, steps, clients, n]`.

    Inputs are `[splits, clients, n, d]`.
    """
    hidden = None
    if len(layers) == 2:
        return hidden, torch.einsum("scnd,slcd->slcn", inputs, layers[0]) + layers[1][..., None]
    hidden = torch.einsum("scnd,slcdh->slcnh", inputs, layers[0]) + layers[1][..., None, :]
    return hidden, torch.einsum("slcnh,slch->slcn", hidden.relu(), layers[2]) + layers[3][..., None]


def propagate(layers: list[Tensor], inputs: Tensor, hidden: Tensor | None, slopes: Tensor) -> list[Tensor]:
    """Gradients of the layers from those of the logits."""
    if hidden is None:
        return [torch.einsum("slcn,scnd->slcd", slopes, inputs), slopes.sum(-1)]
    below = slopes[..., None] * layers[2][..., None, :] * (hidden > 0)
    outer = torch.einsum("slcn,slcnh->slch", slopes, hidden.relu())
    return [torch.einsum("scnd,slcnh->slcdh", inputs, below), below.sum(-2), outer, slopes.sum(-1)]


def differentiate_auc(
    scores: Tensor, positive: Tensor, ratio: Tensor, centers: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Gradients of eq. 2 over p(1 - p), by each logit, and by a, b and (to ascend: negated) alpha.

    With margin 1: (1-p)(h-a)^2 at positives, p(h-b)^2 at negatives, plus 2(1+alpha)(p h) at negatives, minus
    2(1+alpha)(1-p)h at positives, minus p(1-p)alpha^2.
    """
    a, b, alpha = centers.split(1, dim=-1)
    of_positives = ((scores - a) - (1 + alpha)) * 2 / ratio
    of_negatives = ((scores - b) + (1 + alpha)) * 2 / (1 - ratio)
    by_score = torch.where(positive > 0, of_positives, of_negatives)
    by_a = (-2 * (scores - a) * positive / ratio).mean(-1)
    by_b = (-2 * (scores - b) * (1 - positive) / (1 - ratio)).mean(-1)
    spread = scores * (1 - positive) / (1 - ratio) - scores * positive / ratio
    return by_score * scores * (1 - scores), (by_a, by_b, -(2 * spread.mean(-1) - 2 * alpha[..., 0]))


def average(values: Tensor) -> Tensor:
    """The clients' mean, at each of them."""
    return values.mean(2, keepdim=True).expand_as(values).clone()


def _find_aucs(layers: list[Tensor], place: int, inputs: Tensor, labels: Tensor, rows: np.ndarray) -> Tensor:
    """AUC of one split's common model on some rows, for every step `[steps]`; .5 where weights are not finite."""
    chosen = torch.from_numpy(rows)
    own = [value[place : place + 1, :, :1] for value in layers]
    logits = run(own, inputs[chosen][None, None])[1][0, :, 0]
    ranks = torch.from_numpy(rankdata(logits.nan_to_num(0).double().numpy(), axis=1))
    positive = labels[chosen] > 0
    count, others = int(positive.sum()), int((~positive).sum())
    return ((ranks * positive).sum(1) - count * (count + 1) / 2) / (count * others)


if __name__ == "__main__":
    main()
