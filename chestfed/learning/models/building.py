"""Building a network from its options, its last layer, and whether it works with a study."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.plugins import Catalogue
from chestfed.core.randomness import stream_seed
from chestfed.learning.models.declaration import ModelOptions, ModelSpec
from chestfed.learning.models.factory import TAKES_OUTPUTS, FactoryOptions, declare_factory
from chestfed.learning.models.flat import FlatModule
from chestfed.learning.models.pretrained import find_initial_weights
from chestfed.learning.models.weights import load_initial

#: Every network: built in, installed, by reference, and whatever a factory builds.
MODELS: Catalogue[ModelSpec] = Catalogue(
    "network",
    "chestfed.models",
    ModelSpec,
    adapt=declare_factory,
    packages=(__package__,),
    example=f"Or name what builds the network: a class or function, {TAKES_OUTPUTS}",
)

#: Sides of images at which a network is tried that fails on smaller ones.
_SIDES: Final = (32, 64, 128, 224, 256, 299, 384)
#: Classes of modules that draw no random number while they train.
_DRAW_NOTHING: Final = frozenset(
    {
        *(f"torch.nn.modules.container.{name}" for name in ("ModuleDict", "ModuleList", "Sequential")),
        *(f"torch.nn.modules.pooling.{name}" for name in ("AdaptiveAvgPool2d", "AvgPool2d", "MaxPool2d")),
        *(f"monai.networks.nets.densenet.{name}" for name in ("DenseNet", "_DenseBlock", "_DenseLayer", "_Transition")),
        *(f"chestfed.learning.models.resnet20.{name}" for name in ("ResNet20", "_Block")),
        *(
            f"chestfed.learning.models.efficientnet.{name}"
            for name in ("EfficientNetLite", "InvertedBottleneck", "SameConv2d", "Stem")
        ),
        *(f"chestfed.learning.models.features.{name}" for name in ("FeatureHead", "FixedNorm")),
        "torch.nn.modules.activation.ReLU6",
        "torch.nn.modules.linear.Identity",
        "torch.nn.modules.activation.ReLU",
        "torch.nn.modules.batchnorm.BatchNorm2d",
        "torch.nn.modules.conv.Conv2d",
        "torch.nn.modules.flatten.Flatten",
        "torch.nn.modules.linear.Linear",
        "torch.nn.modules.normalization.GroupNorm",
    }
)


def network_options(name: str, **options: Any) -> ModelOptions:
    """The options of a network, checked as in a configuration.

    Raises
    ------
    ConfigError
        If there is no such network.
    pydantic.ValidationError
        If an option is not one of this network's.
    """
    return MODELS.find(name).options.model_validate({"name": name, **options})


def name_network(options: ModelOptions) -> str:
    """Name of a network in tables."""
    arguments = getattr(options, "options", None)
    kind = arguments.get("model_name") if isinstance(options, FactoryOptions) and arguments else None
    return f"{kind} ({options.name})" if kind else MODELS.find(options.name).title


def build_model(options: ModelOptions, outputs: int, seed: int, spec: ModelSpec | None = None) -> nn.Module:
    """A network with random weights drawn from `seed`, or with those of `options.initial_weights`.

    `spec` is its declaration, where it is not the one that `options.name` finds.

    Raises
    ------
    ConfigError
        If it cannot be built, or the weights file cannot be read or does not fit the architecture.
    """
    spec = spec or MODELS.find(options.name)
    with seeded(stream_seed(seed, "initial weights")):
        try:
            model: Any = spec.build(options, outputs)
        except ChestfedError:
            raise
        except Exception as error:
            raise ConfigError(
                f"network '{options.name}' cannot be built: {_line(error)}",
                kind="network cannot be built",
                network=options.name,
            ) from error
    if not isinstance(model, nn.Module):
        raise ConfigError(
            f"network '{options.name}': built a {type(model).__name__}, not a torch.nn.Module",
            kind="not a module",
            network=options.name,
        )
    if options.initial_weights is not None:
        place, layer = find_classifier(model, options, outputs, spec)
        names = {f"{place}.{name}" for name in layer.state_dict()}
        load_initial(model, find_initial_weights(options.initial_weights, spec), spec.renamed, names)
    return model


def find_classifier(
    model: nn.Module, options: ModelOptions, outputs: int, spec: ModelSpec | None = None
) -> tuple[str, nn.Module]:
    """The last layer and its name.

    Raises
    ------
    ConfigError
        If it cannot be identified.
    """
    named = getattr(options, "classifier", None) or (spec or MODELS.find(options.name)).classifier
    if named is not None:
        layer = dict(model.named_modules()).get(named)
        if layer is None or not hasattr(layer, "reset_parameters"):
            raise ConfigError(f"network '{options.name}': classifier '{named}' is not a layer with reset_parameters()")
        return named, layer
    layers = [(name, layer) for name, layer in model.named_modules() if _outputs(layer) == outputs]
    if not layers:
        raise ConfigError(
            f"network '{options.name}': no linear layer or 1x1 convolution has {outputs} outputs, so the last layer "
            "cannot be told; name it: model.classifier, or ModelSpec(classifier=...)",
            kind="unknown last layer",
        )
    return layers[-1]


def reset_classifier(model: nn.Module, options: ModelOptions, outputs: int, seed: int) -> None:
    """Discard the classifier: draw the last layer anew (second stage of the source paper, section 6.2).

    Raises
    ------
    ConfigError
        As `find_classifier`.
    """
    layer: Any = find_classifier(model, options, outputs)[1]
    with seeded(stream_seed(seed, "classifier")):
        layer.reset_parameters()


def _outputs(layer: nn.Module) -> int | None:
    if isinstance(layer, nn.Linear):
        return layer.out_features
    if isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1):
        return layer.out_channels
    return None


def _line(error: Exception) -> str:
    """Kind and first line of an error of foreign code."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__


