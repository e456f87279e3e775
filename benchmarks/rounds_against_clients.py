"""Communication rounds to a fixed accuracy as the number of clients grows, on three problems.

    python -m benchmarks.rounds_against_clients saddle images --save FILE
    python -m benchmarks.rounds_against_clients study --seeds 1 --save FILE
    python -m benchmarks.rounds_against_clients --plot docs/images/rounds_against_clients.png

saddle    32 heterogeneous quadratic saddles with noisy gradients, distributed to K clients; a client's problem is the
          mean of its share. Window and step size are tuned on a grid for each K. The accuracy is the distance to the
          saddle point relative to the start.
images    scikit-learn's digits, 0-4 against 5-9, sorted by digit and cut into 32 pieces, which are distributed to K
          clients. The network is one convolution; windows and step sizes are the same for every K.
study     the digits in the whole pipeline (pipelines/digits_ih.yaml), one or two classes of either label per client.

In the first two, the more clients, the more they differ, and the accuracy must hold for a fifth of the rounds more.
Medians over seeds. The slope is that of log rounds against log K: 0 is the flat line that theory promises for CODASCA.
A problem's figures replace those in the file; the others stay.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.metrics import roc_auc_score
from torch import Tensor

import chestfed
from chestfed.core.randomness import numpy_stream, stream_seed
from chestfed.data.collections.collection import open_collection
from chestfed.learning.algorithms.coda_plus import CodaPlus
from chestfed.learning.algorithms.codasca import Codasca
from chestfed.learning.algorithms.variables import Algorithm, Gradients, Point, named_tensors
from chestfed.learning.objectives.auc_margin import AucMargin
from tests.invariants import quadratic_saddle as saddle

RESULTS = Path(__file__).parent / "results" / "rounds_against_clients.json"
CLIENTS, POOL = (2, 4, 8, 16, 32), 32
ALGORITHMS: dict[str, Callable[[int, float], Algorithm]] = {
    "codasca": lambda window, lr: Codasca(window, lr, lr),
    "coda_plus": lambda window, lr: CodaPlus(window, lr, lr, output="last"),
}
TITLES = {"codasca": ("CODASCA", "#0072B2"), "coda_plus": ("CODA+", "#D55E00")}
#: Rounds of one seed with K clients.
Count = Callable[[int, int], float]


def main() -> None:
    """Print, save or plot the rounds of each case and number of clients."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", choices=[*PROBLEMS, []])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--plot", type=Path, help="draw the saved figures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for problem in options.problems:
        rows = {}
        for case, count in PROBLEMS[problem]():
            rounds = {k: [count(k, seed) for seed in range(options.seeds)] for k in CLIENTS}
            rows[case] = {"rounds": rounds, "slope": slope([float(np.median(each)) for each in rounds.values()])}
            print(problem, case, rows[case], flush=True)
        if options.save:
            saved = json.loads(options.save.read_text()) if options.save.exists() else {}
            text = json.dumps({**saved, problem: rows}, indent=1).replace("Infinity", "null")
            options.save.write_text(text + "\n", encoding="utf-8")
    if options.plot:
        plot(json.loads(RESULTS.read_text()), options.plot)


def slope(medians: Sequence[float]) -> float | None:
    """Growth of log rounds with log K; None where some rounds were too few."""
    return float(np.polyfit(np.log(CLIENTS), np.log(medians), 1)[0]) if np.isfinite(medians).all() else None


def rounds_needed(
    algorithm: Algorithm,
    point: Point,
    gradients: Gradients,
    weights: Sequence[float],
    missing: Callable[[Point], float],
    accuracy: float,
    limit: int,
) -> float:
    """Rounds until `missing` of the server's point is at most `accuracy` and stays so for a fifth of the rounds more.

    `gradients` takes the variables of all clients at once, `[K, d]` and `[K, J]`. Infinity if `limit` is too short, or
    if the point diverges.
    """
    k = len(weights)
    server = algorithm.start_stage(point)
    states = stacked([algorithm.start_client(point)] * k)
    reached: int | None = None
    for number in range(1, int(limit * 1.2) + 2):
        # The rules are elementwise, so that the clients' local rounds are one call on stacked tensors.
        update, states = algorithm.local_round(stacked([algorithm.message(server)] * k), states, gradients)
        server = algorithm.server_round(server, unstacked(update, k), weights)
        error = missing(algorithm.current(server))
        if not error < 1e3:
            return float("inf")
        if error > accuracy:
            reached = None
            if number >= limit:
                return float("inf")
        elif reached is None:
            reached = number
        if reached is not None and number >= 1.2 * reached + 1:
            return float(reached)
    return float("inf")


