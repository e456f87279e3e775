"""A question or an answer, whatever carries it: JSON values, and numbers.

The numbers are packed by `chestfed.learning.engines.messages.wire`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from chestfed.core.errors import ChestfedError
from chestfed.learning.engines.messages.wire import Packed

#: Begin a refusal: the hospital was started anew, or does not answer yet.
UNKNOWN, LATER = "unknown: ", "later: "


@dataclass(frozen=True)
class Parcel:
    """Message: plain values, and numbers."""

    values: dict[str, Any]
    packed: Packed = field(default_factory=lambda: Packed(b"", {}))

    @property
    def size(self) -> int:
        """Bytes of the values as JSON and of the numbers."""
        return len(json.dumps(self.values)) + self.packed.size


def sanitize(text: object) -> str:
    """Text from the other side for a log or a terminal: no control characters, at most 2000 characters."""
    return "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in str(text)[:2000])


def hash_request(packed: Packed) -> str:
    """SHA-256 of a request: header, and numbers with their types."""
    digest = hashlib.sha256(len(packed.header).to_bytes(8, "big") + packed.header)
    for kind, array in sorted(packed.arrays.items()):
        digest.update(kind.encode() + array.size.to_bytes(8, "big"))
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def shown_in_line(text: object) -> str:
    """Text from the other side within one line: a line break in it begins none."""
    return sanitize(text).replace("\n", " ")


class Refused(ChestfedError):
    """A question that a hospital does not answer; the server gets the reason."""


class Later(Refused):
    """A question that a hospital does not answer yet: it waits for an approval, or for its hours."""


class LineLost(ChestfedError):
    """The server that carries parcels was stopped; what was under way is lost."""


class Undelivered(ChestfedError):
    """A question did not reach its hospital, or the answer was lost on the way; no wrong answer was given."""


class Line(Protocol):
    """Carrier of parcels between the study and its hospitals."""

    def online(self) -> dict[str, str]:
        """The hospitals that can be reached, by name, each with a mark that changes when its node is started again.

        Raises
        ------
        LineLost
            If nothing can be carried, also by the other methods.
        """

    def send(self, name: str, parcel: Parcel, seconds: float) -> str:
        """Send to a hospital; a ticket for the reply, which is of no use after so many seconds."""

    def receive(self, tickets: list[str]) -> dict[str, Parcel | ChestfedError]:
        """The replies that have come, by ticket, each once; an error is a reply that cannot be used."""

    def reconnect(self) -> None:
        """Try to carry again after `LineLost`."""

    def close(self) -> None:
        """Let go."""
