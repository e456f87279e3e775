"""Networks that any class or function builds: torchvision's, timm's, MONAI's, or one's own.

model: {name: "torchvision.models:resnet18", options: {weights: null}}
model: {name: "timm:create_model", options: {model_name: vit_tiny_patch16_224}}
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from typing import Any, ClassVar

from pydantic import Field, JsonValue, ValidationInfo, field_validator
from torch import nn

from chestfed.core.errors import UnknownNameError, nearest
from chestfed.learning.models.declaration import ModelOptions, ModelSpec

#: Usual names of the argument for the number of outputs; the first that a factory has is used.
_OUTPUTS = ("num_classes", "out_channels", "n_classes", "outputs")
#: What a class or function must have to be a factory.
TAKES_OUTPUTS = (
    "with an argument for the number of outputs (docs/own_method.md):\n"
    "    class Two(torch.nn.Module):\n"
    "        def __init__(self, num_classes): ..."
)
#: Packages whose factories pass `num_classes` on in `**kwargs`.
_PASS_ON = ("torchvision", "timm", "monai")


class FactoryOptions(ModelOptions):
    """Options of a network that is not declared: the arguments of what builds it."""

    declared_as: ClassVar[str]  #: the name that `factory` was found by
    factory: ClassVar[Callable[..., nn.Module]]

    outputs_as: str | None = Field(
        None,
        validate_default=True,
        description="argument that takes the number of outputs; null: the first of num_classes, out_channels, "
        "n_classes and outputs that the factory has",
    )
    options: dict[str, JsonValue] = Field({}, validate_default=True, description="the factory's other arguments")
    classifier: str | None = Field(
        None,
        description="name of the last layer; null: the last linear layer or 1x1 convolution with one output for each "
        "disease",
    )
    logits: int | None = Field(
        None,
        ge=0,
        description="place of the logits, if the network returns several values, as MONAI's ViT does: 0",
    )

    def __reduce__(self) -> tuple[Any, ...]:
        """By the factory: the class of these options is made from it, and stands in no module."""
        return _restore, (self.declared_as, type(self).factory, self.__getstate__())


def _restore(name: str, factory: Callable[..., nn.Module], state: dict[Any, Any]) -> ModelOptions:
    """Options of a factory in another process."""
    spec = _declared(name, factory)
    assert spec is not None
    options = spec.options.__new__(spec.options)
    options.__setstate__(state)
    return options


def declare_factory(name: str, factory: object) -> ModelSpec | None:
    """A declaration of a class or function that builds a network; None for anything else."""
    return _declared(name, factory) if callable(factory) and isinstance(factory, Hashable) else None


@lru_cache(maxsize=64)
def _declared(name: str, factory: Callable[..., nn.Module]) -> ModelSpec | None:
    is_built = isinstance(factory, nn.Module)
    if is_built or (inspect.isclass(factory) and not issubclass(factory, nn.Module)):
        return None
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):
        return None
    options = _make_options_model(name, signature)
    options.declared_as, options.factory = name, factory
    return ModelSpec(name, name, options, partial(_build, factory))


def get_factory(spec: ModelSpec) -> Callable[..., object] | None:
    """The class or function that a declaration was made from; None if it was declared."""
    return spec.build.args[0] if isinstance(spec.build, partial) and spec.build.func is _build else None


def _build(factory: Callable[..., nn.Module], options: FactoryOptions, outputs: int) -> nn.Module:
    network = factory(**options.options, **{str(options.outputs_as): outputs})
    if options.logits is not None and isinstance(network, nn.Module):
        network.register_forward_hook(_Selection(options.logits))
    return network


class _Selection:
    """A forward hook: one of the values that a network returns; others and tensors stay, and are refused later."""

    def __init__(self, place: int) -> None:
        self._place = place

    def __call__(self, module: nn.Module, inputs: object, returned: object) -> object:
        several = isinstance(returned, tuple | list) and len(returned) > self._place
        return returned[self._place] if several else returned  # type: ignore[index]


def _make_options_model(name: str, signature: inspect.Signature) -> type[FactoryOptions]:
    """The options of a factory, checked against its signature."""
    accepted = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    takes_more = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())

    class Checked(FactoryOptions):
        @field_validator("outputs_as")
        @classmethod
        def _is_an_argument(cls, value: str | None) -> str:
            usual = [parameter for parameter in _OUTPUTS if parameter in accepted]
            if value is None and not usual and takes_more and name.partition(":")[0].partition(".")[0] in _PASS_ON:
                usual = ["num_classes"]
            chosen = value or (usual[0] if usual else None)
            if chosen is None or not (chosen in accepted or takes_more):
                which = f"Name one, as in outputs_as: {accepted[0]}, or write" if accepted else "Write"
                raise ValueError(
                    f"which argument of {name} takes the number of outputs? It has {', '.join(accepted) or 'none'}. "
                    f"{which} the class {TAKES_OUTPUTS}"
                )
            return chosen

        @field_validator("options")
        @classmethod
        def _fit_the_signature(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
            outputs = info.data.get("outputs_as")
            if outputs in value:
                raise ValueError(f"'{outputs}' is the number of diseases and is not an option")
            unknown = [key for key in value if key not in accepted]
            if unknown and not takes_more:
                close = nearest(unknown[0], accepted)
                hint = f"did you mean '{close}'?" if close else f"it has {', '.join(accepted)}"
                raise UnknownNameError(f"{name} has no argument '{unknown[0]}'; {hint}", close)
            try:
                signature.bind(**value, **({outputs: 0} if outputs else {}))
            except TypeError as error:
                raise ValueError(f"{name}: {error}") from None
            return value

    return Checked
