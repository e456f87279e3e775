"""Requests and replies as bytes: one contiguous array per type of number, in a fixed order, and a small header.

What arrives is taken for nothing until it is checked: names, order, shapes and types must be those expected, the sizes
those of the shapes, and every floating number finite. There are no pickles and no objects: an array is a run of numbers
of one of four types, and the header is JSON of numbers, texts and lists.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from chestfed.core.errors import ChestfedError
from chestfed.learning.algorithms.variables import Record, from_named_tensors, is_finite, named_tensors

#: The types of number that travel, by name. Bits are kept, those of NaN and of -0 too.
TYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "int64": torch.int64,
    "int32": torch.int32,
    "int8": torch.int8,
}
_NAMES = {dtype: name for name, dtype in TYPES.items()}

#: A header names what is in the arrays; a larger one is refused.
LARGEST_HEADER = 1 << 20
#: Whole numbers that travel are turns and counts; means of losses are of float32. Sums of them stay finite.
LARGEST_COUNT, LARGEST_FLOAT = 1 << 48, torch.finfo(torch.float32).max

Like = TypeVar("Like", bound=Record)

#: Name, type of number and shape of each tensor, as JSON has them.
Described = list[list[object]]

#: Type and number of numbers of a tensor.
Piece = tuple[str, int]


class WireError(ChestfedError):
    """Data that are not what was expected; the message names the sender."""


@dataclass(frozen=True)
class Packed:
    """A record ready to be sent: the header, and per type of number one array `[n]`, in the order of `TYPES`."""

    header: bytes
    arrays: Mapping[str, np.ndarray]

    @property
    def size(self) -> int:
        """Bytes of header and arrays."""
        return len(self.header) + sum(array.nbytes for array in self.arrays.values())


def pack(record: Record) -> Packed:
    """Pack a dataclass of tensors, states, messages and plain numbers."""
    header, tensors = flatten(record)
    return Packed(header, {kind: run.cpu().numpy() for kind, run in join_by_type(tensors).items()})


def unpack(packed: Packed, like: Like, sender: str, device: torch.device | str = "cpu") -> Like:
    """The record that was packed, checked against `like`: any record of its type and shapes.

    A tensor comes to lie where that of `like` does; on `device`, if that has no content (meta). Plain numbers must have
    the types of those in `like`.

    Raises
    ------
    WireError
        If anything is not as in `like`, or a number is NaN or infinite.
    """
    lengths, what = count_by_type(check_header(packed.header, like, sender)), f"{sender}: {type(like).__name__}"
    if set(packed.arrays) != set(lengths):
        raise WireError(
            f"{what} has arrays of {_format_value(sorted(packed.arrays))}; expected {_format_value(sorted(lengths))}",
            kind="other arrays",
            sender=sender,
        )
    for kind, length in lengths.items():
        array = packed.arrays[kind]
        if array.dtype != np.dtype(kind) or array.shape != (length,):
            raise WireError(
                f"{what} has {array.shape} numbers of {array.dtype}; expected {length} of {kind}",
                kind="other numbers",
                sender=sender,
            )
    # Copied to where torch begins a tensor, as in one process: the last bits of a matrix product depend on it.
    runs = {kind: torch.tensor(packed.arrays[kind], device=device) for kind in lengths}
    return rebuild(packed.header, runs, like, sender)


def flatten(record: Record) -> tuple[bytes, list[Tensor]]:
    """The header of a record, and its tensors in order."""
    tensors, plain = _parts(record)
    for name, tensor in tensors.items():
        if tensor.dtype not in _NAMES:
            raise TypeError(f"{type(record).__name__}.{name} is {tensor.dtype}; what is sent is {', '.join(TYPES)}")
    header = {"record": type(record).__name__, "plain": plain, "tensors": _described(tensors)}
    return json.dumps(header).encode(), list(tensors.values())


def join_by_type(tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    """The tensors behind one another, one run `[n]` per type of number, in the order of `TYPES`."""
    groups = {kind: [tensor for tensor in tensors if tensor.dtype == dtype] for kind, dtype in TYPES.items()}
    return {kind: torch.cat([part.detach().reshape(-1) for part in group]) for kind, group in groups.items() if group}


def check_header(data: bytes, like: Record, sender: str) -> list[Piece]:
    """The tensors that belong to a header, if it is that of a record like this one; raises as `unpack`."""
    what, header = type(like).__name__, _header(data, sender)
    if header["record"] != what:
        raise WireError(
            f"{sender} sent {_format_value(header['record'])}; expected {what}", kind="another record", sender=sender
        )
    tensors, plain = _parts(like)
    expected = _described(tensors)
    if header["tensors"] != expected:
        raise WireError(
            f"{sender}: {what} {_difference(header['tensors'], expected)}", kind="other tensors", sender=sender
        )
    _check_plain(header["plain"], plain, what, sender)
    return count_pieces(tensors.values())


def count_pieces(tensors: Iterable[Tensor]) -> list[Piece]:
    """Type and number of numbers of each tensor."""
    return [(_NAMES[tensor.dtype], tensor.numel()) for tensor in tensors]


def count_by_type(pieces: Sequence[Piece]) -> dict[str, int]:
    """Count of the numbers of each type, in the order of `TYPES`."""
    kinds = {kind for kind, _ in pieces}
    return {kind: sum(length for piece, length in pieces if piece == kind) for kind in TYPES if kind in kinds}


def rebuild(header: bytes, runs: Mapping[str, Tensor], like: Like, sender: str) -> Like:
    """The record of a checked header, from runs of the right lengths; its tensors are views of them."""
    for kind, run in runs.items():
        if not is_finite(run):
            raise WireError(
                f"{sender}: {type(like).__name__} has NaN or infinity among its {kind} numbers",
                kind="not finite",
                sender=sender,
            )
    plain: dict[str, object] = json.loads(header)["plain"]
    tensors, places = dict[str, Tensor](), dict.fromkeys(runs, 0)
    for name, part in _parts(like)[0].items():
        kind = _NAMES[part.dtype]
        tensors[name] = runs[kind][places[kind] : places[kind] + part.numel()].view(part.shape)
        places[kind] += part.numel()
    values: dict[str, object] = {}
    for field in fields(like):
        value = plain.get(field.name)
        values[field.name] = tuple(value) if isinstance(value, list) else value
        if field.name not in plain:
            values[field.name] = from_named_tensors(getattr(like, field.name), tensors, field.name)
    return type(like)(**values)


def peek(data: bytes, sender: str) -> tuple[str, dict[str, object]]:
    """The name of a record and its plain fields, as a header says: not checked yet."""
    header = _header(data, sender)
    name, plain = header["record"], header["plain"]
    if not isinstance(name, str) or not isinstance(plain, dict):
        raise WireError(f"{sender} sent something that is not a message of chestfed")
    return name, plain


def count_bytes(like: Record) -> int:
    """Bytes of the arrays of a record like this one: of the payload without header."""
    return sum(tensor.numel() * tensor.element_size() for tensor in _parts(like)[0].values())


def _parts(record: Record) -> tuple[dict[str, Tensor], dict[str, object]]:
    """The tensors of a record by dotted name, and its plain fields."""
    tensors: dict[str, Tensor] = {}
    plain: dict[str, object] = {}
    for field in fields(record):
        value: object = getattr(record, field.name)
        if isinstance(value, tuple) and all(isinstance(part, int) for part in value):
            plain[field.name] = list(value)
        elif value is None or isinstance(value, bool | int | float | str):
            plain[field.name] = value
        else:
            tensors |= named_tensors(value, field.name)
    return tensors, plain


def _described(tensors: Mapping[str, Tensor]) -> Described:
    return [[name, _NAMES[tensor.dtype], list(tensor.shape)] for name, tensor in tensors.items()]


def _header(data: bytes, sender: str) -> dict[str, object]:
    if len(data) > LARGEST_HEADER:
        raise WireError(
            f"{sender} sent a header of {len(data):,} bytes; at most {LARGEST_HEADER:,} are read",
            kind="header too long",
            sender=sender,
        )
    try:
        header: object = json.loads(data)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or set(header) != {"record", "plain", "tensors"}:
        raise WireError(
            f"{sender} sent something that is not a message of chestfed", kind="not a message", sender=sender
        )
    return header


def _difference(tensors: object, expected: Described) -> str:
    """The first thing about the tensors that is not as expected."""
    if not isinstance(tensors, list) or len(tensors) != len(expected):
        number = len(tensors) if isinstance(tensors, list) else 0
        return f"has {number} tensors; expected {len(expected)}"
    return next(
        f"has {_format_value(got)}; expected {_format_value(due)}"
        for got, due in zip(tensors, expected, strict=True)
        if got != due
    )


def _check_plain(plain: object, like: Mapping[str, object], record: str, sender: str) -> None:
    what = f"{sender}: {record}"
    if not isinstance(plain, dict) or list(plain) != list(like):
        raise WireError(f"{what} has other fields than {', '.join(like) or 'none'}", kind="other fields", sender=sender)
    for name, example in like.items():
        if not _is_plain(plain[name], example):
            raise WireError(
                f"{what}: {name} is {_format_value(plain[name])}; expected a {type(example).__name__} within its range",
                kind="impossible value",
                sender=sender,
            )


def _is_plain(value: object, example: object) -> bool:
    """Whether a value has the type of the example, and is within its range."""
    if type(value) is not type(example):
        return False
    if isinstance(value, list) and isinstance(example, list):
        return len(value) == len(example) and all(type(part) is int for part in value)
    if isinstance(value, float):
        return abs(value) <= LARGEST_FLOAT
    return not isinstance(value, int) or 0 <= value <= LARGEST_COUNT


def _format_value(value: object) -> str:
    """Text of what somebody sent, cut short: it goes into a log."""
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
