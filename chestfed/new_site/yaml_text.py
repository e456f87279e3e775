"""The text of a YAML with a comment behind, or above, each key."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from typing import Final

_WIDTH: Final = 118
_COMMENT_AT: Final = 42
_PLAIN: Final = re.compile(r"[^\W\d_][\w .()-]*|/[\w./-]+")
_RESERVED: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"})


class Page:
    """Lines of YAML, written from top to bottom."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def comment(self, text: str) -> None:
        """Lines of their own."""
        width = _WIDTH - 2 - len(self._indent)
        lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
        self._lines += [f"{self._indent}# {line}" for line in lines]

    def blank(self) -> None:
        """An empty line."""
        self._lines.append("")

    def section(self, key: str, comment: str = "") -> None:
        """The keys that follow, until `end`, are below this one."""
        self._put(f"{key}:", comment)
        self._depth += 1

    def end(self) -> None:
        """The section is complete."""
        self._depth -= 1

    def key(self, key: str, value: object, comment: str = "") -> None:
        """A key with its value on one line, or as a block if that is too long."""
        line = f"{flow(key)}: {flow(value)}"
        if len(self._indent) + len(line) <= _WIDTH or not isinstance(value, list | Mapping):
            self._put(line, comment)
            return
        self._put(f"{flow(key)}:", comment)
        if isinstance(value, Mapping):
            self._lines += [f"{self._indent}  {flow(name)}: {flow(cell)}" for name, cell in value.items()]
        else:
            self._lines += [f"{self._indent}  - {flow(cell)}" for cell in value]

    def text(self) -> str:
        """All of it."""
        return "\n".join(line.rstrip() for line in self._lines).rstrip() + "\n"

    @property
    def _indent(self) -> str:
        return "  " * self._depth

    def _put(self, line: str, comment: str) -> None:
        text = self._indent + line
        shown = " ".join(comment.split())
        if shown and max(len(text) + 2, _COMMENT_AT) + len(shown) + 2 <= _WIDTH:
            text = f"{text:<{_COMMENT_AT - 2}}  # {shown}"
        elif shown:
            self.comment(shown)
        self._lines.append(text)


def flow(value: object) -> str:
    """A value on one line, quoted where YAML would read something else."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(key)}: {flow(cell)}" for key, cell in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if not isinstance(value, str):
        return json.dumps(value)
    safe = _PLAIN.fullmatch(value) and value == value.strip() and value.lower() not in _RESERVED
    return value if safe else json.dumps(value, ensure_ascii=False)
