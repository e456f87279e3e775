"""Plug-ins: named parts with options of their own, which anybody may bring; see `catalogue`."""

from __future__ import annotations

from chestfed.core.plugins.catalogue import Catalogue, Choice, Declaration, Options
from chestfed.core.plugins.code import Versioned, identify_code
from chestfed.core.plugins.loading import NotAllowedError, modules_in_use, only, pinned

__all__ = [
    "Catalogue",
    "Choice",
    "Declaration",
    "NotAllowedError",
    "Options",
    "Versioned",
    "identify_code",
    "modules_in_use",
    "only",
    "pinned",
]
