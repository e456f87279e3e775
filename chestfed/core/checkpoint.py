"""State on disk: written atomically, read back bit by bit.

A checkpoint is one safetensors file: tensors by name, and counters, history and a digest of all of it as JSON in its
header. A file is written beside its final name, flushed to the disk and renamed, so that a process killed at any moment
leaves the old file or the new one, never a part, and at most an orphan of the name `.*.part`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chestfed.core.errors import ChestfedError, DamagedError, NotWrittenError
from chestfed.core.processes import stopping

if TYPE_CHECKING:
    import torch
    from torch import Tensor

#: Key of a checkpoint's values: digest of its tensors and other values.
CHECKSUM: Final = "checksum"
#: Seconds between two saves of a state, more if writing it would take more than this share of the time: that of all
#: clients of a large network is gigabytes.
SECONDS_BETWEEN_SAVES, SHARE_OF_SAVING = 60.0, 0.01
#: Raised when states of unfinished training get other names, or their vectors another order: those of another version
#: are trained again.
STATE_VERSION: Final = 3


class SaveTimes:
    """When to save a state that can be made again by training."""

    def __init__(self) -> None:
        self._last, self._wait = time.monotonic(), SECONDS_BETWEEN_SAVES

    @property
    def due(self) -> bool:
        """Whether the last save was long enough ago, or a signal has asked to end."""
        return stopping.is_stop_requested() or time.monotonic() - self._last >= self._wait

    def save(self, write: Callable[[], object]) -> None:
        """Let `write` save the state; if a signal has asked to end, that is done now."""
        begun = time.monotonic()
        write()
        self._last = time.monotonic()
        long = (self._last - begun) / SHARE_OF_SAVING
        self._wait = max(SECONDS_BETWEEN_SAVES, long) if SECONDS_BETWEEN_SAVES else 0.0
        stopping.safe_point()  # here alone: what comes between two saves waits for the next


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place.

    A new file has the mode that the umask gives it, one that was there keeps its own.

    Raises
    ------
    ChestfedError
        If the disk is full or the folder can't be written; the old file is then still there.
    """
    mode = None  # of the file that is there
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(path.stat().st_mode) if path.is_file() else None
        temporary = _create_beside(path, 0o666 if mode is None else 0o600)
        try:
            write(temporary)
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            if mode is not None:
                temporary.chmod(mode)
            temporary.replace(path)
            _sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        earlier = "" if mode is None else " The earlier file is kept."
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = " Free space there and run the same command again." if full else ""
        raise NotWrittenError(
            f"{path}: cannot be written: {error.strerror or error}.{earlier}{advice}", error
        ) from None


def _create_beside(path: Path, mode: int) -> Path:
    """An empty file of a new name in the same folder; the system takes the umask off its mode."""
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        with contextlib.suppress(FileExistsError):
            os.close(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode))
            return temporary


def remove_orphans(folder: Path) -> None:
    """Remove unfinished files of killed processes, here and below; the caller must hold the folder's lock."""
    for part in folder.rglob(".*.part"):
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, value: object) -> None:
    """Write JSON atomically, readable by people; NaN is refused."""
    write_text(path, json_text(value))


def json_text(value: object) -> str:
    """Text that `write_json` writes."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def read_json(path: Path) -> dict[str, Any]:
    """Read what `write_json` wrote, or an empty dict if the file does not exist.

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


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], values: Mapping[str, object]) -> None:
    """Write tensors and JSON values to one file, atomically."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    stored = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    header = {"chestfed": json.dumps({**values, CHECKSUM: _checksum(stored, values)})}

    def write(temporary: Path) -> None:
        try:
            save_file(stored, temporary, header)
        except SafetensorError as error:  # a full disk, say: it is not an OSError
            number = re.search(r"os error (\d+)", str(error))
            raise OSError(int(number[1]) if number else None, str(error)) from None

    write_atomically(path, write)


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors (on the CPU) and values of `save_checkpoint`, checked.

    Raises
    ------
    DamagedError
        If its content is not what was written, with what to do.
    ChestfedError
        If the file cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    with report_damage(path):
        try:
            with path.open("rb"), safe_open(path, framework="pt") as file:
                # Copied to where torch begins a tensor: the last bits of a matrix product depend on it.
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
                values = json.loads(file.metadata()["chestfed"])
        except SafetensorError as error:
            raise ValueError(str(error)) from None
        except OSError as error:
            raise ChestfedError(f"{path}: cannot be read: {error.strerror or error}") from None
        if _checksum(tensors, values) != values[CHECKSUM]:
            raise ValueError("its content has changed since it was written")
    return tensors, values


def save_state(path: Path, tensors: Mapping[str, Tensor], values: Mapping[str, object]) -> None:
    """As `save_checkpoint`; a tensor that several names share, as clients do their reference point, is stored once."""
    first = {_place(tensor): name for name, tensor in reversed([*tensors.items()])}
    same = {name: first[_place(tensor)] for name, tensor in tensors.items() if first[_place(tensor)] != name}
    save_checkpoint(
        path,
        {name: tensor for name, tensor in tensors.items() if name not in same},
        {**values, "same": same, "version": STATE_VERSION},
    )


def load_state(path: Path, device: torch.device) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The inverse of `save_state`, with the tensors on a device; raises as `load_checkpoint`."""
    stored, values = load_checkpoint(path)
    if values.get("version") != STATE_VERSION:
        raise DamagedError(
            f"{path}: the unfinished training of another release of chestfed. Delete it to start this part again.",
            kind="state of another release",
            file=path.name,
        )
    tensors = {name: tensor.to(device) for name, tensor in stored.items()}
    with report_damage(path):
        return tensors | {name: tensors[first] for name, first in values["same"].items()}, values


def _place(tensor: Tensor) -> tuple[object, ...]:
    """Where a tensor lies in memory."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


@contextlib.contextmanager
def report_damage(path: Path) -> Iterator[None]:
    """Report a checkpoint with unexpected content as damaged."""
    try:
        yield
    except (KeyError, IndexError, AttributeError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DamagedError(
            f"{path}: damaged checkpoint ({reason}). Delete it to start this part again.",
            kind="damaged checkpoint",
            file=path.name,
        ) from None


def _checksum(tensors: Mapping[str, Tensor], values: Mapping[str, object]) -> str:
    """Over names, types, shapes and bytes of the tensors, and over the other values."""
    import torch

    digest = hashlib.blake2b(digest_size=16)
    plain = {name: value for name, value in values.items() if name != CHECKSUM}
    digest.update(json.dumps(plain, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        if tensor.numel():  # one without numbers may have any stride
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # folders cannot be opened there
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
