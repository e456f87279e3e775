"""Batch normalization of a batch that lies on several ranks, as one process normalizes the whole batch.

`torch.nn.SyncBatchNorm` needs GPUs. Ranks exchange means and squared deviations, not sums of squares, whose difference
loses digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

#: From a row `[n]` of this rank to those of all, `[ranks, n]`, equal on every rank.
Gather = Callable[[Tensor], Tensor]


@contextmanager
def synchronize(module: nn.Module, gather: Gather) -> Iterator[None]:
    """Let the layers of batch normalization see the images of all ranks in this block, backward passes included.

    All ranks must make the same passes, also one without images.
    """
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
    before = [vars(part).get("forward") for part in norms]
    for part in norms:
        vars(part)["forward"] = partial(_normalize, part, gather)
    try:
        yield
    finally:
        for part, forward in zip(norms, before, strict=True):
            del vars(part)["forward"]
            if forward is not None:
                vars(part)["forward"] = forward


def _normalize(part: Any, gather: Gather, images: Tensor) -> Tensor:
    """`_BatchNorm.forward` of images `[n, C, ...]` with the statistics of all ranks."""
    part._check_input_dim(images)
    if not part.training:
        return _BatchNorm.forward(part, images)
    channels = images.shape[1]
    weight = images.new_ones(channels) if part.weight is None else part.weight
    bias = torch.zeros_like(weight) if part.bias is None else part.bias
    with torch.no_grad():
        count = images.numel() // channels
        own = weight.new_zeros(2, channels, dtype=torch.float64)
        if count:
            own[1], own[0] = torch.var_mean(images.to(weight.dtype), _over_images(images), correction=0)
        rows = gather(torch.cat([own[0], own[1] * count, own.new_full((1,), count)]))
        means, squares, counts = rows.split([channels, channels, 1], dim=1)
        total = counts.sum()
        if count < 2 and total < 2:  # to read it, a GPU would be waited for: so only where it may be
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {images.shape}")
        mean = (counts * means).sum(0) / total
        square = (squares + counts * (means - mean).square()).sum(0)
        _update(part, mean, square / (total - 1))
    point = mean.to(weight.dtype), (square / total).to(weight.dtype)
    apply: Callable[..., Tensor] = _Normalized.apply
    return apply(images, weight, bias, *point, total, part.eps, gather)


def _update(part: Any, mean: Tensor, variance: Tensor) -> None:
    """Move the running statistics as torch does."""
    if part.running_mean is None:
        return
    if part.num_batches_tracked is not None:
        part.num_batches_tracked.add_(1)
    share = 1 / float(part.num_batches_tracked) if part.momentum is None else part.momentum
    for running, value in ((part.running_mean, mean), (part.running_var, variance)):
        running.lerp_(value.to(running.dtype), share)


class _Normalized(torch.autograd.Function):
    """Normalized images; the gradient by them has the sums of all ranks, those by weight and bias are of this rank."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, bias: Tensor, *statistics: Any) -> Any:
        mean, variance, total, epsilon, ctx.gather = statistics
        ctx.save_for_backward(images, weight, mean, (variance + epsilon).rsqrt(), total)
        return functional.batch_norm(images, mean, variance, weight, bias, eps=epsilon)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> Any:
        images, weight, mean, inverse, total = ctx.saved_tensors
        shape, over = (-1, *[1] * (images.dim() - 2)), _over_images(images)
        normalized, slope = (images - mean.view(shape)) * inverse.view(shape), slope.to(weight.dtype)
        own = torch.stack([slope.sum(over), (slope * normalized).sum(over)])
        means = (ctx.gather(own.double().flatten()).sum(0) / total).to(weight.dtype)
        of_bias, of_weight = (part.view(shape) for part in means.chunk(2))
        of_images = (slope - of_bias - normalized * of_weight) * (inverse * weight).view(shape)
        return of_images.to(images.dtype), own[1], own[0], *[None] * 5


def _over_images(images: Tensor) -> list[int]:
    """All dimensions but that of the channels."""
    return [0, *range(2, images.dim())]
