"""Running statistics of batch normalization: taken again from other images, and put back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


def find_norms(module: nn.Module) -> list[_BatchNorm]:
    """The layers of batch normalization that have running statistics."""
    return [part for part in module.modules() if isinstance(part, _BatchNorm) and part.track_running_stats]


def find_own_norms(module: nn.Module) -> list[str]:
    """Names and types of layers with running statistics, or derived from batch normalization, that are not torch's."""
    return [
        f"{name} ({type(part).__name__})"
        for name, part in module.named_modules()
        if isinstance(part, _BatchNorm) or any(buffer.is_floating_point() for buffer in part.buffers(recurse=False))
        if getattr(type(part), "forward", None) is not _BatchNorm.forward
    ]


@contextmanager
def renew_statistics(module: nn.Module) -> Iterator[None]:
    """The running statistics become the plain mean over the batches that are passed within."""
    norms = find_norms(module)
    before = [(part.momentum, part.training) for part in norms]
    hooks = [part.register_forward_pre_hook(_plain_mean()) for part in norms]
    for part in norms:
        assert part.running_mean is not None
        assert part.running_var is not None
        part.running_mean.zero_()  # not `reset_running_stats`: a `FlatModule` has taken its counter
        part.running_var.fill_(1)
        part.train()
    try:
        with torch.no_grad():
            yield
    finally:
        for hook in hooks:
            hook.remove()
        for part, (momentum, training) in zip(norms, before, strict=True):
            part.momentum = momentum
            part.train(training)


@contextmanager
def restore_statistics(module: nn.Module) -> Iterator[None]:
    """Afterwards the running statistics are those from before."""
    buffers = [buffer for part in find_norms(module) for buffer in part.buffers()]
    before = [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        for buffer, value in zip(buffers, before, strict=True):
            buffer.copy_(value)


def _plain_mean() -> Callable[[Any, Any], None]:
    """Makes a layer average over all its batches; with `momentum=None` torch would read their number from the GPU."""
    batches = itertools.count(1)

    def before(part: Any, _: Any) -> None:
        part.momentum = 1 / next(batches)

    return before
