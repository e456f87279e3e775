"""Plug-ins: named parts with options of their own, which anybody may bring; see `catalogue`."""

from __future__ import annotations

from chestfed.core.plugins.catalogue import Catalogue, Choice, Declaration, Options
from chestfed.core.plugins.code import Versioned, identify_code
from chestfed.core.plugins.loading import (
    NotAllowedError,
    allow_references,
    find_fault,
    freeze_plugins,
    modules_in_use,
)
from chestfed.core.plugins.methods import list_arguments, list_mistakes

__all__ = [
    "Catalogue",
    "Choice",
    "Declaration",
    "NotAllowedError",
    "Options",
    "Versioned",
    "allow_references",
    "find_fault",
    "freeze_plugins",
    "identify_code",
    "list_arguments",
    "list_mistakes",
    "modules_in_use",
]
