"""Does a network work with a study? Tried before any data are read."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from chestfed.core.errors import ConfigError
from chestfed.models.building import build_model, classifier_of, one_line
from chestfed.models.declaration import ModelOptions, ModelSpec
from chestfed.models.flat import FlatModule
from chestfed.models.seeded import seeded


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
        if torch.nn.parameter.is_lazy(part):
            raise ConfigError(f"network '{name}': '{key}' is a lazy parameter; give every layer its size")
        if part.dtype != torch.float32:
            raise ConfigError(f"network '{name}': '{key}' is {part.dtype}; parameters must be float32")
    classifier_of(model, options, outputs, spec)
    with seeded(0), torch.no_grad():
        images = torch.randn(2, 3, size, size)
        for training in (True, False):
            check_logits(name, _called(name, model.train(training), images), outputs)
    return FlatModule(model)


def check_logits(name: str, given: object, outputs: int) -> None:
    """Refuse anything but finite float logits `[2, outputs]`.

    Raises
    ------
    ConfigError
        With what was given.
    """
    wanted = f"one tensor of logits [2, {outputs}]"
    if not isinstance(given, Tensor):
        raise ConfigError(
            f"network '{name}': returns a {type(given).__name__} for two images, not {wanted}. "
            "Wrap it in a module that returns the logits only"
        )
    if tuple(given.shape) != (2, outputs) or not given.is_floating_point():
        kind = f"{given.dtype} {list(given.shape)}"
        raise ConfigError(f"network '{name}': returns {kind} for two images, not {wanted}")
    if not torch.isfinite(given).all():
        raise ConfigError(f"network '{name}': returns NaN or infinite logits for random images")


def _called(name: str, model: nn.Module, images: Tensor) -> object:
    try:
        return model(images)
    except Exception as error:
        raise ConfigError(
            f"network '{name}': fails on images of the shape {list(images.shape)}: {one_line(error)}"
        ) from error
