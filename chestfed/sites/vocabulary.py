"""The words of a site table: views, splits."""

from __future__ import annotations

from typing import Final, Literal

#: Views of a site table; `frontal` is frontal without knowing whether PA or AP.
VIEWS: Final[tuple[str, ...]] = ("pa", "ap", "frontal", "lateral", "other", "unknown")
SPLITS: Final[tuple[str, ...]] = ("train", "valid", "test")

View = Literal["pa", "ap", "frontal", "lateral", "other", "unknown"]
Split = Literal["train", "valid", "test"]
