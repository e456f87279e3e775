"""A network seen as one flat vector of parameters, so that algorithms work on vectors and nothing has to be copied."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
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
    """A module whose trainable parameters are views into one vector, and whose gradients are gathered in another.

    In the vector the weights of a two-dimensional convolution lie as the convolution reads them: channels last, if the
    module works in that format. Gradients are taken by `differentiate`; `backward` fills no `grad`.

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
        self._counters = _stop_counting(module)
        #: The module, or what `torch.compile` makes of it: to be called where gradients are taken.
        self.trained: Callable[[Tensor], Tensor] = _compiled(module, graphs) if compiled else module
        trainable = {name: part for name, part in module.named_parameters() if part.requires_grad}
        self._names, self._parameters = list(trainable), list(trainable.values())
        self._channels_last = channels_last
        self._in_bf16 = _find_autocast(module)
        self._buffers = [buffer for buffer in module.buffers() if buffer.is_floating_point()]
        self.size = sum(parameter.numel() for parameter in self._parameters)  #: d, of trainable parameters
        self._slope = torch.zeros(self.size, dtype=self._parameters[0].dtype, device=device)
        self._slopes = list(self._views(self._slope))
        self._shadow: _Shadow | None = None
        self._bound: Tensor | None = None
        self._casts = False
        self._static: Tensor | None = None
        if graphs if static is None else static:
            vector = self.parameters()
            self.bind(vector)
            self._static = vector

    @property
    def grad(self) -> Tensor:
        """The last gradient of `differentiate` by the parameters, `[d]`."""
        return self._slope[: self.size]

    def _views(self, flat: Tensor) -> Iterable[Tensor]:
        offset = 0
        for parameter in self._parameters:
            part = flat[offset : offset + parameter.numel()]
            if self._channels_last and parameter.dim() == 4:
                outputs, inputs, height, width = parameter.shape
                yield part.view(outputs, height, width, inputs).permute(0, 3, 1, 2)
            else:
                yield part.view(parameter.shape)
            offset += parameter.numel()

    def parameters(self) -> Tensor:
        """A copy of the parameters, `[d]`."""
        if self._casts and self._bound is not None:
            return self._bound[: self.size].detach().clone()
        vector = torch.empty_like(self._slope[: self.size])
        torch._foreach_copy_(list(self._views(vector)), [parameter.detach() for parameter in self._parameters])
        return vector

    def bind(self, flat: Tensor, *, bf16: bool = False) -> None:
        """Make the parameters views into `flat` `[>= d]`: writing to either is writing to both.

        If the parameters are static, they become equal to `flat` instead; call this again after `flat` has changed.

        With `bf16`, for passes under `torch.autocast`, the weights of convolutions and linear layers are equal to
        `flat` in bfloat16: one conversion in place of one per layer. Call this again after `flat` has changed.
        """
        if self._static is not None:
            self._static.copy_(flat[: self.size].detach())
            flat = self._static
        if self._bound is not flat or self._casts != bf16:
            self._point_to(flat, bf16)
        if bf16 and self._shadow is not None:
            self._shadow.weights.copy_(flat[: self.size].detach())

    def _point_to(self, flat: Tensor, bf16: bool) -> None:
        views = list(self._views(flat))
        if bf16 and self._in_bf16:
            if self._shadow is None:
                weights, slope = (torch.zeros_like(self._slope[: self.size], dtype=torch.bfloat16) for _ in range(2))
                self._shadow = _Shadow(weights, slope, list(self._views(weights)), list(self._views(slope)))
            for place, parameter in enumerate(self._parameters):
                if parameter in self._in_bf16:
                    views[place] = self._shadow.views[place]
        for parameter, view in zip(self._parameters, views, strict=True):
            parameter.data = view
        self._bound, self._casts = flat, bf16

    def differentiate(
        self, loss: Tensor, extra: Tensor | None = None, dual: Tensor | None = None, slope: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Gradients of a loss by the parameters and then `extra` `[d + e]`, and by `dual`; zero where it has none.

        The loss is of the parameters that were bound last; with `slope` it is `(slope * loss).sum()`, of outputs of any
        shape. The first of the two vectors is overwritten by the next call.
        """
        others = [self._slope[:0].detach().requires_grad_() if part is None else part for part in (extra, dual)]
        gradients = torch.autograd.grad(
            loss, [*self._parameters, *others], slope, allow_unused=True, materialize_grads=True
        )
        size = self.size + others[0].numel()
        if len(self._slope) != size:
            self._slope = self._slope.new_zeros(size)
            self._slopes = list(self._views(self._slope))
        if self._casts and self._shadow is not None:
            self._gather_bf16(self._shadow, gradients)
        else:
            torch._foreach_copy_(self._slopes, gradients[: len(self._slopes)])
        if size > self.size:
            self._slope[self.size :] = gradients[-2]
        return self._slope, gradients[-1]

    def _gather_bf16(self, shadow: _Shadow, gradients: Sequence[Tensor]) -> None:
        """Convert the gradients in bfloat16 at once; the places of the others are overwritten then."""
        cast = [place for place, parameter in enumerate(self._parameters) if parameter in self._in_bf16]
        rest = [place for place, parameter in enumerate(self._parameters) if parameter not in self._in_bf16]
        torch._foreach_copy_([shadow.slopes[place] for place in cast], [gradients[place] for place in cast])
        self._slope[: self.size].copy_(shadow.slope)
        if rest:
            torch._foreach_copy_([self._slopes[place] for place in rest], [gradients[place] for place in rest])

    def call(self, flat: Tensor, images: Tensor) -> Tensor:
        """The module's output with parameters `flat` `[>= d]`, differentiable in them any number of times.

        Nothing is bound; running statistics are updated as in a plain call.
        """
        views = dict(zip(self._names, self._views(flat), strict=True))
        return torch.func.functional_call(self.module, views, (images,))

    def buffers(self) -> Tensor:
        """A copy of the float buffers (running statistics) as one vector; of length 0 without such buffers."""
        if not self._buffers:
            return self._slope[:0].clone()
        return torch.cat([buffer.detach().reshape(-1) for buffer in self._buffers])

    def load_buffers(self, flat: Tensor) -> None:
        """The inverse of `buffers`."""
        offset = 0
        for buffer in self._buffers:
            buffer.copy_(flat[offset : offset + buffer.numel()].view(buffer.shape))
            offset += buffer.numel()

    def state_dict(self) -> dict[str, Tensor]:
        """The module's tensors by their names, for a file; what batch normalization has counted is 0."""
        state = self.module.state_dict()
        return state | {name: torch.zeros((), dtype=torch.int64) for name in self._counters}


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


@dataclass(frozen=True)
class _Shadow:
    """Weights and their gradient in bfloat16, `[d]`, and the views of the parameters into them."""

    weights: Tensor
    slope: Tensor
    views: list[Tensor]
    slopes: list[Tensor]


def _find_autocast(module: nn.Module) -> set[nn.Parameter]:
    """The parameters that `torch.autocast` converts before each use, of layers whose type says so."""
    layers = (part for part in module.modules() if type(part) in (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear))
    return {part for layer in layers for part in layer.parameters(recurse=False)}


def _stop_counting(module: nn.Module) -> list[str]:
    """Stop batch normalization from counting its batches, which is a kernel per layer and step; the counters' names.

    Where its momentum is None it reads them.
    """
    names = []
    for name, part in module.named_modules():
        if isinstance(part, _BatchNorm) and part.momentum is not None and part.num_batches_tracked is not None:
            part.num_batches_tracked = None
            names.append(f"{name}.num_batches_tracked".lstrip("."))
    return names
