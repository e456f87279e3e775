"""FedExP against a plain loop in float64: `python compare_fedexp.py` prints the largest deviation."""

import copy

import torch
from fedexp import FEDEXP, FedExPOptions
from torch import nn
from torch.func import functional_call
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from chestfed.plugins import Point, Setting

EPSILON, STEP, WINDOW, ROUNDS, WEIGHTS = 1e-3, 0.3, 3, 4, (0.75, 0.25)
draw = torch.Generator().manual_seed(0)
IMAGES = torch.randn(2, 16, 4, generator=draw, dtype=torch.float64)  # two clients
LABELS = torch.tensor([0.9, 0.1]).view(2, 1, 1).expand(2, 16, 3).bernoulli(generator=draw).double()  # unlike each other
START = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
SHAPES = {name: part.shape for name, part in START.named_parameters()}


def flatten(parts):
    return torch.cat([part.detach().reshape(-1) for part in parts])


def train_rule():
    def gradients(number):
        def call(primal, dual):
            w = primal.clone().requires_grad_()
            pieces = w.split([shape.numel() for shape in SHAPES.values()])
            parts = {name: piece.view(SHAPES[name]) for name, piece in zip(SHAPES, pieces, strict=True)}
            loss = cross_entropy(functional_call(START, parts, IMAGES[number]), LABELS[number])
            return torch.autograd.grad(loss, w)[0], dual

        return call

    rule = FEDEXP.build(FedExPOptions(epsilon=EPSILON), Setting(WINDOW, STEP, clients=2))
    point = Point(flatten(START.parameters()), torch.zeros(0, dtype=torch.float64))
    server, states = rule.start_stage(point), [rule.start_client(point) for _ in range(2)]
    for _ in range(ROUNDS):
        message = rule.message(server)
        ends = [rule.local_round(message, states[k], gradients(k)) for k in range(2)]
        states = [state for _, state in ends]
        server = rule.server_round(server, [update for update, _ in ends], WEIGHTS)
    return rule.current(server).primal


def train_plainly():
    network = START
    for _ in range(ROUNDS):
        first, mean, squares = flatten(network.parameters()), 0, 0
        for k in range(2):
            local = copy.deepcopy(network)
            for _ in range(WINDOW):
                slopes = torch.autograd.grad(cross_entropy(local(IMAGES[k]), LABELS[k]), list(local.parameters()))
                with torch.no_grad():
                    for w, slope in zip(local.parameters(), slopes, strict=True):
                        w -= STEP * slope
            change = flatten(local.parameters()) - first
            mean, squares = mean + WEIGHTS[k] * change, squares + WEIGHTS[k] * float(change @ change)
        network = copy.deepcopy(network)
        nn.utils.vector_to_parameters(
            first + max(1, squares / 2 / (mean @ mean + EPSILON)) * mean, network.parameters()
        )
    return flatten(network.parameters())


def compare():
    return float((train_rule() - train_plainly()).abs().max())


if __name__ == "__main__":
    print(f"{compare():.1e}")
