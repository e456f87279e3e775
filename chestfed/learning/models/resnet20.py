"""ResNet20, the network of the papers' experiments on images of 32 x 32.

He, Zhang, Ren, Sun: "Deep Residual Learning for Image Recognition", CVPR 2016, section 4.2: a 3x3 convolution of 16
channels, three groups of three blocks with 16, 32 and 64 channels, the second and third group halving the side, the
mean over the image, one linear layer. Shortcuts without parameters: every other pixel, new channels zero (option A).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from chestfed.learning.models.declaration import NORM, ModelOptions, ModelSpec, Norm

_WIDTHS, _BLOCKS = (16, 32, 64), 3
_GROUPS = 4

#: Makes a normalization layer for a number of channels.
Normalization = Callable[[int], nn.Module]


class ResNet20(nn.Module):
    """Images float32 `[n, 3, h, w]` to logits `[n, outputs]`; any side from 8 up.

    Parameters
    ----------
    groups
        Groups of a group normalization; None: batch normalization.
    """

    def __init__(self, outputs: int, groups: int | None = None) -> None:
        super().__init__()

        def norm(channels: int) -> nn.Module:
            return nn.BatchNorm2d(channels) if groups is None else nn.GroupNorm(groups, channels)

        layers: list[nn.Module] = [nn.Conv2d(3, _WIDTHS[0], 3, padding=1, bias=False), norm(_WIDTHS[0]), nn.ReLU()]
        before = _WIDTHS[0]
        for width in _WIDTHS:
            for _ in range(_BLOCKS):
                layers.append(_Block(before, width, norm))
                before = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(before, outputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        return self.classifier(self.features(images).mean(dim=(2, 3)))


class _Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(self, before: int, width: int, norm: Normalization) -> None:
        super().__init__()
        self.stride = 1 if before == width else 2
        self.added = width - before
        self.convolutions = nn.Sequential(
            nn.Conv2d(before, width, 3, stride=self.stride, padding=1, bias=False),
            norm(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            norm(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x[:, :, :: self.stride, :: self.stride]
        if self.added:
            shortcut = functional.pad(shortcut, (0, 0, 0, 0, 0, self.added))
        return torch.relu(self.convolutions(x) + shortcut)


class ResNet20Options(ModelOptions):
    """ResNet20."""

    norm: Norm = Field("batch", description=NORM)


def _build(options: ResNet20Options, outputs: int) -> nn.Module:
    return ResNet20(outputs, _GROUPS if options.norm == "group" else None)


RESNET20 = ModelSpec(
    "resnet20",
    "ResNet20",
    ResNet20Options,
    _build,
    "He, Zhang, Ren, Sun, Deep Residual Learning for Image Recognition, CVPR 2016",
    "classifier",
    recomputed=r"features\.([3-9]|1[01])",
)
