"""Ways to make one training step of the same network on images that are on the device already."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.gpu_parts.bench import DISEASES, Bench, Step
from chestfed.learning.algorithms.codasca import Codasca
from chestfed.learning.algorithms.variables import Point, descend_
from chestfed.learning.engines.client import NetworkClient
from chestfed.learning.models import FlatModule, build_model, network_options
from chestfed.learning.objectives.auc_margin import AucMargin

LR, PROX = 1e-3, 1e-3


def build(bench: Bench) -> nn.Module:
    """DenseNet121; for a smoke test a small one."""
    options = network_options("small", blocks=[1, 1], norm="batch") if bench.smoke else network_options("densenet121")
    return build_model(options, DISEASES, 1)


def make_objective(bench: Bench) -> AucMargin:
    """Build the AUC loss of five diseases with 30% of positives each."""
    return AucMargin(torch.full((DISEASES,), 0.3, device=bench.device))


class Still:
    """Two batches on the device, in turn."""

    def __init__(self, bench: Bench, images: int, size: int | None = None) -> None:
        self.position, side = 0, size or bench.size
        generator = torch.Generator().manual_seed(0)
        self.all: list[Any] = []
        for _ in range(2):
            labels = (torch.rand(images, DISEASES, generator=generator) < 0.3).float()
            labels[0], labels[-1] = 1, 0
            pixels = torch.randn(images, 3, side, side, generator=generator)
            here = (pixels.to(bench.device), labels.to(bench.device))
            self.all.append(SimpleNamespace(images=here[0], labels=here[1], rows=torch.arange(images)))

    def next(self) -> Any:
        """The other batch."""
        self.position += 1
        return self.all[self.position % 2]

    def seek(self, position: int) -> None:
        """Go to a batch by its number."""
        self.position = position

    def whole(self) -> Iterator[Any]:
        """Both."""
        return iter(self.all)

    def close(self) -> None:
        """Nothing is held."""


def bare(
    bench: Bench,
    images: int,
    *,
    autocast: bool,
    channels_last: bool = True,
    call: Callable[[nn.Module], Callable[[Tensor], Tensor]] = lambda module: module,
) -> Step:
    """Forward and backward by PyTorch alone, without an update: the ceiling of the others."""
    module, batch = build(bench).to(bench.device).train(), Still(bench, images).next()
    pixels = batch.images
    if channels_last:
        module = module.to(memory_format=torch.channels_last)
        pixels = pixels.contiguous(memory_format=torch.channels_last)
    network, parameters = call(module), list(module.parameters())

    def step() -> None:
        for parameter in parameters:
            parameter.grad = None
        with torch.autocast(bench.device.type, torch.bfloat16, enabled=autocast):
            logits = network(pixels)
        nn.functional.binary_cross_entropy_with_logits(logits.float(), batch.labels).backward()

    return step, images


def make_client(
    bench: Bench, batches: Any, *, autocast: bool, compiled: bool = False, network: FlatModule | None = None
) -> tuple[NetworkClient, FlatModule, Point]:
    """A client on these batches, its network and the point it begins at."""
    network = network or FlatModule(build(bench), bench.device, channels_last=True, compiled=compiled)
    objective = make_objective(bench)
    client = NetworkClient("a", batches, network, objective, device=bench.device, autocast=autocast, loss_draws=False)
    extra, dual = (torch.zeros(size, device=bench.device) for size in (objective.extra_size, objective.dual_size))
    return client, network, Point(torch.cat([network.parameters(), extra]), dual)


def codasca(
    bench: Bench, batches: Any, images: int, *, autocast: bool, compiled: bool = False, window: int | None = None
) -> Step:
    """A round of a client of CODASCA, as a study trains it: a call is `window` steps."""
    client, network, point = make_client(bench, batches, autocast=autocast, compiled=compiled)
    rule = Codasca(window or bench.window, LR, LR, prox=PROX)
    server, state, buffers = rule.start_stage(point), rule.start_client(point), network.buffers()

    def run_round() -> None:
        with client.training(buffers):
            rule.local_round(server, state, client.oracle)

    return run_round, images * rule.window


def graph(bench: Bench, images: int, *, autocast: bool) -> Step:
    """CODASCA's local step captured as one CUDA graph: what launching costs. On a CPU the step without a graph."""
    network = FlatModule(build(bench), bench.device, channels_last=True)
    network.module.train()
    objective, source = make_objective(bench), Still(bench, images)
    extra = torch.zeros(objective.extra_size, device=bench.device)
    v, alpha = torch.cat([network.parameters(), extra]), torch.zeros(DISEASES, device=bench.device)
    reference, shift = v.clone(), torch.zeros_like(v)
    pixels, labels = torch.empty_like(source.all[0].images), torch.empty_like(source.all[0].labels)

    def feed() -> None:
        batch = source.next()
        pixels.copy_(batch.images, non_blocking=True)
        labels.copy_(batch.labels, non_blocking=True)

    def compute() -> None:
        network.bind(v, bf16=autocast)
        own, dual = v[network.size :].detach().requires_grad_(), alpha.detach().requires_grad_()
        with torch.autocast(bench.device.type, torch.bfloat16, enabled=autocast):
            logits = network.module(pixels)
        slope, dual_slope = network.differentiate(objective.loss(logits.float(), labels, own, dual), own, dual)
        descend_(v, LR, slope, prox=PROX, reference=reference, shift=shift)
        alpha.add_(dual_slope, alpha=LR)

    if bench.is_gpu:
        feed()
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(3):
                compute()
        torch.cuda.current_stream().wait_stream(beside)
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            compute()
    replay = recorded.replay if bench.is_gpu else compute

    def step() -> None:
        feed()
        replay()

    return step, images


def libauc_like(bench: Bench, images: int, *, autocast: bool, pixels: Iterator[Tensor] | None = None) -> Step:
    """A step as in LibAUC's scripts: weights as PyTorch lays them, a loop over parameters, clipped gradients.

    `pixels` gives images on the host in place of those on the device.
    """
    module, objective = build(bench).to(bench.device).train(), make_objective(bench)
    parameters, still = list(module.parameters()), Still(bench, images).next()
    references = [parameter.detach().clone() for parameter in parameters]
    sizes = objective.extra_size, objective.dual_size
    extra, dual = (torch.zeros(size, device=bench.device, requires_grad=True) for size in sizes)

    def step() -> None:
        batch = still.images if pixels is None else next(pixels).to(bench.device, non_blocking=True)
        for variable in (*parameters, extra, dual):
            variable.grad = None
        with torch.autocast(bench.device.type, torch.bfloat16, enabled=autocast):
            logits = module(batch)
        objective.loss(logits.float(), still.labels, extra, dual).backward()
        with torch.no_grad():
            for parameter, reference in zip(parameters, references, strict=True):
                assert parameter.grad is not None
                pull = PROX * (parameter.data - reference)
                parameter.data = parameter.data - LR * (parameter.grad.clamp(-1, 1) + pull + 1e-5 * parameter.data)
            extra.sub_(extra.grad, alpha=LR)  # type: ignore[arg-type]
            dual.add_(dual.grad, alpha=LR).relu_()  # type: ignore[arg-type]

    return step, images