def stacked(records: Sequence[Any]) -> Any:
    """Records of equal shapes as one, with a leading dimension."""
    parts = [named_tensors(record) for record in records]
    return type(records[0])(**{name: torch.stack([p[name] for p in parts]) for name in parts[0]})


def unstacked(record: Any, count: int) -> list[Any]:
    """The inverse of `stacked`."""
    parts = named_tensors(record)
    return [type(record)(**{name: part[i] for name, part in parts.items()}) for i in range(count)]


# ---- the quadratic saddle --------------------------------------------------------------------------------------------

WINDOWS = (64, 32, 16, 8, 4, 2, 1)
#: Step sizes times windows; the step itself is at most 0.1.
PRODUCTS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
NOISE, ACCURACY, SADDLE_LIMIT = 0.3, 0.03, 400


def saddle_cases() -> Iterator[tuple[str, Count]]:
    for name in ALGORITHMS:
        yield name, partial(tuned_rounds, name)


def tuned_rounds(name: str, k: int, seed: int) -> float:
    """The fewest rounds of the grid; a run that is already worse is stopped."""
    best = float("inf")
    for window in WINDOWS:
        for lr in (product / window for product in PRODUCTS if product / window <= 0.1):
            best = min(best, saddle_rounds(ALGORITHMS[name](window, lr), k, seed, int(min(SADDLE_LIMIT, best))))
    return best


def saddle_rounds(algorithm: Algorithm, k: int, seed: int, limit: int) -> float:
    """Rounds to `ACCURACY` of the saddle point, relative to the start."""
    pool = saddle.heterogeneous(POOL, seed=seed)
    clients = [
        saddle.Saddle(*(np.mean([getattr(pool[i], field) for i in part], axis=0) for field in "abmdc"))
        for part in np.array_split(np.arange(POOL), k)
    ]
    point = saddle.origin(clients)
    start = saddle.distance(point, clients)
    gradients = noisy_gradients(clients, torch.Generator().manual_seed(stream_seed(seed, "noise", k)))

    def missing(point: Point) -> float:
        return saddle.distance(point, clients) / start

    return rounds_needed(algorithm, point, gradients, [1 / k] * k, missing, ACCURACY, limit)


