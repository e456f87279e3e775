"""Plug-ins: named parts with options of their own, which anybody may bring; see `catalogue`."""

from __future__ import annotations

from chestfed.core.plugins.catalogue import Catalogue, Choice, Declaration, Options
from chestfed.core.plugins.code import Versioned, identify_code
from chestfed.core.plugins.loading import NotAllowedError, allow_references, freeze_plugins, modules_in_use

__all__ = [
    "Catalogue",
    "Choice",
    "Declaration",
    "NotAllowedError",
    "Options",
    "Versioned",
    "allow_references",
    "freeze_plugins",
    "identify_code",
    "modules_in_use",
]
