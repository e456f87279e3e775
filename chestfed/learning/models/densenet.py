"""DenseNets. MONAI is imported when one is built."""

from __future__ import annotations

import re
import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field
from torch import Tensor, nn

from chestfed.learning.models.declaration import NORM, ModelOptions, ModelSpec, Norm, Published

if TYPE_CHECKING:
    from monai.networks.nets import DenseNet

_CITATION = "Huang et al., Densely Connected Convolutional Networks, CVPR 2017"

#: Numbers of groups for group normalization: the first that divides every number of channels is used.
_GROUPS = (4, 2, 1)
#: Packages that MONAI's networks do not use, and more than half of the time that its import takes.
_NOT_FOR_NETWORKS = (
    *("mlflow", "matplotlib", "jsonschema", "optuna", "sklearn", "ignite"),
    *("cupy", "cupyx", "cucim", "transformers", "huggingface_hub", "tensorboard", "tensorboardX", "nibabel", "itk"),
    *("skimage", "onnx", "tensorrt", "torch_tensorrt", "pytorch_lightning"),
    *(f"scipy.{part}" for part in ("ndimage", "optimize", "signal", "sparse", "spatial", "stats")),
)


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


def _small(options: SmallOptions, outputs: int) -> nn.Module:
    model = _densenet(
        outputs,
        options.norm,
        init_features=options.init_features,
        growth_rate=options.growth_rate,
        block_config=tuple(options.blocks),
        bn_size=options.bottleneck,
    )
    if options.pool > 1:
        layers = dict(model.features.named_children())
        model.features = nn.Sequential(OrderedDict({"pool_images": MeanOfSquares(options.pool), **layers}))
    return model


class MeanOfSquares(nn.Module):
    """Means of `nn.AvgPool2d(side)`, in a third of its time on a CPU: sums of whole rows come first."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, images: Tensor) -> Tensor:
        """`[n, c, h, w]` to `[n, c, h // side, w // side]`."""
        side = self.side
        height, width = (length // side * side for length in images.shape[2:])
        parts: tuple[Tensor, ...] = images[..., :height, :width].unflatten(2, (-1, side)).unbind(3)
        rows = parts[0] + parts[1]
        for part in parts[2:]:
            rows += part
        return rows.unflatten(3, (-1, side)) @ rows.new_full((side,), 1 / side**2)


def _densenet121(options: PublishedOptions, outputs: int) -> nn.Module:
    return _densenet(outputs, options.norm, init_features=64, growth_rate=32, block_config=(6, 12, 24, 16))


def _densenet161(options: PublishedOptions, outputs: int) -> nn.Module:
    """Table 1 of the paper; MONAI has no class for it."""
    return _densenet(outputs, options.norm, init_features=96, growth_rate=48, block_config=(6, 12, 36, 24))


def _densenet(
    outputs: int, norm: Norm, init_features: int, growth_rate: int, block_config: tuple[int, ...], bn_size: int = 4
) -> DenseNet:
    DenseNet = import_densenet()
    groups = _groups(init_features, growth_rate, block_config, bn_size)
    layer = ("group", {"num_groups": groups}) if norm == "group" else "batch"
    return DenseNet(2, 3, outputs, init_features, growth_rate, block_config, bn_size, norm=layer)


def import_densenet() -> type[DenseNet]:
    """MONAI's class; the first call takes a second."""
    with _without(_NOT_FOR_NETWORKS):
        from monai.networks.nets import DenseNet

    return DenseNet


@contextmanager
def _without(names: tuple[str, ...]) -> Iterator[None]:
    """MONAI imports every package that it could work with; those that are not loaded yet are hidden from it."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def _groups(channels: int, growth: int, blocks: tuple[int, ...], bottleneck: int) -> int:
    widths = [channels, bottleneck * growth]
    for layers in blocks:
        widths += [channels + layer * growth for layer in range(layers + 1)]
        channels = widths[-1] // 2  # MONAI's transition halves the channels
    return next(groups for groups in _GROUPS if all(width % groups == 0 for width in widths))


def monai_name(name: str) -> str:
    """The name in MONAI's DenseNet of a tensor of torchvision's; MONAI's own names stay."""
    name = re.sub(r"(denselayer\d+)\.(norm|relu|conv)\.?(\d)", r"\1.layers.\2\3", name)
    return re.sub(r"^classifier\.", "class_layers.out.", name)


#: Of torchvision's weights.
_HOST: Final = "https://download.pytorch.org/models"


def _list_stages(network: DenseNet) -> list[nn.Module]:
    return [*network.features, nn.Sequential(*list(network.class_layers)[:-1])]


_COMMON: Final = (_CITATION, "class_layers.out", monai_name, r".*\.denselayer\d+")

SMALL = ModelSpec("small", "small DenseNet", SmallOptions, _small, *_COMMON, stages=_list_stages)
DENSENET121 = ModelSpec(
    *("densenet121", "DenseNet121", PublishedOptions, _densenet121, *_COMMON),
    imagenet=Published("densenet121-a639ec97.pth", _HOST),
    stages=_list_stages,
)
DENSENET161 = ModelSpec(
    *("densenet161", "DenseNet161", PublishedOptions, _densenet161, *_COMMON),
    imagenet=Published("densenet161-8d451a50.pth", _HOST),
    stages=_list_stages,
)
