"""DenseNets with the names and the initial weights of MONAI's, whose import takes longer than torch's."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from chestfed.models.declaration import NORM, ModelOptions, ModelSpec, Norm

_CITATION = "Huang et al., Densely Connected Convolutional Networks, CVPR 2017"

#: Numbers of groups for group normalization: the first that divides every number of channels is used.
_GROUPS = (4, 2, 1)


class SmallOptions(ModelOptions):
    """A DenseNet that a laptop can train."""

    init_features: int = Field(16, ge=1, le=1024, description="channels after the first convolution")
    growth_rate: int = Field(8, ge=1, le=512, description="channels that each layer adds")
    blocks: list[Annotated[int, Field(ge=1, le=256)]] = Field(
        [2, 2, 2, 2], min_length=1, max_length=8, description="layers per dense block"
    )
    bottleneck: int = Field(2, ge=1, le=64, description="width of the 1x1 convolutions as a multiple of growth_rate")
    pool: int = Field(
        1,
        ge=1,
        le=8,
        description="average the image over squares of this side first; 2 makes the network four times as fast",
    )
    norm: Norm = Field("group", description=NORM)


class PublishedOptions(ModelOptions):
    """One of the published architectures."""

    norm: Norm = Field("batch", description=NORM)


class MeanOfSquares(nn.Module):
    """What `nn.AvgPool2d(side)` gives, in a third of its time on a CPU: sums of whole rows come first."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, images: Tensor) -> Tensor:
        """`[n, c, h, w]` to `[n, c, h // side, w // side]`."""
        side = self.side
        height, width = (length // side * side for length in images.shape[2:])
        rows = images[..., :height, :width].unflatten(2, (-1, side)).unbind(3)
        columns = reduce(torch.add, rows).unflatten(3, (-1, side)).unbind(4)
        return reduce(torch.add, columns) / side**2


class DenseLayer(nn.Module):
    """From all channels so far to `growth` new ones."""

    def __init__(self, channels: int, growth: int, width: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            OrderedDict(
                norm1=norm(channels),
                relu1=nn.ReLU(inplace=True),
                conv1=nn.Conv2d(channels, width, kernel_size=1, bias=False),
                norm2=norm(width),
                relu2=nn.ReLU(inplace=True),
                conv2=nn.Conv2d(width, growth, kernel_size=3, padding=1, bias=False),
            )
        )

    def forward(self, *given: Tensor) -> Tensor:
        """The block's input and what each layer before gave, `[n, c, h, w]`, to `[n, growth, h, w]`."""
        return self.layers(torch.cat(given, 1))


class DenseBlock(nn.Sequential):
    """Layers, each of which is given what all before it gave."""

    def forward(self, images: Tensor) -> Tensor:
        """`[n, c, h, w]` to `[n, c + layers * growth, h, w]`."""
        given = [images]
        for layer in self:
            given.append(layer(*given))
        return torch.cat(given, 1)


class DenseNet(nn.Module):
    """The networks of the paper's Table 1, of any size."""

    def __init__(self, outputs: int, channels: int, growth: int, blocks: Sequence[int], width: int, norm: Norm) -> None:
        super().__init__()
        normalized = _norm(norm, channels, growth, blocks, width)
        self.features = nn.Sequential(
            OrderedDict(
                conv0=nn.Conv2d(3, channels, kernel_size=7, stride=2, padding=3, bias=False),
                norm0=normalized(channels),
                relu0=nn.ReLU(inplace=True),
                pool0=nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
            )
        )
        for number, layers in enumerate(blocks, start=1):
            widths = [channels + layer * growth for layer in range(layers + 1)]
            block = {
                f"denselayer{place}": DenseLayer(before, growth, width, normalized)
                for place, before in enumerate(widths[:-1], start=1)
            }
            self.features.add_module(f"denseblock{number}", DenseBlock(OrderedDict(block)))
            channels = widths[-1]
            if number < len(blocks):
                self.features.add_module(f"transition{number}", _transition(channels, normalized))
                channels //= 2
        self.features.add_module("norm5", normalized(channels))
        self.class_layers = nn.Sequential(
            OrderedDict(
                relu=nn.ReLU(inplace=True),
                pool=nn.AdaptiveAvgPool2d(1),
                flatten=nn.Flatten(1),
                out=nn.Linear(channels, outputs),
            )
        )
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight)
            elif isinstance(part, nn.Linear):
                nn.init.zeros_(part.bias)

    def forward(self, images: Tensor) -> Tensor:
        """`[n, 3, h, w]` to logits `[n, outputs]`."""
        return self.class_layers(self.features(images))


def _transition(channels: int, norm: Callable[[int], nn.Module]) -> nn.Sequential:
    """Half as many channels, half the height and width."""
    return nn.Sequential(
        OrderedDict(
            norm=norm(channels),
            relu=nn.ReLU(inplace=True),
            conv=nn.Conv2d(channels, channels // 2, kernel_size=1, bias=False),
            pool=nn.AvgPool2d(kernel_size=2, stride=2),
        )
    )


def _norm(norm: Norm, channels: int, growth: int, blocks: Sequence[int], width: int) -> Callable[[int], nn.Module]:
    """The normalization of any number of channels that the network has."""
    if norm != "group":
        return nn.BatchNorm2d
    widths = [channels, width]
    for layers in blocks:
        widths += [channels + layer * growth for layer in range(layers + 1)]
        channels = widths[-1] // 2
    groups = next(groups for groups in _GROUPS if all(width % groups == 0 for width in widths))
    return partial(nn.GroupNorm, groups)


def _small(options: SmallOptions, outputs: int) -> nn.Module:
    growth, width = options.growth_rate, options.bottleneck * options.growth_rate
    model = DenseNet(outputs, options.init_features, growth, options.blocks, width, options.norm)
    if options.pool > 1:
        layers = dict(model.features.named_children())
        model.features = nn.Sequential(OrderedDict({"pool_images": MeanOfSquares(options.pool), **layers}))
    return model


def _densenet121(options: PublishedOptions, outputs: int) -> nn.Module:
    return DenseNet(outputs, 64, 32, (6, 12, 24, 16), 128, options.norm)


def _densenet161(options: PublishedOptions, outputs: int) -> nn.Module:
    return DenseNet(outputs, 96, 48, (6, 12, 36, 24), 192, options.norm)


def monai_name(name: str) -> str:
    """The name in MONAI's DenseNet of a tensor of torchvision's; MONAI's own names stay."""
    name = re.sub(r"(denselayer\d+)\.(norm|relu|conv)\.?(\d)", r"\1.layers.\2\3", name)
    return re.sub(r"^classifier\.", "class_layers.out.", name)


SMALL = ModelSpec("small", "small DenseNet", SmallOptions, _small, _CITATION, "class_layers.out", monai_name)
DENSENET121 = ModelSpec(
    "densenet121", "DenseNet121", PublishedOptions, _densenet121, _CITATION, "class_layers.out", monai_name
)
DENSENET161 = ModelSpec(
    "densenet161", "DenseNet161", PublishedOptions, _densenet161, _CITATION, "class_layers.out", monai_name
)
