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

from chestfed.cli import app
from chestfed.core.bundled import list_pipelines, list_sites

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: Commands with words that stand for others.
PLACEHOLDER = re.compile(r"[A-Z]{3,}|\u2026|\.\.\.|<|\{|\|")
DRAWING = re.compile(r"-{3,}")


def list_commands(page: Path) -> Iterator[str]:
    """The commands in code blocks and in spans of code, joined where a line ends with a backslash."""
    text = re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))
    for block in re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
        yield from re.findall(r"^\s*(?:\$ )?(?:\S*/bin/)?(chestfed +[a-z].*)$", block, re.MULTILINE)
    yield from (re.sub(r"\s+", " ", span) for span in re.findall(r"`(chestfed\s+[a-z][^`]*)`", text))


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
        assert name in command.commands, f"no command {name}"
        command = command.commands[name]
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
