"""State on disk: written atomically, read back bit by bit.

A checkpoint is one safetensors file: tensors by name, and counters and history as JSON in its header. A file is
written beside its final name, flushed to the disk and renamed, so that a process killed at any moment leaves
the old file or the new one, never a part.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chestfed.core.errors import ChestfedError

if TYPE_CHECKING:
    from torch import Tensor


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place.

    Raises
    ------
    ChestfedError
        If the disk is full or the folder can't be written; the old file is then still there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise ChestfedError(f"{path}: cannot be written: {error.strerror or error}. What was there is kept.") from None
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically, readable by people; NaN is refused."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """What `write_json` wrote; empty if there is no such file.

    Raises
    ------
    ChestfedError
        If it is damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        raise ChestfedError(f"{path}: not valid JSON. Delete this file; it will be made again.") from None


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
    """Write tensors and JSON values to one file, atomically."""
    from safetensors.torch import save_file

    stored = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_atomically(path, lambda temporary: save_file(stored, temporary, {"chestfed": json.dumps(dict(values))}))


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors (on the CPU) and values of `save_checkpoint`.

    Raises
    ------
    ChestfedError
        If the file is damaged, with what to do.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            values = json.loads(file.metadata()["chestfed"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise ChestfedError(f"{path}: damaged checkpoint ({error}). Delete it to start this part again.") from None
    return tensors, values


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # folders cannot be opened there
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
