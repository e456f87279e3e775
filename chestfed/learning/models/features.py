"""Heads on the features of a network that is not trained: linear probing, with one hidden layer if wanted, or with the
last stages of the network trained too.

model: {name: features, network: runs/films-0123456789ab/k3/model.safetensors}
model: {name: features, network: {name: densenet121, initial_weights: imagenet}}
model: {name: features, network: {name: efficientnet-lite0, initial_weights: imagenet}, trained: 5}
model: {name: features, network: {name: "timm:create_model", options: {model_name: vit_tiny_patch16_224, ...}}}
model: {name: features, network: {name: "torchxrayvision.models:DenseNet", options: {weights: densenet121-res224-all}},
        outputs: 18, channels: 1, range: [-1024, 1024]}

Features are what enters the last layer of the network, or the first stage that is trained, in evaluation mode. They do
not depend on a study's settings, so they are computed once per image (`chestfed.data.images.features`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import torch
from pydantic import Field, JsonValue, field_validator
from torch import Tensor, nn
from torch.nn import functional

from chestfed.core.checkpoint import load_checkpoint
from chestfed.core.config import AddedLater, NamesFile
from chestfed.core.errors import ConfigError
from chestfed.learning.models.declaration import ModelOptions, ModelSpec
from chestfed.learning.models.flat import convolve_channels_last

#: Name of the network in configurations.
FEATURES: Final = "features"
#: ImageNet's channel means and standard deviations, with which images are normalized before any network sees them.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_MODEL_FILE: Final = ".safetensors"
#: Side of an image that tells how many planes the stages give.
_TRIED_SIDE: Final = 64


class FeatureOptions(ModelOptions):
    """A head on the features of a network that is not trained."""

    network: Annotated[dict[str, JsonValue] | str, NamesFile()] = Field(
        description="the network that is not trained: a model file of a study (.safetensors), or a name or a mapping "
        "as `model` elsewhere, with initial_weights of its own. It must not have been trained on test patients"
    )
    trained: Annotated[int, AddedLater()] = Field(
        0,
        ge=0,
        description="number of the network's last stages that are trained too, from its weights on and with its batch "
        "statistics; only they and the head are sent",
    )
    hidden: int = Field(0, ge=0, le=65_536, description="units of a hidden layer; 0: the head is linear")
    outputs: int | None = Field(
        None,
        ge=1,
        description="number of outputs that the network is built with; its last layer is not used. null: that of the "
        "model file, otherwise 1",
    )
    channels: Literal[1, 3] = Field(3, description="channels that the network takes, the same gray in each")
    range: list[float] | None = Field(
        None,
        min_length=2,
        max_length=2,
        description="[low, high]: what black and white become; null: ImageNet's mean and deviation, as in training",
    )

    @field_validator("network")
    @classmethod
    def _is_a_network(cls, value: dict[str, JsonValue] | str) -> dict[str, JsonValue] | str:
        if isinstance(value, str) and value.endswith(_MODEL_FILE):
            return value
        given = {"name": value} if isinstance(value, str) else value
        if given.get("name") == FEATURES:
            raise ValueError("network: features of features are not possible; name the network itself")
        return _read_options(given).model_dump(mode="json")

    @field_validator("range")
    @classmethod
    def _rises(cls, value: list[float] | None) -> list[float] | None:
        if value is not None and not value[0] < value[1]:
            raise ValueError(f"range: {value} is not [low, high] with low below high")
        return value

    def relocate(self, place: Callable[[str, str], str]) -> Self:
        """See `StrictModel`; also the files that the options of the network name."""
        moved = super().relocate(place)
        if isinstance(self.network, str):
            return moved
        options = _read_options(self.network).relocate(lambda key, text: place(f"network.{key}", text))
        return moved.model_copy(update={"network": options.model_dump(mode="json")})


@dataclass(frozen=True, eq=False)
class FrozenNetwork:
    """A network whose features are taken."""

    module: nn.Module  #: in evaluation mode
    layer: nn.Module  #: the last one
    width: int  #: number of values that the last layer takes
    digest: str  #: of the weights, of the code of a plug-in, and of how images are given to it
    options: FeatureOptions
    preprocess: dict[str, Any] | None = None  #: with which a model file says that it was trained
    before: nn.Module | None = None  #: the stages that are not trained, if others are
    trained: nn.Module | None = None  #: those that are, with the network's weights
    channels: int = 0  #: of the planes that the first of these takes

    def count_features(self, size: int) -> int:
        """The number of features of an image of `size` x `size`."""
        if self.before is None:
            return self.width
        device = next(self.module.parameters()).device
        return self.extract(torch.zeros(1, 3, size, size, device=device)).shape[1]

    def extract(self, images: Tensor) -> Tensor:
        """Features float32 `[n, d]` of images `[n, 3, h, w]`, normalized as in training; planes one after the other.

        Raises `ConfigError` if the last layer is given anything but vectors or planes.
        """
        with torch.no_grad(), torch.autocast(images.device.type, enabled=False):
            network, given = self.module.to(images.device), self._adapt(images.float())
            if self.before is not None:
                return self.before(given).flatten(1).float()
            entered: list[Tensor] = []
            hook = self.layer.register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0]))
            try:
                network(given)
            finally:
                hook.remove()
        features = entered[0].mean(dim=(2, 3)) if entered[0].dim() == 4 else entered[0]
        if features.dim() != 2:
            shape = list(features.shape)
            raise ConfigError(
                f"model.network: its last layer is given {shape}, not one vector per image; name another network",
                kind="no feature vectors",
                shape=shape,
            )
        return features.float()

    def _adapt(self, images: Tensor) -> Tensor:
        """The images as the network takes them."""
        if self.options.range is not None:
            mean, std = (images.new_tensor(values)[:, None, None] for values in (_MEAN, _STD))
            low, high = self.options.range
            images = (images * std + mean) * (high - low) + low
        return images[:, : self.options.channels]


class FixedNorm(nn.Module):
    """Batch normalization with the statistics and the scale that the weights came with: none of them is trained."""

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        assert norm.running_var is not None
        assert norm.running_mean is not None
        scale = norm.weight.detach() * (norm.running_var + norm.eps).rsqrt()
        self.scale = nn.Parameter(scale, requires_grad=False)
        self.shift = nn.Parameter(norm.bias.detach() - norm.running_mean * scale, requires_grad=False)

    def forward(self, planes: Tensor) -> Tensor:
        """Each channel times its scale, plus its shift."""
        return planes * self.scale[:, None, None] + self.shift[:, None, None]


def _fix_norms(module: nn.Module) -> nn.Module:
    """The module with `FixedNorm` for every batch normalization: clients of few images have no good statistics."""
    for name, part in module.named_children():
        setattr(module, name, FixedNorm(part) if isinstance(part, nn.BatchNorm2d) else _fix_norms(part))
    return module


class FeatureHead(nn.Module):
    """A linear layer, or two, on features; also of images, whose features it computes then.

    Before it come the stages of the network that are trained. What enters the first linear layer is normalized image by
    image (layer normalization without parameters), so that step sizes do not depend on its scale. The part of the
    network that is not trained is neither among the parameters nor in the state, which has its digest.
    """

    digest: Tensor

    def __init__(self, frozen: FrozenNetwork, hidden: int, outputs: int) -> None:
        super().__init__()
        self._frozen = (frozen,)  # in a tuple, where torch does not look for parameters
        self.stages = None if frozen.trained is None else _fix_norms(deepcopy(frozen.trained)).requires_grad_(True)
        for part in self.modules():
            if isinstance(part, FixedNorm):
                part.requires_grad_(False)
        self.hidden = nn.Linear(frozen.width, hidden) if hidden else None
        self.head = nn.Linear(hidden or frozen.width, outputs)
        self.register_buffer("digest", torch.tensor(list(bytes.fromhex(frozen.digest)), dtype=torch.uint8))

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits `[n, outputs]` of features `[n, d]` or of images `[n, 3, h, w]`."""
        frozen = self._frozen[0]
        features = inputs if inputs.dim() == 2 else frozen.extract(inputs)
        if self.stages is not None:
            side = math.isqrt(features.shape[1] // frozen.channels)
            planes = features.unflatten(1, (frozen.channels, side, side)).clone()  # stages may write into their input
            features = self.stages(planes)
        values = functional.layer_norm(features, features.shape[1:])
        return self.head(values if self.hidden is None else torch.relu(self.hidden(values)))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        stored = state_dict.get(f"{prefix}digest")
        if stored is not None and not torch.equal(stored.cpu(), self.digest.cpu()):
            raise ConfigError(
                "model.network: this head was trained on the features of another network, or of other weights",
                kind="other features",
            )
        super()._load_from_state_dict(state_dict, prefix, *rest)


def load_frozen(options: FeatureOptions) -> FrozenNetwork:
    """The network whose features are taken; loaded once per process.

    Raises
    ------
    ConfigError
        If it cannot be built, its file cannot be read, or its last layer does not say how many features it takes.
    """
    plain = {key: value for key, value in options.model_dump(mode="json").items() if key not in ("hidden",)}
    file = options.network if isinstance(options.network, str) else str(options.network.get("initial_weights") or "")
    stat = Path(file).stat() if file and Path(file).is_file() else None
    return _load(FeatureOptions.model_validate(plain).model_dump_json(), stat and (stat.st_mtime_ns, stat.st_size))


@lru_cache(maxsize=4)
def _load(text: str, _: object) -> FrozenNetwork:
    from chestfed.learning.models.building import MODELS, build_model, find_classifier

    options = FeatureOptions.model_validate_json(text)
    if isinstance(options.network, str):
        network, tensors, header = _open_model_file(Path(options.network))
        outputs = options.outputs or len(header["diseases"])
    else:
        network, tensors, header = _read_options(options.network), None, {}
        outputs = options.outputs or 1
    module = build_model(network, outputs, seed=0)
    if tensors is not None:
        module.load_state_dict(tensors)
    _, layer = find_classifier(module, network, outputs)
    width = getattr(layer, "in_features", None) or getattr(layer, "in_channels", None)
    if width is None:
        raise ConfigError(
            f"model.network: '{network.name}' has a last layer that does not say how many features it takes",
            kind="unknown features",
            network=network.name,
        )
    convolve_channels_last(module)
    code = f"{network.name} {MODELS.digest(network.name)} {options.channels} {options.range}"
    module.eval().requires_grad_(False)
    if not options.trained:
        return FrozenNetwork(module, layer, int(width), _digest(module, code), options, header.get("preprocess"))
    stages = _list_stages(module, network, options.trained)
    digest = _digest(module, f"{code} {options.trained}")
    frozen = FrozenNetwork(module, layer, int(width), digest, options, header.get("preprocess"), *stages)
    with torch.no_grad():
        channels = stages[0](frozen._adapt(torch.zeros(1, 3, _TRIED_SIDE, _TRIED_SIDE))).shape[1]
    return replace(frozen, channels=channels)


def _list_stages(module: nn.Module, network: ModelOptions, trained: int) -> tuple[nn.Module, nn.Module]:
    """The stages of a network before the last `trained` ones, and these."""
    from chestfed.learning.models.building import MODELS

    spec = MODELS.find(network.name)
    if spec.stages is None:
        others = ", ".join(name for name, declared in MODELS.built_in.items() if declared.stages)
        raise ConfigError(
            f"model.trained: '{network.name}' does not say its stages; set it to 0, or take one of {others}",
            kind="no stages",
            network=network.name,
        )
    stages = spec.stages(module)
    if trained >= len(stages):
        raise ConfigError(
            f"model.trained: '{network.name}' has {len(stages)} stages, and {trained} leave none to take features "
            f"from: at most {len(stages) - 1}, or train the network itself: model: {{name: {network.name}, ...}}",
            kind="too many stages",
            network=network.name,
            stages=len(stages),
        )
    return nn.Sequential(*stages[:-trained]), nn.Sequential(*stages[-trained:])


def _open_model_file(path: Path) -> tuple[ModelOptions, dict[str, Tensor], dict[str, Any]]:
    """The network, weights and description in a model file of a study."""
    from chestfed.learning.models.building import MODELS

    if not path.is_file():
        raise ConfigError(
            f"model.network: {path}: no such file. It is the model of a study that is run first. Name it: "
            "--set model.network=runs/FOLDER/kN/model.safetensors",
            kind="no model file",
            file=str(path),
        )
    tensors, header = load_checkpoint(path)
    given = header.get("model")
    if not isinstance(given, dict) or not isinstance(header.get("diseases"), list):
        raise ConfigError(f"model.network: {path.name} is not the model file of a study", kind="not a model file")
    if given.get("name") not in MODELS.built_in or given["name"] == FEATURES:
        raise ConfigError(
            f"model.network: {path.name} names the network '{given.get('name')}', which is not built in. Name it: "
            "network: {name: package.module:Name, initial_weights: FILE}",
            kind="network is not built in",
            network=given.get("name"),
        )
    return _read_options({**given, "initial_weights": None}), tensors, header


def _read_options(given: dict[str, Any]) -> ModelOptions:
    from chestfed.learning.models.building import network_options

    if not isinstance(given.get("name"), str):
        raise ValueError("network: needs a name, or a mapping with 'name' and its options")
    return network_options(**given)


def _digest(module: nn.Module, code: str) -> str:
    digest = hashlib.blake2b(code.encode(), digest_size=16)
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        if not name.endswith("num_batches_tracked"):
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _build(options: FeatureOptions, outputs: int) -> nn.Module:
    return FeatureHead(load_frozen(options), options.hidden, outputs)


HEAD_ON_FEATURES = ModelSpec(FEATURES, "head on frozen features", FeatureOptions, _build, classifier="head")
