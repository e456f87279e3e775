"""Networks, seen as one flat vector of parameters.

The networks are MONAI's DenseNets on `[n, 3, 320, 320]` images, and ResNet20, with one logit per disease.
`FlatModule` makes a module's parameters views into one vector, so that algorithms work on vectors and nothing has to
be copied.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from chestfed.core.config import StrictModel
from chestfed.core.errors import ConfigError
from chestfed.core.randomness import stream_seed
from chestfed.models.resnet20 import ResNet20

#: Numbers of groups for group normalisation: the first that divides every number of channels is taken.
_GROUPS = (4, 2, 1)

#: Huang et al., "Densely Connected Convolutional Networks", CVPR 2017, Table 1; MONAI has no class for 161.
_PUBLISHED: dict[str, dict[str, Any]] = {
    "densenet121": {"init_features": 64, "growth_rate": 32, "block_config": (6, 12, 24, 16)},
    "densenet161": {"init_features": 96, "growth_rate": 48, "block_config": (6, 12, 36, 24)},
}


class ModelConfig(StrictModel):
    """Which network; `small` is a DenseNet that a laptop can train.

    The fields from `init_features` to `pool` are for `small` only; 121 and 161 are the published architectures.
    """

    name: Literal["small", "densenet121", "densenet161", "resnet20"] = Field("small", description="architecture")
    initial_weights: str | None = Field(
        None, description="safetensors or .pth file to start from (MONAI or torchvision names); null: random"
    )
    init_features: int = Field(16, ge=1, description="channels after the first convolution")
    growth_rate: int = Field(8, ge=1, description="channels that each layer adds")
    blocks: list[int] = Field([2, 2, 2, 2], description="layers per dense block")
    bottleneck: int = Field(2, ge=1, description="width of the 1x1 convolutions, in growth rates")
    pool: int = Field(
        1, ge=1, le=8, description="average the image over squares of this side first: 2 is four times as fast"
    )
    norm: Literal["batch", "group", "auto"] | None = Field(
        None,
        description="group: no running statistics, so none to average over unlike hospitals; null: group for small, "
        "batch for the published architectures; auto: batch, but group where no server averages running statistics",
    )

    @property
    def title(self) -> str:
        """Name for tables."""
        return {
            "small": "small DenseNet",
            "densenet121": "DenseNet121",
            "densenet161": "DenseNet161",
            "resnet20": "ResNet20",
        }[self.name]


def build_model(config: ModelConfig, diseases: int, seed: int) -> nn.Module:
    """A network with random weights drawn from `seed`, or with those of `config.initial_weights`.

    Raises
    ------
    ConfigError
        If the weights file cannot be read or does not fit the architecture.
    """
    from monai.networks.nets import DenseNet

    norm = config.norm or ("group" if config.name == "small" else "batch")
    if config.name == "resnet20":
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream_seed(seed, "initial weights"))
            network: nn.Module = ResNet20(diseases, _GROUPS[0] if norm == "group" else None)
        if config.initial_weights is not None:
            _load_weights(network, Path(config.initial_weights))
        return network
    if config.name == "small":
        architecture: dict[str, Any] = {
            "init_features": config.init_features,
            "growth_rate": config.growth_rate,
            "block_config": tuple(config.blocks),
            "bn_size": config.bottleneck,
        }
    else:
        architecture = _PUBLISHED[config.name]
    layer = "batch" if norm in ("batch", "auto") else ("group", {"num_groups": _groups(architecture)})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_seed(seed, "initial weights"))
        model = DenseNet(spatial_dims=2, in_channels=3, out_channels=diseases, norm=layer, **architecture)
    if config.name == "small" and config.pool > 1:
        layers = dict(model.features.named_children())
        model.features = nn.Sequential(OrderedDict({"pool_images": nn.AvgPool2d(config.pool), **layers}))
    if config.initial_weights is not None:
        _load_weights(model, Path(config.initial_weights))
    return model


def _groups(architecture: dict[str, Any]) -> int:
    channels, growth = architecture["init_features"], architecture["growth_rate"]
    widths = [channels, architecture.get("bn_size", 4) * growth]
    for layers in architecture["block_config"]:
        widths += [channels + layer * growth for layer in range(layers + 1)]
        channels = widths[-1] // 2  # MONAI's transition halves the channels
    return next(groups for groups in _GROUPS if all(width % groups == 0 for width in widths))


def reset_classifier(model: nn.Module, seed: int) -> None:
    """Discard the classifier: draw the last linear layer anew (second stage of the source paper, section 6.2)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_seed(seed, "classifier"))
        last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
        last.reset_parameters()


def load_trained(model: nn.Module, tensors: Mapping[str, Tensor], source: str) -> None:
    """Put all weights, the classifier's too, into a network; MONAI's or torchvision's names.

    Raises
    ------
    ConfigError
        If a tensor is missing, left over or of another shape; `source` says whose they are.
    """
    own = model.state_dict()
    counters = {name for name in own if name.endswith("num_batches_tracked")}
    renamed = {_monai_name(name): tensor for name, tensor in tensors.items()}
    unlike = [name for name in own if name in renamed and renamed[name].shape != own[name].shape]
    missing = [name for name in own if name not in renamed and name not in counters]
    left_over = [name for name in renamed if name not in own]
    if unlike:
        name = unlike[0]
        raise ConfigError(
            f"{source}: '{name}' has the shape {list(renamed[name].shape)}, the network described needs "
            f"{list(own[name].shape)}: another architecture, or another number of diseases?"
        )
    if missing or left_over:
        what = f"lacks '{missing[0]}'" if missing else f"has '{left_over[0]}', which the network has not"
        raise ConfigError(
            f"{source}: {what} ({len(missing)} tensors missing, {len(left_over)} left over): another architecture?"
        )
    model.load_state_dict({**own, **renamed})


