"""A network seen as one flat vector of parameters, so that algorithms work on vectors and nothing has to be copied."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from chestfed.core.errors import TrainingError


def convolve_channels_last(module: nn.Module) -> None:
    """From its first convolution on, the module works in torch's memory format `channels_last`.

    Layers keep the format of what they are given; images come one channel after the other.
    """
    first = next((part for part in module.modules() if isinstance(part, nn.Conv2d)), None)
    if first is not None:
        first.register_forward_pre_hook(_channels_last)


def _channels_last(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (inputs[0].contiguous(memory_format=torch.channels_last), *inputs[1:])


def _compiled(module: nn.Module, graphs: bool) -> Callable[[Tensor], Tensor]:
    """Module compiled with `torch.compile`; with `graphs`, a step is recorded as CUDA graphs and replayed."""
    compiled = torch.compile(module, dynamic=False, mode="reduce-overhead" if graphs else None)

    def trained(images: Tensor) -> Tensor:
        if graphs:
            torch.compiler.cudagraph_mark_step_begin()  # the last step's outputs are no longer needed
        try:
            return compiled(images)
        except RuntimeError as error:
            if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                raise
            text = f"torch.compile fails on this network or machine ({type(error).__name__})"
            raise TrainingError(
                f"runtime.compile: {text}; it needs a C++ compiler, on a GPU Triton. Set it to false"
            ) from error

    return trained


def _recompute(module: nn.Module, names: str) -> None:
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


def convert_numbers(module: nn.Module, dtype: torch.dtype) -> None:
    """Let a module compute in another type of number, whatever the type of its images."""
    module.to(dtype)
    module.register_forward_pre_hook(partial(_converted, dtype))


def _converted(dtype: torch.dtype, _: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (inputs[0].to(dtype), *inputs[1:])


class FlatModule:
    """A module whose trainable parameters are views into one vector, and whose gradients into another.

    Parameters
    ----------
    channels_last
        See `convolve_channels_last`.
    recomputed
        Regular expression of the names of parts that keep their input alone and are computed again for the gradient.
    compiled
        Whether training goes through `torch.compile`, at the first call.
    static
        Whether the parameters stay in one vector of the module's own, into which `bind` copies: CUDA graphs need
        addresses that never change. By default where these are used: compiled, on a GPU.
    """

    def __init__(
        self,
        module: nn.Module,
        device: torch.device | str = "cpu",
        *,
        channels_last: bool = False,
        recomputed: str = "",
        compiled: bool = False,
        static: bool | None = None,
    ) -> None:
        graphs = compiled and torch.device(device).type == "cuda"
        self.module = module.to(device)
        if channels_last:
            convolve_channels_last(module)
        if recomputed:
            _recompute(module, recomputed)
        #: The module, or what `torch.compile` makes of it: to be called where gradients are taken.
        self.trained: Callable[[Tensor], Tensor] = _compiled(module, graphs) if compiled else module
        trainable = {name: part for name, part in module.named_parameters() if part.requires_grad}
        self._names, self._parameters = list(trainable), list(trainable.values())
        self._buffers = [buffer for buffer in module.buffers() if buffer.is_floating_point()]
        self.size = sum(parameter.numel() for parameter in self._parameters)  #: d, of trainable parameters
        #: `[d]`, the gradient of the last backward pass.
        self.grad = torch.zeros(self.size, dtype=self._parameters[0].dtype, device=device)
        for parameter, view in zip(self._parameters, self._views(self.grad), strict=True):
            parameter.grad = view
        self._bound: Tensor | None = None
        self._static: Tensor | None = None
        if graphs if static is None else static:
            vector = self.parameters()
            self.bind(vector)
            self._static = vector

    def _views(self, flat: Tensor) -> Iterable[Tensor]:
        offset = 0
        for parameter in self._parameters:
            yield flat[offset : offset + parameter.numel()].view(parameter.shape)
            offset += parameter.numel()

    def parameters(self) -> Tensor:
        """A copy of the parameters, `[d]`."""
        return torch.cat([parameter.detach().reshape(-1) for parameter in self._parameters])

    def bind(self, flat: Tensor) -> None:
        """Make the parameters views into `flat` `[>= d]`: writing to either is writing to both.

        If the parameters are static, they become equal to `flat` instead; call this again after `flat` has changed.
        """
        if self._static is not None:
            self._static.copy_(flat[: self.size].detach())
            return
        if self._bound is flat:
            return
        for parameter, view in zip(self._parameters, self._views(flat), strict=True):
            parameter.data = view
        self._bound = flat

    def call(self, flat: Tensor, images: Tensor) -> Tensor:
        """The module's output with parameters `flat` `[>= d]`, differentiable in them any number of times.

        Nothing is bound; running statistics are updated as in a plain call.
        """
        views = dict(zip(self._names, self._views(flat), strict=True))
        return torch.func.functional_call(self.module, views, (images,))

    def buffers(self) -> Tensor:
        """A copy of the float buffers (running statistics) as one vector; of length 0 without such buffers."""
        if not self._buffers:
            return self.grad[:0].clone()
        return torch.cat([buffer.detach().reshape(-1) for buffer in self._buffers])

    def load_buffers(self, flat: Tensor) -> None:
        """The inverse of `buffers`."""
        offset = 0
        for buffer in self._buffers:
            buffer.copy_(flat[offset : offset + buffer.numel()].view(buffer.shape))
            offset += buffer.numel()


@contextmanager
def observe_features(module: nn.Module) -> Iterator[list[Tensor]]:
    """Collect what the last linear layer is given, `[n, f]`, at each call of the module within."""
    seen: list[Tensor] = []
    layer = [part for part in module.modules() if isinstance(part, nn.Linear)][-1]
    hook = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].flatten(1)))
    try:
        yield seen
    finally:
        hook.remove()
