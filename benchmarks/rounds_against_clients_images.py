r"""Communication rounds to a fixed AUC as the number of clients grows, on pictures of handwritten digits.

    .venv/bin/python benchmarks/rounds_against_clients_images.py \
        --save benchmarks/results/rounds_against_clients_images.json

The digits that come with scikit-learn, 0-4 against 5-9. As on the saddle (rounds_against_clients.py) the data are
fixed and dealt to K clients: the training images, sorted by digit, are cut into 32 pieces with one or two digits of
either label, and a client has 32/K pieces at random; the more clients, the less they are alike. The network is one
convolution (16 filters of 3 x 3, then a linear layer), small enough that the windows and step sizes below can all be
run, each the same for every K. A run ends when the test AUC of the server's point is at least `--auc` and stays there
for a fifth of the rounds more. Medians over seeds, which change the split, the dealing, the weights and the batches.
The slope is that of log rounds against log K.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from rounds_against_clients import ALGORITHMS, POOL, rounds_needed

sys.path.insert(0, str(Path(__file__).parents[1]))

from chestfed.algorithms.variables import Point
from chestfed.core.randomness import numpy_stream, stream_seed
from chestfed.objectives.auc_margin import AucMargin
from chestfed.public_datasets.collection import open_collection

FILTERS, PLACES = 16, 36  #: 3 x 3 patches of an 8 x 8 picture: 6 x 6 places
SIZES = [9 * FILTERS, FILTERS, PLACES * FILTERS, 1]
BATCH = 16
HALF = AucMargin(torch.tensor([0.5]))


def main() -> None:
    """Print and save the rounds of each algorithm, window and step size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", default="2,4,8,16,32")
    parser.add_argument("--windows", default="8,16,32")
    parser.add_argument("--steps", default="0.25,0.5", help="step sizes")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--auc", type=float, default=0.98)
    parser.add_argument("--local-steps", type=int, default=6000, help="give up after these")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)

    counts = [int(k) for k in options.clients.split(",")]
    report: dict = {"command": " ".join(["python", *sys.argv]), "rounds": {}, "slope": {}}
    for window in (int(part) for part in options.windows.split(",")):
        for lr in (float(part) for part in options.steps.split(",")):
            for name in ALGORITHMS:
                case = f"{name}, window {window}, step {lr:g}"
                limit = options.local_steps // window
                found = {
                    k: [rounds_of(name, window, lr, k, seed, limit, options.auc) for seed in range(options.seeds)]
                    for k in counts
                }
                medians = [float(np.median(rounds)) for rounds in found.values()]
                report["rounds"][case] = found
                if np.isfinite(medians).all():
                    report["slope"][case] = float(np.polyfit(np.log(counts), np.log(medians), 1)[0])
                print(f"{case}: {medians}, slope {report['slope'].get(case, float('nan')):+.2f}", flush=True)
    if options.save:
        text = json.dumps(report, indent=2).replace("Infinity", "null")
        options.save.write_text(text + "\n", encoding="utf-8")


def rounds_of(name: str, window: int, lr: float, k: int, seed: int, limit: int, goal: float) -> float:
    """Rounds of one run to the AUC `goal`."""
    patches, labels, pieces, test = dealt_digits(seed)
    clients = [np.concatenate(pieces[start : start + POOL // k]) for start in range(0, POOL, POOL // k)]
    images = sum(map(len, clients))
    size = torch.tensor([len(client) for client in clients])
    rows = torch.stack([torch.from_numpy(np.resize(client, int(size.max()))) for client in clients])
    random = torch.Generator().manual_seed(stream_seed(seed, "batches", k))

    def gradients(v: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        batch = rows.gather(1, (torch.rand(k, BATCH, generator=random) * size[:, None]).long())
        v, alpha = v.detach().requires_grad_(), alpha.detach().requires_grad_()
        losses = torch.func.vmap(loss)(v, alpha, patches[batch], labels[batch])
        return torch.autograd.grad(losses.sum(), (v, alpha))

    def missing(point: Point) -> float:
        if not point.primal.isfinite().all():
            return float("inf")
        return 1 - float(roc_auc_score(labels[test], logits(point.primal, patches[test])))

    weights = [len(client) / images for client in clients]
    return rounds_needed(ALGORITHMS[name](window, lr), start(seed), gradients, weights, missing, 1 - goal, limit)


def dealt_digits(seed: int) -> tuple[Tensor, Tensor, list[np.ndarray], np.ndarray]:
    """Patches `[N, 36, 9]`, labels `[N, 1]`, the rows of each piece in the order of dealing, and the test's rows."""
    part = open_collection("digits", None).train
    pictures = torch.tensor(np.stack([part.pixels.read(row) for row in range(len(part.classes))]) / 255).float()
    patches = torch.nn.functional.unfold(pictures.view(-1, 1, 8, 8), 3).transpose(1, 2).contiguous()
    random = numpy_stream(seed, "dealing")
    order = random.permutation(len(part.classes))
    test, train = np.split(order, [int(0.3 * len(order))])
    train = train[np.argsort(part.classes[train], kind="stable")]
    high = part.classes[train] >= 5
    halves = [np.array_split(train[side], POOL) for side in (high, ~high)]
    pieces = [np.concatenate(pair) for pair in zip(*halves, strict=True)]
    labels = torch.from_numpy(part.classes >= 5).float()[:, None]
    return patches, labels, [pieces[place] for place in random.permutation(POOL)], test


def start(seed: int) -> Point:
    """Random weights, a = b = alpha = 0."""
    random = torch.Generator().manual_seed(stream_seed(seed, "weights"))
    scales = (1 / 3, 0.0, 1 / (PLACES * FILTERS) ** 0.5, 0.0)
    weights = [scale * torch.randn(size, generator=random) for size, scale in zip(SIZES, scales, strict=True)]
    return Point(torch.cat([*weights, torch.zeros(2)]), torch.zeros(1))


def logits(v: Tensor, patches: Tensor) -> Tensor:
    """Convolution, ReLU, linear layer: `[n, 1]` of patches `[n, 36, 9]`."""
    filters, shift, last, bias = v[:-2].split(SIZES)
    hidden = torch.relu(patches @ filters.view(9, FILTERS) + shift)
    return hidden.flatten(1) @ last[:, None] + bias


def loss(v: Tensor, alpha: Tensor, patches: Tensor, labels: Tensor) -> Tensor:
    """The AUC margin loss of one client's batch."""
    return HALF.loss(logits(v, patches), labels, v[-2:], alpha)


if __name__ == "__main__":
    main()
