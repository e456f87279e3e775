"""The tutorial of the sixth hospital: its commands are run one after the other, and print what it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.command_line import call
from tests.training.tiny_studies import SETTINGS

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial_sixth_hospital.md").read_text(encoding="utf-8")
#: Each command, and the output that is shown below it, if one is.
STEPS = re.findall(r"^```sh\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [command.strip() for command, _ in STEPS]
#: The page's settings of its short study, but a smaller network, smaller images and fewer steps.
SMALLER = [s for s in SETTINGS if s.partition("=")[0] not in ("k", "samples.size")]


def run(home: Path, command: str, *more: str) -> str:
    """What a command prints, in `home`."""
    name, *arguments = shlex.split(command)
    assert name == "chestfed"
    result = call(*arguments, *more, folder=home)
    assert result.code == 0, result.err + result.out
    return result.out


def lines(text: str, home: Path) -> list[str]:
    """The lines without what depends on the folder, or on the width of a table."""
    plain = text.replace(str(home.resolve()), "/home/you")
    return [" ".join(line.split()) for line in plain.splitlines() if line.strip(" ─")]


@pytest.fixture(scope="module")
def printed(tiny_hospitals: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """What each command of the page prints; the study, the last one, with less to do."""
    home = tmp_path_factory.mktemp("you")
    (home / "tiny_hospitals").symlink_to(tiny_hospitals)
    smaller = [part for setting in SMALLER for part in ("--set", setting)]
    found = [run(home, command) for command in COMMANDS[:-1]]
    return home, [*found, run(home, COMMANDS[-1], *smaller, "--no-tracking")]


def test_the_page_has_the_commands_of_the_three_steps() -> None:
    parts = [command.split()[1:3] for command in COMMANDS]
    looks = [["site", "check"], ["site", "stats"]]
    assert parts == [["samples", "--extra"], ["site", "new"], *looks, ["study", "--add-site"]]


def test_each_command_prints_what_the_page_shows_of_it(printed: tuple[Path, list[str]]) -> None:
    home, outputs = printed
    for (command, shown), output in zip(STEPS[:-1], outputs[:-1], strict=True):
        expected = [line for line in lines(shown, home) if line != "…"]
        found = lines(output, home)
        for line in expected:
            assert line in found, (command, line, output)
        if "…" not in shown:
            assert expected == found


def test_the_study_ends_in_the_rows_that_the_page_shows(printed: tuple[Path, list[str]]) -> None:
    """Its figures are those of a longer training, on another processor perhaps; names and counts are not."""
    _, outputs = printed
    shown, output = STEPS[-1][1], outputs[-1]
    assert re.findall(r"│ K=(\d) │ (\S+)", shown) == [("1", "chexpert"), ("6", "st-anne")]
    for k, name in (("1", "chexpert"), ("6", "st-anne")):
        assert re.search(rf"│ K={k} │ {name} +│ ", output), output
    title = next(line for line in shown.splitlines() if line.startswith("SYNTHETIC"))
    assert " ".join(title.split())[:60] in " ".join(output.split())


def test_the_yaml_and_the_table_on_the_page_are_those_that_are_written(printed: tuple[Path, list[str]]) -> None:
    home, _ = printed
    (yaml,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    written = (home / "site_configs/st-anne.yaml").read_text(encoding="utf-8")
    assert yaml.strip() in written
    (table,) = re.findall(r"^```csv\n(.*?)…", PAGE, re.MULTILINE | re.DOTALL)
    text = (home / "hospitals/synthetic-st-anne/Befunde.csv").read_text(encoding="latin-1")
    assert text.startswith(table)


@pytest.mark.slow
def test_the_short_study_of_the_page_runs_as_it_stands(printed: tuple[Path, list[str]]) -> None:
    home, _ = printed
    output = run(home, COMMANDS[-1])
    assert re.search(r"│ K=6 │ st-anne +│ ", output)
