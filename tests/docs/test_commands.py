"""Every command of README and docs is one that the program takes: its words, options and bundled names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click.exceptions
import pytest
import typer
from typer.testing import CliRunner

from chestfed.app.cli import app
from chestfed.core.bundled import list_pipelines, list_sites

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: Commands with words that stand for others.
PLACEHOLDER = re.compile(r"[A-Z]{3,}|\u2026|\.\.\.|<|\{|\|")
DRAWING = re.compile(r"-{3,}")


def list_block_commands(text: str) -> Iterator[str]:
    """The commands in code blocks."""
    for block in re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
        yield from re.findall(r"^\s*(?:\$ )?(?:\S*/bin/)?(chestfed +[a-z].*)$", block, re.MULTILINE)


def read_page(page: Path) -> str:
    """Its text; a command that is continued behind a backslash is in one line."""
    return re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))


def list_commands(page: Path) -> Iterator[str]:
    """The commands in code blocks and in spans of code."""
    yield from list_block_commands(read_page(page))
    yield from (re.sub(r"\s+", " ", span) for span in re.findall(r"`(chestfed\s+[a-z][^`]*)`", read_page(page)))


COMMANDS = sorted(
    {
        (page.relative_to(ROOT).as_posix(), line)
        for page in PAGES
        for line in list_commands(page)
        if not DRAWING.search(line)
    }
)


def parse(words: list[str]) -> None:
    """Parse as the program does, without running anything."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("chestfed", list(words), resilient_parsing=True)
    while hasattr(command, "commands") and words:
        name, *words = words
        if name.startswith("-"):
            return
        command = command.get_command(context, name)
        assert command is not None, f"no command {name}"
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        if word.startswith("--"):
            assert word.partition("=")[0] in known, f"no option {word}"
    command.make_context("chestfed", list(words), resilient_parsing=True, parent=context)


def test_docs_have_commands() -> None:
    assert len(COMMANDS) > 80


@pytest.mark.parametrize("page", sorted({page for page, _ in COMMANDS}))
def test_commands_of_a_page_can_be_parsed(page: str) -> None:
    wrong = []
    for line in (line for document, line in COMMANDS if document == page):
        plain = line.split(" #")[0].split(" && ")[0].split(" > ")[0]
        try:
            parse(shlex.split(plain)[1:])
        except (AssertionError, ValueError, click.exceptions.ClickException) as error:
            wrong.append(f"{line}: {error}")
        except Exception as error:  # the parser's own, whose module is private
            wrong.append(f"{line}: {type(error).__name__} {error}")
    assert wrong == []


def test_bundled_names_in_commands_exist() -> None:
    known = {f"pipelines/{name}.yaml" for name in list_pipelines()} | {
        f"site_configs/{name}.yaml" for name in list_sites()
    }
    named = {
        (page, word)
        for page, line in COMMANDS
        for word in line.split()
        if re.fullmatch(r"(pipelines|site_configs)/[\w/-]+\.yaml", word) and not PLACEHOLDER.search(word)
    }
    user_names = ("st-anne", "st_anne", "anne", "mine", "my_", "own", "odd")
    assert {
        entry for entry in named if entry[1] not in known and not any(part in entry[1] for part in user_names)
    } == set()


#: Commands that need data which cannot be shipped, a finished study, a server, the file of a plug-in, or hours; advice
#: that goes on in words.
ELSEWHERE = re.compile(
    r"/data/|--data (films|radiographs)|(datasets|films) get|runs/|--labels (hannover|nih_sample|train)|&|st_anne"
    r"|, then |my|:Fed"
    r"|--size (?!large)|^chestfed (federation|key|ui|report|submit|leaderboard|compare|evaluate|tune|samples$)"
)


def list_runnable() -> list[str]:
    """The commands in code blocks that sample hospitals suffice for; of a study its plan. What writes comes first."""
    printed = {line.split("  #")[0].strip() for page in PAGES for line in list_block_commands(read_page(page))}
    lines = {line for line in printed if not PLACEHOLDER.search(line) and not ELSEWHERE.search(line)}
    plans = {f"{line} --dry-run" if " study" in line and "--dry-run" not in line else line for line in lines}
    return sorted(plans, key=lambda line: ("chestfed samples" not in line, "site new" not in line, line))


@pytest.mark.slow
def test_documented_commands_run_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failed = []
    for line in list_runnable():
        result = CliRunner().invoke(app, shlex.split(line)[1:])
        asks = "site new" in line and "--uncertain" not in line  # what it asks there, the page says
        if result.exit_code != 2 * asks:
            failed.append(f"{line}: {result.exit_code} {result.exception}"[-600:])
    assert failed == []
