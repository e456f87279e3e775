"""Weights from files: read without running anything in them, and put into a network tensor by tensor."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from chestfed.core.errors import ConfigError

#: Renames tensors, see `ModelSpec.renamed`.
Renamed = Callable[[str], str]


def read_weights(path: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors or torch file, also of a Lightning checkpoint, without running any code in it.

    Raises
    ------
    ConfigError
        If it holds anything but tensors and plain values.
    """
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        _refuse_bomb(path)
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{path} cannot be read: {_unreadable(path, error)}") from None
    for key in ("state_dict", "model_state_dict", "model"):  # common wrappers
        if isinstance(stored, dict) and isinstance(stored.get(key), dict):
            stored = stored[key]
    named = isinstance(stored, dict) and all(isinstance(name, str) for name in stored)
    if not named or not stored or not all(isinstance(part, Tensor) for part in stored.values()):
        raise ConfigError(f"{path}: not a state dict: names and tensors are needed")
    return stored


def _refuse_bomb(path: Path) -> None:
    """Refuse an archive that would unpack to more than it is: torch stores its tensors uncompressed."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        entries, size = archive.infolist(), path.stat().st_size
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries) or sum(e.file_size for e in entries) > size:
        raise ConfigError(
            f"{path}: refused: it is compressed, which torch.save does not do, so its size says nothing of what it "
            "unpacks to. Save the state dict again with torch.save, or as safetensors",
            kind="compressed weights",
            file=path.name,
        )


def _unreadable(path: Path, error: Exception) -> str:
    """Why a file of weights cannot be read."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    with path.open("rb") as file:
        head = file.read(2)
    if "weights_only" in str(error) and (head == b"PK" or head[:1] == b"\x80"):  # an archive, or a bare pickle
        return (
            "refused: it is a pickle of more than tensors, which could run code when it is read. Save the state dict "
            "alone: torch.save(model.state_dict(), path), or safetensors"
        )
    what = "damaged, or not a torch or safetensors file" if head else "empty"
    return f"{what} ({type(error).__name__})"


def load_trained(model: nn.Module, tensors: Mapping[str, Tensor], source: str, renamed: Renamed) -> tuple[str, ...]:
    """Load all weights of a network, the classifier's too.

    Returns
    -------
    tuple of str
        Tensors that are not the network's: in a checkpoint whose network is the part `model.`, those outside that part.

    Raises
    ------
    ConfigError
        If a tensor is missing, unexpected or of another shape; `source` names the file.
    """
    parameters = model.state_dict()
    prefix, inside = _inside(tensors, parameters, renamed, source)
    unlike = [name for name in parameters if name in inside and inside[name].shape != parameters[name].shape]
    missing = [name for name in parameters if name not in inside and not _is_counter(name)]
    unexpected = [name for name in inside if name not in parameters]
    if unlike:
        name = unlike[0]
        raise ConfigError(
            f"{source}: '{name}' has the shape {list(inside[name].shape)}, the network described needs "
            f"{list(parameters[name].shape)}: another architecture, or another number of diseases?",
            kind="other diseases",
        )
    if missing or unexpected:
        what = f"lacks '{missing[0]}'" if missing else f"unexpected tensor '{unexpected[0]}'"
        raise ConfigError(
            f"{source}: {what} ({len(missing)} tensors missing, {len(unexpected)} unexpected): another architecture?"
        )
    model.load_state_dict({**parameters, **inside})
    return tuple(name for name in tensors if not name.startswith(prefix))


def load_initial(model: nn.Module, path: Path, renamed: Renamed, classifier: Collection[str]) -> None:
    """Load weights to start from; the tensors called `classifier` are left as they are where theirs do not fit.

    Raises
    ------
    ConfigError
        If the file cannot be read or lacks a tensor.
    """
    try:
        stored = read_weights(path)
    except ConfigError as error:
        raise ConfigError(f"model.initial_weights: {error}", kind="unreadable weights") from None
    tensors = model.state_dict()
    _, inside = _inside(stored, tensors, renamed, f"model.initial_weights: {path}")
    fitting = {
        name: tensor for name, tensor in inside.items() if name in tensors and tensor.shape == tensors[name].shape
    }
    missing = [name for name in tensors if name not in fitting and name not in classifier and not _is_counter(name)]
    if missing:
        raise ConfigError(
            f"model.initial_weights: {path} lacks {len(missing)} of {len(tensors)} tensors of this architecture, "
            f"for example '{missing[0]}' of shape {list(tensors[missing[0]].shape)}: is it a file for another network?",
            kind="weights of another network",
            missing=len(missing),
        )
    model.load_state_dict({**tensors, **fitting})


def _inside(
    stored: Mapping[str, Tensor], parameters: Collection[str], renamed: Renamed, source: str
) -> tuple[str, dict[str, Tensor]]:
    """The network's part of stored tensors, by its own names, and what stands before these in the file.

    That is nothing, `module.` of DataParallel, or an attribute of a wrapper.
    """
    prefixes: Counter[str] = Counter()
    for name in stored:
        parts = name.split(".")
        for start in range(len(parts)):
            if renamed(".".join(parts[start:])) in parameters:
                prefixes["".join(f"{part}." for part in parts[:start])] += 1
    best = prefixes.most_common(2)
    if len(best) == 2 and best[0][1] == best[1][1]:
        raise ConfigError(
            f"{source}: holds two networks that fit, '{best[0][0]}*' and '{best[1][0]}*'; save the state dict of one",
            kind="two networks fit",
        )
    prefix = best[0][0] if best else ""
    named = {renamed(name.removeprefix(prefix)): part for name, part in stored.items() if name.startswith(prefix)}
    return prefix, named


def _is_counter(name: str) -> bool:
    """Batches counted by batch normalization, which nothing reads."""
    return name.endswith("num_batches_tracked")
