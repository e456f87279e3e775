"""Evaluation protocols by name: which rows of a site table are scored.

`frontal-image` scores the frontal images one by one; on CheXpert's validation set that is 202 images of 200
patients, the source paper's most likely choice. `all-image` scores every image.
"""

from __future__ import annotations

from typing import Final, Literal

#: The views that count as frontal.
FRONTAL: Final = ("pa", "ap", "frontal")

Protocol = Literal["frontal-image", "all-image"]


def views_of(protocol: Protocol) -> tuple[str, ...] | None:
    """Views that a protocol keeps; None keeps all."""
    return FRONTAL if protocol == "frontal-image" else None
