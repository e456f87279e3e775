"""Methods of a plug-in's class, compared with those that are called: a misspelled one would never be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import Parameter, isfunction, signature
from typing import Any

from chestfed.core.errors import nearest

_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def list_arguments(*protocols: type) -> dict[str, list[str]]:
    """The public methods of protocols by name, each with the arguments that it is called with, `self` first."""
    return {
        name: [key for key, about in signature(method).parameters.items() if about.kind in _BY_PLACE]
        for protocol in protocols
        for name, method in _methods(protocol).items()
    }


def list_mistakes(part: object, arguments: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Methods of a part that take other arguments than they are called with, or have nearly the name of one that is."""
    kinds = [kind for kind in reversed(type(part).__mro__) if not kind.__module__.startswith("chestfed.learning.")]
    own = {name: method for kind in kinds for name, method in _methods(kind).items()}
    kind = type(part).__name__
    for name, method in own.items():
        if name in arguments:
            try:
                signature(method).bind(*arguments[name])
            except TypeError:
                passed = ", ".join(arguments[name])
                yield f"{kind}.{name}{signature(method)} is called as {name}({passed}): change its arguments"
        elif meant := nearest(name, arguments.keys() - own.keys(), 0.85):
            yield f"{kind}.{name} is never called: rename it to {meant}, or begin its name with an underscore"


def _methods(kind: type) -> dict[str, Callable[..., Any]]:
    return {name: value for name, value in vars(kind).items() if isfunction(value) and not name.startswith("_")}
