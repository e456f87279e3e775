"""YAML configuration: strict, with the line of every mistake.

A file is read with its line numbers, may extend one other file (`extends: other.yaml`, keys of the extending
file win, mappings are merged), takes overrides (`a.b=value`), and is checked by a pydantic model that refuses
unknown keys and wrong types.
"""

from __future__ import annotations

from chestfed.core.config.document import (
    AddedLater,
    Document,
    NamesFile,
    OptionAssignment,
    StrictModel,
    check_document,
    drop_added,
    keep_last,
    load_config,
    names_file,
    parse_assigned,
)
from chestfed.core.config.mistakes import is_text_key
from chestfed.core.config.values import as_path, expand_path, listed, relative_path

__all__ = [
    "AddedLater",
    "Document",
    "NamesFile",
    "OptionAssignment",
    "StrictModel",
    "as_path",
    "check_document",
    "drop_added",
    "expand_path",
    "is_text_key",
    "keep_last",
    "listed",
    "load_config",
    "names_file",
    "parse_assigned",
    "relative_path",
]
