"""Named groups of a network's weights, as slices of its flat vector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from chestfed.learning.models.building import build_model, find_classifier
from chestfed.learning.models.declaration import ModelOptions

_NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


def find_groups(module: nn.Module, options: ModelOptions, outputs: int) -> dict[str, tuple[slice, ...]]:
    """`features`, `normalization` and `classifier`: slices of `FlatModule.parameters()`, together all of it.

    Raises
    ------
    ConfigError
        If the last layer cannot be identified; see `find_classifier`.
    """
    norms = [part for part in module.modules() if isinstance(part, _NORMS)]
    classifier = {id(part) for part in find_classifier(module, options, outputs)[1].parameters()}
    normalization = {id(part) for norm in norms for part in norm.parameters()} - classifier
    groups: dict[str, list[slice]] = {"features": [], "normalization": [], "classifier": []}
    start = 0
    for part in module.parameters():
        if not part.requires_grad:
            continue
        name = "classifier" if id(part) in classifier else "normalization" if id(part) in normalization else "features"
        cuts, stop = groups[name], start + part.numel()
        if cuts and cuts[-1].stop == start:
            cuts[-1] = slice(cuts[-1].start, stop)
        else:
            cuts.append(slice(start, stop))
        start = stop
    return {name: tuple(cuts) for name, cuts in groups.items()}


class NetworkGroups(Mapping[str, tuple[slice, ...]]):
    """The groups of the network with these options, which is built when one is first asked for."""

    def __init__(self, options: ModelOptions, outputs: int) -> None:
        self._options, self._outputs = options.model_copy(update={"initial_weights": None}), outputs

    @cached_property
    def _groups(self) -> dict[str, tuple[slice, ...]]:
        return find_groups(build_model(self._options, self._outputs, 0), self._options, self._outputs)

    def __getitem__(self, name: str) -> tuple[slice, ...]:
        return self._groups[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)
