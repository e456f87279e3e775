"""Building a network from its options, and its last layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.plugins import Catalogue
from chestfed.core.randomness import stream_seed
from chestfed.models.declaration import ModelOptions, ModelSpec
from chestfed.models.factory import FactoryOptions, declared
from chestfed.models.seeded import seeded
from chestfed.models.weights import load_initial

#: Every network: built in, installed, by reference, and whatever a factory builds.
MODELS: Catalogue[ModelSpec] = Catalogue("network", "chestfed.models", ModelSpec, adapt=declared)


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


def title_of(options: ModelOptions) -> str:
    """What tables call a network."""
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
            raise ConfigError(f"network '{options.name}' cannot be built: {one_line(error)}") from error
    if not isinstance(model, nn.Module):
        raise ConfigError(f"network '{options.name}': built a {type(model).__name__}, not a torch.nn.Module")
    if options.initial_weights is not None:
        place, layer = classifier_of(model, options, outputs, spec)
        names = {f"{place}.{name}" for name in layer.state_dict()}
        load_initial(model, Path(options.initial_weights), spec.renamed, names)
    return model


def classifier_of(
    model: nn.Module, options: ModelOptions, outputs: int, spec: ModelSpec | None = None
) -> tuple[str, nn.Module]:
    """The last layer and its name.

    Raises
    ------
    ConfigError
        If the network has none that can be told.
    """
    named = getattr(options, "classifier", None) or (spec or MODELS.find(options.name)).classifier
    if named is not None:
        layer = dict(model.named_modules()).get(named)
        if layer is None or not hasattr(layer, "reset_parameters"):
            raise ConfigError(f"network '{options.name}': classifier '{named}' is not a layer with reset_parameters()")
        return named, layer
    found = [(name, layer) for name, layer in model.named_modules() if _outputs(layer) == outputs]
    if not found:
        raise ConfigError(
            f"network '{options.name}': no linear layer or 1x1 convolution has {outputs} outputs, so the last layer "
            "cannot be told; name it: model.classifier, or ModelSpec(classifier=...)"
        )
    return found[-1]


def reset_classifier(model: nn.Module, options: ModelOptions, outputs: int, seed: int) -> None:
    """Discard the classifier: draw the last layer anew (second stage of the source paper, section 6.2).

    Raises
    ------
    ConfigError
        As `classifier_of`.
    """
    layer: Any = classifier_of(model, options, outputs)[1]
    with seeded(stream_seed(seed, "classifier")):
        layer.reset_parameters()


def _outputs(layer: nn.Module) -> int | None:
    if isinstance(layer, nn.Linear):
        return layer.out_features
    if isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1):
        return layer.out_channels
    return None


def one_line(error: Exception) -> str:
    """Kind and first line of an error of foreign code."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__
