"""Activation checkpointing: parts of a network keep their input alone and compute the rest again for the gradient."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def recompute(module: nn.Module, names: str) -> None:
    """In training, the parts whose whole name in `named_modules()` fits this expression are computed twice.

    Logits, gradients and running statistics stay the same, bit by bit. Not for a module that is called as a function of
    other parameters than its own (`torch.func`): the second time it would have its own.
    """
    for name, part in module.named_modules():
        if re.fullmatch(names, name):
            part.forward = partial(_twice, part, part.forward)


def _twice(part: nn.Module, forward: Callable[..., Tensor], *inputs: Tensor) -> Any:
    if not (part.training and torch.is_grad_enabled()):
        return forward(*inputs)
    return checkpoint(
        forward, *inputs, use_reentrant=False, context_fn=lambda: (nullcontext(), _buffers_restored(part))
    )


@contextmanager
def _buffers_restored(part: nn.Module) -> Iterator[None]:
    """Running statistics have seen the batch already."""
    before = [(buffer, buffer.clone()) for buffer in part.buffers()]
    try:
        yield
    finally:
        for buffer, value in before:
            buffer.copy_(value)