def try_network(options: ModelOptions, outputs: int, size: int, spec: ModelSpec | None = None) -> FlatModule:
    """The network after a pass of two images in training mode and one in evaluation mode; `spec` as for `build_model`.

    Raises
    ------
    ConfigError
        If it cannot be built, its parameters are not float32, it has no classifier, or it does not turn images
        `[2, 3, size, size]` into finite logits `[2, outputs]`.
    """
    model = build_model(options, outputs, seed=0, spec=spec)
    name = options.name
    trainable = {key: part for key, part in model.named_parameters() if part.requires_grad}
    if not trainable:
        raise ConfigError(f"network '{name}': has no trainable parameters")
    for key, part in trainable.items():
        if nn.parameter.is_lazy(part):
            raise ConfigError(
                f"network '{name}': '{key}' is a lazy parameter; give every layer its size",
                kind="lazy parameter",
                network=name,
                parameter=key,
            )
        if part.dtype != torch.float32:
            raise ConfigError(
                f"network '{name}': '{key}' is {part.dtype}; parameters must be float32",
                kind="not float32",
                network=name,
                parameter=key,
            )
    with seeded(0), torch.no_grad():
        images = torch.randn(2, 3, size, size)
        for training in (True, False):
            try:
                given: object = model.train(training)(images)
            except Exception as error:
                shape = list(images.shape)
                larger = next((side for side in _SIDES if side > size and _takes(model, side)), 0)
                advice = f". It takes {larger} pixels: raise preprocess.size, or give it fewer layers" if larger else ""
                raise ConfigError(
                    f"network '{name}': fails on images of the shape {shape}: {_line(error)}{advice}",
                    kind="network fails",
                    network=name,
                ) from error
            _check_logits(name, given, outputs)
    find_classifier(model, options, outputs, spec)
    return FlatModule(model)


def _takes(model: nn.Module, size: int) -> bool:
    """Whether a network takes images of this side."""
    try:
        model(torch.zeros(2, 3, size, size))
    except Exception:
        return False
    return True


def _check_logits(name: str, given: object, outputs: int) -> None:
    """Refuse anything but finite float logits `[2, outputs]`."""
    expected = f"one tensor of logits [2, {outputs}]"
    if not isinstance(given, Tensor):
        text = f"a {type(given).__name__} for two images, not {expected}. "
        text += "Give the place of the logits, as in model.logits: 0, or wrap it in a module that returns them only"
        if given is None:
            text = f"None for two images, not {expected}: does its `forward` end with `return`?"
        kind = "nothing returned" if given is None else "other logits"
        raise ConfigError(f"network '{name}': returns {text}", kind=kind, network=name)
    if tuple(given.shape) != (2, outputs) or not given.is_floating_point():
        kind = f"{given.dtype} {list(given.shape)}"
        raise ConfigError(
            f"network '{name}': returns {kind} for two images, not {expected}: give its last layer the number of "
            "outputs that it is built with, and keep both axes",
            kind="other logits",
            network=name,
        )
    if not torch.isfinite(given).all():
        raise ConfigError(
            f"network '{name}': returns NaN or infinite logits for random images",
            kind="logits not finite",
            network=name,
        )


def may_draw(module: nn.Module) -> bool:
    """Whether a module could draw random numbers while it trains: true unless all of its parts are known not to."""
    return not all(map(_draws_nothing, module.modules()))


def _draws_nothing(part: nn.Module) -> bool:
    hooks = [*part._forward_pre_hooks.values(), *part._forward_hooks.values(), *part._backward_hooks.values()]
    foreign = any(not getattr(hook, "__module__", "").startswith("chestfed.learning.models.") for hook in hooks)
    name = f"{type(part).__module__}.{type(part).__qualname__}"
    return name in _DRAW_NOTHING and not foreign and "forward" not in vars(part)


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """In this block, whatever is drawn from a global generator is a function of `seed`; after it, they are as before.

    The generators are torch's (on the CPU and on `device`), NumPy's legacy one and Python's.
    """
    cuda = [device] if device is not None and device.type == "cuda" else []
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(seed)
        for index in cuda:
            with torch.cuda.device(index):
                torch.cuda.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])  # noqa: NPY002
