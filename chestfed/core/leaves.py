"""Leaves: features that nothing imports, found by their folder or by an entry point.

A leaf is a folder of `chestfed/leaves/`, or a distribution with an entry point in the group `chestfed.leaves` that
names its package. The package's `LEAF` says what it offers; importing the package imports nothing heavy. Without its
folder the suite has everything but what the leaf offered.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module, metadata
from typing import Any, Final

GROUP: Final = "chestfed.leaves"


@dataclass(frozen=True)
class Leaf:
    """Commands and parts of a leaf."""

    #: Words of a command ("site new") -> `module:function`.
    commands: Mapping[str, str] = field(default_factory=dict)
    #: First word of such commands ("federation") -> help of the group, where no other command begins with it.
    groups: Mapping[str, str] = field(default_factory=dict)
    #: Kind of a catalogue ("algorithm") -> packages whose declarations are built in.
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@cache
def list_leaves() -> dict[str, Leaf]:
    """All leaves by name."""
    packages = [f"{GROUP}.{info.name}" for info in pkgutil.iter_modules(import_module(GROUP).__path__)]
    packages += [point.value for point in metadata.entry_points(group=GROUP)]
    return {package.rpartition(".")[2]: import_module(package).LEAF for package in packages}


def list_commands() -> dict[str, str]:
    """The commands of all leaves: their words -> `module:function`."""
    return {words: reference for leaf in list_leaves().values() for words, reference in leaf.commands.items()}


def list_groups() -> dict[str, str]:
    """The groups of commands that leaves add: name -> help."""
    return {name: text for leaf in list_leaves().values() for name, text in leaf.groups.items()}


def list_packages(kind: str) -> list[str]:
    """The packages of leaves whose declarations a catalogue of this kind has."""
    return [package for leaf in list_leaves().values() for package in leaf.parts.get(kind, ())]


def load(reference: str) -> Any:
    """The object that `module:name` refers to."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