def read_weights(path: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors or torch file, without running anything that stands in it.

    Raises
    ------
    ConfigError
        If it holds anything but tensors and plain values.
    """
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        if "weights_only" in str(error) or "Unsupported" in str(error):
            raise ConfigError(
                f"{path} cannot be read: refused: it is a pickle of more than tensors, which could run code when it is "
                "read. Save the state dict alone: torch.save(model.state_dict(), path), or safetensors"
            ) from None
        raise ConfigError(f"{path} cannot be read: {str(error).splitlines()[0] if str(error) else error!r}") from None
    for key in ("state_dict", "model_state_dict", "model"):  # common wrappers
        if isinstance(stored, dict) and isinstance(stored.get(key), dict):
            stored = stored[key]
    if not isinstance(stored, dict) or not stored or not all(isinstance(part, Tensor) for part in stored.values()):
        raise ConfigError(f"{path}: not a state dict: names and tensors are needed")
    return stored


def _load_weights(model: nn.Module, path: Path) -> None:
    try:
        stored = read_weights(path)
    except ConfigError as error:
        raise ConfigError(f"model.initial_weights: {error}") from None
    own = model.state_dict()
    renamed = {_monai_name(name): tensor for name, tensor in stored.items()}
    head = {name for name in own if name.startswith(("class_layers", "classifier."))}
    fitting = {name: tensor for name, tensor in renamed.items() if name in own and tensor.shape == own[name].shape}
    missing = [
        name for name in own if name not in fitting and name not in head and not name.endswith("num_batches_tracked")
    ]
    if missing:
        raise ConfigError(
            f"model.initial_weights: {path} lacks {len(missing)} of {len(own)} tensors of this architecture, "
            f"for example '{missing[0]}' of shape {list(own[missing[0]].shape)}: is it a file for another network?"
        )
    model.load_state_dict({**own, **fitting})


def _monai_name(name: str) -> str:
    """Translate torchvision's DenseNet names into MONAI's; other names are returned as they are."""
    name = name.removeprefix("module.")
    name = re.sub(r"(denselayer\d+)\.(norm|relu|conv)\.?(\d)", r"\1.layers.\2\3", name)
    return re.sub(r"^classifier\.", "class_layers.out.", name)


class FlatModule:
    """A module whose trainable parameters are views into one vector, and whose gradients into another.

    Attributes
    ----------
    size
        d, number of trainable parameters.
    grad
        `[d]`, the gradient of the last backward pass.
    """

    def __init__(self, module: nn.Module, device: torch.device | str = "cpu") -> None:
        self.module = module.to(device)
        trainable = {name: part for name, part in module.named_parameters() if part.requires_grad}
        self._names, self._parameters = list(trainable), list(trainable.values())
        self._buffers = [buffer for buffer in module.buffers() if buffer.is_floating_point()]
        self.size = sum(parameter.numel() for parameter in self._parameters)
        self.grad = torch.zeros(self.size, dtype=self._parameters[0].dtype, device=device)
        for parameter, view in zip(self._parameters, self._views(self.grad), strict=True):
            parameter.grad = view
        self._bound: Tensor | None = None

    def _views(self, flat: Tensor) -> Iterable[Tensor]:
        offset = 0
        for parameter in self._parameters:
            yield flat[offset : offset + parameter.numel()].view(parameter.shape)
            offset += parameter.numel()

    def parameters(self) -> Tensor:
        """A copy of the parameters, `[d]`."""
        return torch.cat([parameter.detach().reshape(-1) for parameter in self._parameters])

    def bind(self, flat: Tensor) -> None:
        """Make the parameters views into `flat` `[>= d]`: writing to either is writing to both."""
        if self._bound is flat:
            return
        for parameter, view in zip(self._parameters, self._views(flat), strict=True):
            parameter.data = view
        self._bound = flat

    def call(self, flat: Tensor, images: Tensor) -> Tensor:
        """The module's output with parameters `flat` `[>= d]`, differentiable in them as often as one likes.

        Nothing is bound; running statistics are updated as in a plain call.
        """
        views = dict(zip(self._names, self._views(flat), strict=True))
        return torch.func.functional_call(self.module, views, (images,))

    def buffers(self) -> Tensor:
        """A copy of the float buffers (running statistics) as one vector; empty if there are none."""
        if not self._buffers:
            return torch.zeros(0, device=self.grad.device)
        return torch.cat([buffer.detach().reshape(-1) for buffer in self._buffers])

    def load_buffers(self, flat: Tensor) -> None:
        """The inverse of `buffers`."""
        offset = 0
        for buffer in self._buffers:
            buffer.copy_(flat[offset : offset + buffer.numel()].view(buffer.shape))
            offset += buffer.numel()
