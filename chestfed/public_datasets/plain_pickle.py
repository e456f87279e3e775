"""Read a pickle of arrays and plain containers without running anything that it names.

A pickle may name any function and have it called. Here, only the names that an array of bytes is made of are known,
and they stand for the two small classes below: not even NumPy's own functions are called with the file's values.
"""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from chestfed.core.errors import ConfigError


def load_plain(path: Path) -> dict[str, Any]:
    """The dictionary in a pickle; its values are uint8 arrays, numbers, strings, or lists and the like of these.

    Strings of Python 2 are read as Latin-1.

    Raises `ConfigError` if the pickle is damaged, is not a dictionary, or asks for anything else.
    """
    try:
        with path.open("rb") as file:
            content = _PlainUnpickler(file, path).load()
    except ConfigError:
        raise
    except Exception as error:  # a damaged pickle may fail in any way
        raise ConfigError(f"{path}: damaged or cut off, cannot be unpickled ({type(error).__name__})") from None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ConfigError(f"{path}: expected a pickled dictionary with names as its keys")
    return {key: value.values if isinstance(value, _Bytes) else value for key, value in content.items()}


class _PlainUnpickler(pickle.Unpickler):
    """Knows the names that an array of bytes is made of, in the spellings of NumPy 1 and 2."""

    def __init__(self, file: Any, path: Path) -> None:
        super().__init__(file, encoding="latin1")
        self.path = path

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")):
            return lambda *arguments: _Bytes()
        if (module, name) == ("numpy", "ndarray"):
            return None  # only ever an argument of `_reconstruct`
        if (module, name) == ("numpy", "dtype"):
            return _Kind
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes for Python 2
            return lambda text, encoding: text.encode({"latin1": "latin1"}[encoding])
        raise ConfigError(
            f"{self.path}: refused: this pickle asks for {f'{module}.{name}'[:80]!r}, which the published files do not "
            "contain and which may run any program; download the archive again from its publisher"
        )


class _Kind:
    """Stands for `numpy.dtype`: unsigned bytes, or refused."""

    def __init__(self, code: str, *_: Any) -> None:
        if code not in ("u1", "|u1"):
            raise ValueError("an array of other numbers than unsigned bytes")

    def __setstate__(self, state: Any) -> None:
        """Byte order, fields and the like: a byte has none."""


class _Bytes:
    """Stands for `numpy.ndarray`; `values` is uint8 of the pickled shape."""

    def __init__(self) -> None:
        self.values = np.zeros(0, np.uint8)

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, column_major, data = state
        data = data.encode("latin1") if isinstance(data, str) else data
        if not isinstance(kind, _Kind) or not isinstance(data, bytes) or math.prod(shape) != len(data):
            raise ValueError("an array that does not fit its own shape")
        self.values = np.frombuffer(data, np.uint8).reshape(shape, order="F" if column_major else "C")
