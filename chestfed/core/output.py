"""Output of a command: everything, with --quiet its answer in one line, with --json one object for programs.

The object has `command`, `exit_code`, `error`, `messages`, `tables` (title, columns, rows of texts) and `result`, which
each command describes: its `answer` in a line, and numbers as numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from rich.table import Table

Mode = Literal["text", "quiet", "json"]


@dataclass
class Output:
    """Mode of this process's output, and with --json what is not printed yet."""

    mode: Mode = "text"
    messages: list[str] = field(default_factory=list)
    tables: list[dict[str, Any]] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)
    answered: bool = False  #: whether the answer was printed

    @property
    def last_line(self) -> str:
        """Line in place of the answer of a command that names none: the last that it would have printed."""
        return self.messages[-1].splitlines()[-1] if self.messages else ""

    def collect(self, objects: Iterable[object]) -> None:
        """Take what would be printed."""
        from rich.console import Group
        from rich.table import Table

        for item in objects:
            if isinstance(item, Group):
                self.collect(item.renderables)
            elif isinstance(item, Table):
                self.tables.append(_describe_table(item))
            elif str(item).strip():
                self.messages.append(str(item).strip())


_OUTPUT: Final[ContextVar[Output | None]] = ContextVar("output", default=None)


def output() -> Output:
    """That of the command that runs."""
    current = _OUTPUT.get()
    if current is None:
        current = Output()
        _OUTPUT.set(current)
    return current


def begin_output(mode: Mode = "text") -> None:
    """Forget what an earlier command of this process left; with both options, --json counts."""
    if mode != "quiet" or output().mode != "json":
        _OUTPUT.set(Output(mode))


def add_result(**values: Any) -> None:
    """Add to `result` of the JSON object: plain data."""
    output().result.update(values)


def encode(command: str, exit_code: int, error: str = "") -> str:
    """The JSON object; NaN is null."""
    current = output()
    if current.last_line and not error:
        current.result.setdefault("answer", current.last_line)
    about = {"command": command, "exit_code": exit_code, "error": error or None}
    content = {"messages": current.messages, "tables": current.tables, "result": current.result}
    return json.dumps(_make_plain(about | content), indent=2, ensure_ascii=False, allow_nan=False)


def _describe_table(table: Table) -> dict[str, Any]:
    heads = [str(column.header) for column in table.columns]
    rows = [list(map(str, cells)) for cells in zip(*(column.cells for column in table.columns), strict=True)]
    return {"title": str(table.title or getattr(table, "above", "")), "columns": heads, "rows": rows}


def _make_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _make_plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_make_plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return _make_plain(value.item()) if hasattr(value, "item") else str(value)
