"""The tutorial of the sixth hospital: its commands are run one after the other, and print what it shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from chestfed.results.evaluation.labeled import LEAST_PATIENTS
from tests.command_line import call

PAGE = (Path(__file__).parents[3] / "docs" / "tutorial_sixth_hospital.md").read_text(encoding="utf-8")
#: Each command, and the output that is shown below it, if one is.
STEPS = re.findall(r"^```sh\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [command.strip() for command, _ in STEPS]


def run(home: Path, command: str, *more: str) -> str:
    """What a command prints, in `home`."""
    name, *arguments = shlex.split(command)
    assert name == "chestfed"
    result = call(*arguments, *more, folder=home)
    assert result.code == (2 if "\nopen: " in result.out else 0), result.err + result.out
    return result.out


def split_lines(text: str, home: Path) -> list[str]:
    """The lines without what depends on the folder, on the width of a table, or, as progress, on the machine."""
    plain = text.replace(str(home.resolve()), "/home/you")
    return [" ".join(line.split()) for line in plain.splitlines() if line.strip(" ─") and " elapsed, " not in line]


@pytest.fixture(autouse=True, scope="module")
def _ten_patients() -> Iterator[None]:
    """As for the reader of the page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("chestfed.results.evaluation.labeled.LEAST_PATIENTS", LEAST_PATIENTS)
        yield


@pytest.fixture(scope="module")
def printed(tiny_hospitals: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """What each command of the page prints."""
    home = tmp_path_factory.mktemp("you")
    (home / "tiny_hospitals").symlink_to(tiny_hospitals)
    outputs = [run(home, command) for command in COMMANDS[:-1]]
    return home, [*outputs, run(home, COMMANDS[-1], "--no-tracking")]


def test_page_has_commands_of_three_steps() -> None:
    parts = [command.split()[1:3] for command in COMMANDS]
    looks = [["site", "check"], ["site", "stats"]]
    assert parts == [["samples", "--extra"], *2 * [["site", "new"]], *looks, ["study", "--add-site"]]


@pytest.mark.slow
def test_commands_print_what_the_page_shows(printed: tuple[Path, list[str]]) -> None:
    home, outputs = printed
    for (command, shown), output in zip(STEPS[:-1], outputs[:-1], strict=True):
        expected = [line for line in split_lines(shown, home) if line != "…"]
        output_lines = split_lines(output, home)
        for line in expected:
            assert line in output_lines, (command, line, output)
        if "…" not in shown:
            assert expected == output_lines


@pytest.mark.slow
def test_study_answers_as_the_page_says(printed: tuple[Path, list[str]]) -> None:
    _, outputs = printed
    shown, output = (" ".join(text.replace("…", "").split()) for text in (STEPS[-1][1], outputs[-1]))
    assert shown in output


@pytest.mark.slow
def test_yaml_and_table_are_on_the_page(printed: tuple[Path, list[str]]) -> None:
    home, _ = printed
    (yaml,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    written = (home / "site_configs/st-anne.yaml").read_text(encoding="utf-8")
    assert yaml.strip() in written
    (table,) = re.findall(r"^```csv\n(.*?)…", PAGE, re.MULTILINE | re.DOTALL)
    text = (home / "hospitals/synthetic-st-anne/Befunde.csv").read_text(encoding="latin-1")
    assert text.startswith(table)
