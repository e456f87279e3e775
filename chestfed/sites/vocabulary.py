"""The words of a site table: columns, views, splits."""

from __future__ import annotations

from typing import Final, Literal

#: Views of a site table; `frontal` is frontal without knowing whether PA or AP.
VIEWS: Final[tuple[str, ...]] = ("pa", "ap", "frontal", "lateral", "other", "unknown")
SPLITS: Final[tuple[str, ...]] = ("train", "valid", "test")

#: What a reader returns per image, besides one int8 finding per disease; `file` is the label file of `row`.
RAW_COLUMNS: Final = ("image", "patient", "study", "view", "split", "sex", "age", "row", "file", "inverted")

View = Literal["pa", "ap", "frontal", "lateral", "other", "unknown"]
Split = Literal["train", "valid", "test"]
