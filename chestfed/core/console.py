"""Where text is printed, and how tables and numbers in it look."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
import threading
import warnings
from functools import cache
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from chestfed.core.output import add_result, output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.table import Table

_ONE_AT_A_TIME: Final = threading.Lock()
_Result = TypeVar("_Result")
#: Width of a file or a pipe.
_WIDTH: Final = 140
#: Control characters, halves of characters, and what reverses the direction of the text behind it.
_STEERING: Final = re.compile(r"[^\n\t -~\xa0-\ud7ff\ue000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]")
_NAME_WIDTH: Final = 12  #: a name of at most so many characters is not folded
_LONG_WORD: Final = re.compile(r"[A-Za-z]{11,}")


class ChestfedWarning(UserWarning):
    """A warning to a user; the command line prints it as one line."""


def open_console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """A rich console that prints text as it is: brackets and colons in names mean nothing (`:100:` is not a picture).

    A file or a pipe gets plain text without frames, of $COLUMNS or else a width that does not cut tables. A character
    that its encoding lacks, or that would steer the terminal, becomes a question mark: titles and cells come from
    files. With --quiet only errors, `show_answer` and `show_warning` are printed; with --json all is collected.
    """
    quiet = quiet or (output().mode == "quiet" and not stderr)
    console = _console_class()(stderr=stderr, quiet=quiet, emoji=False, markup=False, highlight=False)
    if not console.is_terminal:
        console.width = _read_width()
    if isinstance(console.file, TextIOWrapper):
        console.file.reconfigure(errors="replace")
    return console


def _read_width() -> int:
    columns = os.environ.get("COLUMNS", "")
    return max(40, int(columns)) if columns.isdigit() else _WIDTH


def show_answer(console: Console, text: str, **result: Any) -> None:
    """Print the answer of a command, one line, which is printed with --quiet too; `result` is what programs get."""
    add_result(answer=text, **result)
    quiet, plain = console.quiet, text.replace("−", "-")
    if output().mode == "quiet":
        console.quiet, output().answered = False, True
        say(console, plain)
    else:
        console.print(plain, style="bold", soft_wrap=True)
    console.quiet = quiet


def show_warning(console: Console, text: str) -> None:
    """Print a warning; with --quiet to standard error, where it is no part of the answer.

    For a console that is quiet because Python asked for it, the warning is one of Python's: `ChestfedWarning`.
    """
    if console.quiet and output().mode == "text":
        warnings.warn(text, ChestfedWarning, stacklevel=2)
    else:
        say(open_console(stderr=True) if output().mode == "quiet" else console, text, "yellow")


@cache
def _console_class() -> type[Console]:
    """Made when it is needed: rich takes long to import."""
    from rich.console import Console
    from rich.table import Table

    class HarmlessConsole(Console):
        """Whatever is printed, a table too, has no control characters but rich's own."""

        def print(self, *objects: Any, **about: Any) -> None:
            if output().mode != "text" and not self.stderr and (self.quiet or output().mode == "json"):
                output().collect(objects)
            else:
                super().print(*objects, **about)

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            if isinstance(renderable, Table) and not self.is_terminal:
                renderable.box = None
            for segment in super().render(renderable, options):
                plain = _STEERING.sub("?", segment.text)
                yield segment if segment.control or plain == segment.text else segment._replace(text=plain)

    return HarmlessConsole


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print text without line breaks, so that paths can be copied."""
    console.print(text, style=style, emoji=False, markup=False, highlight=False, soft_wrap=True)


def command(*words: object) -> str:
    """A command of chestfed to copy: paths with spaces are quoted, for cmd or for a POSIX shell."""
    join = subprocess.list2cmdline if os.name == "nt" else shlex.join
    return join([name_program(), *map(str, words)])


def name_program() -> str:
    """`chestfed`, or, where that is not on the PATH, the path of the script beside this Python."""
    script = Path(sysconfig.get_path("scripts"), "chestfed.exe" if os.name == "nt" else "chestfed")
    if shutil.which("chestfed") or not script.is_file():
        return "chestfed"
    return str(script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script)


def text_table(
    title: str,
    words: Sequence[str],
    numbers: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str | None = None,
    *,
    light: bool = False,
) -> Table:
    """A table for a terminal, with columns of words and then of numbers; a `light` one has no frame."""
    from rich import box

    from chestfed.core.tables import WholeTable

    table = WholeTable(title, caption or "", box.SIMPLE_HEAD if light else box.HEAVY_HEAD)
    table.pad_edge, table.collapse_padding = False, True  # at 80 columns every one counts
    cells = list(rows)
    for place, name in enumerate((*words, *numbers)):
        if place < len(words):
            widest = max((len(row[place]) for row in cells), default=0)
            table.add_column(name, justify="left", overflow="fold", min_width=min(widest, _NAME_WIDTH))
        else:
            table.add_column(hyphenate(name), justify="right", overflow="fold")
    for row in cells:
        table.add_row(*row)
    return table


def hyphenate(heading: str) -> str:
    """Its long words in two lines, divided after the vowel that is nearest to the middle."""

    def divide(word: re.Match[str]) -> str:
        text = word[0]
        ends = [end for end in range(3, len(text) - 2) if text[end - 1] in "aeiou" and text[end] not in "aeiou"]
        best = min(ends, key=lambda end: abs(2 * end - len(text)), default=len(text))
        return f"{text[:best]}-\n{text[best:]}" if ends else text

    return _LONG_WORD.sub(divide, heading)


def capture_stderr(action: Callable[[], _Result]) -> tuple[_Result, str]:
    """The result of `action`, and what was written to file 2 meanwhile: compiled libraries do so past `sys.stderr`."""
    with _ONE_AT_A_TIME, tempfile.TemporaryFile() as written:
        terminal = os.dup(2)
        try:
            os.dup2(written.fileno(), 2)
            result = action()
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
        written.seek(0)
        return result, written.read().decode(errors="replace")


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
