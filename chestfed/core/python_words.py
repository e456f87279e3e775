"""Errors in the words of Python: what a command calls `--output-names` is an argument there."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from chestfed.core.errors import ChestfedError

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_OPTION: Final = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]*)(?:[ =](?=[a-z]\w*,\w|'))?")
#: Options whose arguments have other names.
_OTHER_NAMES: Final = {
    "output-names": "diseases",
    "input-size": "size",
    "set": "overrides",
    "add-site": "add_sites",
    "label-file": "labels_file",
}


def speak_python(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """The function, whose errors name its arguments where they name options of the command with the same meaning."""
    accepted = set(inspect.signature(function).parameters)

    def rename(option: re.Match[str]) -> str:
        name = _OTHER_NAMES.get(option[1], option[1].replace("-", "_"))
        return f"{name}=" if name in accepted else option[0]

    @functools.wraps(function)
    def call(*args: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        try:
            return function(*args, **options)
        except ChestfedError as error:
            error.args = tuple(_OPTION.sub(rename, text) if isinstance(text, str) else text for text in error.args)
            raise

    return call
