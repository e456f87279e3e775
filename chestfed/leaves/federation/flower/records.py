"""A parcel as Flower's records: one JSON text, and one array of raw bytes per type of number.

Nothing is unpickled, and no file format is parsed. `chestfed.learning.engines.messages.wire` checks what the numbers
mean.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from chestfed.learning.engines.messages.wire import TYPES, Packed, WireError
from chestfed.leaves.federation.parcels import Parcel

#: Format of an array's bytes, stated in each array. Flower's own is NumPy's file format.
RAW = "chestfed.little-endian"

#: Characters that the values of a message may have: keyed names of all test images are among them.
LONGEST = 64_000_000


def to_record(parcel: Parcel) -> RecordDict:
    text = json.dumps({"values": parcel.values, "header": parcel.packed.header.decode()}, allow_nan=False)
    arrays = {
        kind: Array(kind, array.shape, RAW, array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
        for kind, array in parcel.packed.arrays.items()
    }
    return RecordDict({"text": ConfigRecord({"json": text}), "numbers": ArrayRecord(arrays)})


def from_record(record: RecordDict, sender: str) -> Parcel:
    """The parcel in a message.

    Raises
    ------
    WireError
        If it is anything else; the text says in what, naming the sender and quoting nothing.
    """
    if set(record) != {"text", "numbers"}:
        raise WireError(f"{sender} sent other records than a text and numbers", kind="foreign records")
    text, numbers = record["text"], record["numbers"]
    if not isinstance(text, ConfigRecord) or set(text) != {"json"} or not isinstance(text["json"], str):
        raise WireError(f"{sender} sent a text that cannot be read", kind="foreign records")
    if not isinstance(numbers, ArrayRecord):
        raise WireError(f"{sender} sent numbers that are not arrays", kind="foreign records")
    if len(text["json"]) > LONGEST:
        raise WireError(f"{sender} sent a text of more than {LONGEST:,} characters", kind="foreign records")
    try:
        content = json.loads(text["json"], parse_constant=_no_number)
        values, header = content["values"], content["header"].encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise WireError(f"{sender} sent a text that is not of chestfed", kind="foreign records") from None
    if not isinstance(values, dict):
        raise WireError(f"{sender} sent a text that is not of chestfed", kind="foreign records")
    return Parcel(values, Packed(header, _arrays(numbers, sender)))


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _arrays(numbers: Mapping[str, Array], sender: str) -> dict[str, np.ndarray]:
    arrays = {}
    for kind, array in numbers.items():
        if kind not in TYPES or array.dtype != kind or array.stype != RAW or len(array.shape) != 1:
            raise WireError(f"{sender} sent an array that is not one-dimensional numbers", kind="foreign numbers")
        dtype = np.dtype(kind)
        if len(array.data) != array.shape[0] * dtype.itemsize:
            raise WireError(
                f"{sender} announced {array.shape[0]} numbers of {kind} and sent {len(array.data)} bytes",
                kind="foreign numbers",
            )
        arrays[kind] = np.frombuffer(array.data, dtype.newbyteorder("<")).astype(dtype, copy=False)
    return arrays