def noisy_gradients(clients: Sequence[saddle.Saddle], generator: torch.Generator) -> Gradients:
    """The noisy gradients of all clients at once, at points `[K, d]` and `[K, J]`."""
    a, b, m, d, c = (torch.from_numpy(np.stack([getattr(client, field) for client in clients])) for field in "abmdc")

    def add_noise(gradient: Tensor) -> Tensor:
        return gradient + NOISE * torch.randn(gradient.shape, dtype=gradient.dtype, generator=generator)

    def gradients(v: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        grad_v = torch.einsum("kij,kj->ki", a, v) - b + torch.einsum("kji,kj->ki", m, alpha)
        grad_alpha = torch.einsum("kji,ki->kj", m, v) - d - torch.einsum("kij,kj->ki", c, alpha)
        return add_noise(grad_v), add_noise(grad_alpha)

    return gradients


# ---- images of digits ------------------------------------------------------------------------------------------------

FILTERS, PLACES = 16, 36  #: 3 x 3 patches of an 8 x 8 image: 6 x 6 places
SIZES = [9 * FILTERS, FILTERS, PLACES * FILTERS, 1]
BATCH, GOAL, LOCAL_STEPS = 16, 0.98, 6000
HALF = AucMargin(torch.tensor([0.5]))


def image_cases() -> Iterator[tuple[str, Count]]:
    for window in (8, 16, 32):
        for lr in (0.25, 0.5):
            for name in ALGORITHMS:
                yield f"{name}, window {window}, step {lr:g}", partial(image_rounds, name, window, lr)


def image_rounds(name: str, window: int, lr: float, k: int, seed: int) -> float:
    """Rounds of one run to the AUC `GOAL`."""
    patches, labels, pieces, test = deal_digits(seed)
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

    weights, rule = [len(client) / images for client in clients], ALGORITHMS[name](window, lr)
    return rounds_needed(rule, first_point(seed), gradients, weights, missing, 1 - GOAL, LOCAL_STEPS // window)


def deal_digits(seed: int) -> tuple[Tensor, Tensor, list[np.ndarray], np.ndarray]:
    """Patches `[N, 36, 9]`, labels `[N, 1]`, the rows of each piece in the order of dealing, and the test's rows."""
    part = open_collection("digits", None).train
    pixels = torch.tensor(np.stack([part.pixels.read(row) for row in range(len(part.classes))]) / 255).float()
    patches = torch.nn.functional.unfold(pixels.view(-1, 1, 8, 8), 3).transpose(1, 2).contiguous()
    random = numpy_stream(seed, "dealing")
    order = random.permutation(len(part.classes))
    test, train = np.split(order, [int(0.3 * len(order))])
    train = train[np.argsort(part.classes[train], kind="stable")]
    high = part.classes[train] >= 5
    halves = [np.array_split(train[side], POOL) for side in (high, ~high)]
    pieces = [np.concatenate(pair) for pair in zip(*halves, strict=True)]
    labels = torch.from_numpy(part.classes >= 5).float()[:, None]
    return patches, labels, [pieces[place] for place in random.permutation(POOL)], test


def first_point(seed: int) -> Point:
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


# ---- the whole pipeline ----------------------------------------------------------------------------------------------

STUDY_ROUNDS, STUDY_WINDOW = 40, 16


def study_cases() -> Iterator[tuple[str, Count]]:
    for name in ALGORITHMS:
        yield f"{name}, AUC {GOAL:g}", partial(study_rounds, name)


def study_rounds(name: str, k: int, seed: int) -> float:
    """The first round of a study with a test AUC of at least `GOAL`; infinity if there is none."""
    settings = [
        *(f"collection.clients={k}", "collection.partition=sorted", "collection.imratio=null"),
        *(f"federated.window={STUDY_WINDOW}", "federated.local_lr=0.5", "federated.stages=1"),
        *(f"federated.stage_steps={STUDY_ROUNDS * STUDY_WINDOW}", "evaluation.every=1", "evaluation.resamples=0"),
        *("comparison=null", "per_algorithm={}", *(["federated.stage_output=last"] if name == "coda_plus" else [])),
    ]
    with tempfile.TemporaryDirectory() as out:
        study = chestfed.run("digits_ih", algorithm=name, k=k, seed=seed + 1, out=out, overrides=settings, quiet=True)
        aucs = study.rounds()["mean_auc"].tolist()
    return next((float(number) for number, auc in enumerate(aucs, start=1) if auc >= GOAL), float("inf"))


PROBLEMS = {"saddle": saddle_cases, "images": image_cases, "study": study_cases}


def plot(report: dict[str, Any], file: Path) -> None:
    """The saddle beside the images with windows 16 and 32 and step 0.5."""
    figure = Figure(figsize=(9.5, 4), layout="constrained")
    axes = figure.subplots(1, 2)
    styles = {"window 16": "o--", "window 32": "o-"}
    for axis, problem in zip(axes, ("saddle", "images"), strict=True):
        for case, row in report[problem].items():
            name, window, step = case.split(", ") if problem == "images" else (case, "window 32", "step 0.5")
            if step != "step 0.5" or window not in styles:
                continue
            title, color = TITLES[name]
            label = f"{title}{', ' + window if problem == 'images' else ''}, slope {row['slope']:+.2f}"
            medians = [float(np.median(rounds)) for rounds in row["rounds"].values()]
            axis.plot(CLIENTS, medians, styles[window], color=color, label=label)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_yticks([5, 10, 20, 40], ["5", "10", "20", "40"], minor=False)
        axis.minorticks_off()
        axis.set_xticks(CLIENTS, [str(k) for k in CLIENTS])
        axis.set_xlabel("clients K")
        axis.set_ylabel("communication rounds")
        axis.grid(alpha=0.3, which="both")
        axis.legend(frameon=False, fontsize="small")
    axes[0].set_title("heterogeneous quadratic saddle, 3% accuracy")
    axes[1].set_title("handwritten digits, AUC 0.98")
    axes[1].set_ylim(bottom=3)
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    main()
