"""Progress: plain lines in a log, bars in a terminal."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

import chestfed
from chestfed.app.commands import progress
from chestfed.app.commands.progress import Bars
from chestfed.core.console import open_console
from chestfed.core.errors import ImageProblem


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def log_of_study(round_seconds: float, rounds: int) -> list[str]:
    """The lines of a log of stage 2, one round after the other."""
    out, clock = io.StringIO(), Clock()
    with Bars(Console(file=out, width=140), clock) as bars:
        history: list[dict[str, object]] = []
        for number in range(rounds):
            clock.now += round_seconds
            history.append({"mean_auc": 0.7} if number % 2 else {})
            bars.round_done(2, history, rounds)
    return out.getvalue().splitlines()


def test_log_has_a_line_every_half_minute() -> None:
    assert log_of_study(11, 8) == [
        "stage 2: K=2: round 3 of 8, mean AUC 0.700, 0:33 elapsed, 0:55 left",
        "stage 2: K=2: round 6 of 8, mean AUC 0.700, 1:06 elapsed, 0:22 left",
        "stage 2: K=2: round 8 of 8, mean AUC 0.700, 1:28 elapsed",
    ]


def test_a_long_round_has_a_line_each() -> None:
    assert log_of_study(900, 2) == [
        "stage 2: K=2: round 1 of 2, 15:00 elapsed, 15:00 left",
        "stage 2: K=2: round 2 of 2, mean AUC 0.700, 30:00 elapsed",
    ]


def test_a_short_command_logs_nothing() -> None:
    assert log_of_study(0.5, 20) == []


def test_skipped_images_have_rows_and_no_names() -> None:
    out, problems = io.StringIO(), [ImageProblem("unreadable image", "p0042/a.png", "cut off", row) for row in (9, 30)]
    study: Any = SimpleNamespace(quarantined={"padchest": problems}, notes={}, shared=[])
    Bars(Console(file=out, width=140)).data_read([study])
    assert out.getvalue().strip() == "padchest: skipped 2 missing or unreadable images (rows of the labels: 9, 30)"
    study.quarantined = {"nih": 20 * problems}
    Bars(Console(file=out, width=140)).data_read([study])
    assert "skipped 40 missing" in out.getvalue()
    assert out.getvalue().endswith("9, 30, ...)\n")


def test_bars_have_units_and_second_passes() -> None:
    out, clock = io.StringIO(), Clock()
    with Bars(Console(file=out, width=140), clock) as bars:
        for _ in range(2):
            clock.now += 31
            bars.decoding("st-anne", 1200, 2400)
            bars.decoding("st-anne", 2400, 2400)
        clock.now += 31
        bars.pretraining(50, 100, 0.5)
        bars.pretraining(0, 0, float("nan"))  # `pretrain.epochs: 0`
    first = [
        "decoding st-anne: image 1,200 of 2,400, 0:31 elapsed, 0:31 left",
        "decoding st-anne: image 2,400 of 2,400, 0:31 elapsed",
    ]
    assert out.getvalue().splitlines() == [
        *first,
        *first,
        "stage 1: cross-entropy: batch 50 of 100, loss 0.500, 0:31 elapsed, 0:31 left",
    ]


def test_waiting_is_no_time_of_stage_1() -> None:
    """For approvals of hospitals, say, before the study has a folder."""
    out, clock = io.StringIO(), Clock()
    study: Any = None  # is not shown
    with Bars(Console(file=out, width=140), clock) as bars:
        clock.now += 240
        bars.study_started(study)
        clock.now += 40
        bars.pretraining(50, 100, 0.5)
    assert "0:40 elapsed" in out.getvalue()


def test_stage_1_of_an_earlier_run_is_named_once() -> None:
    out, clock = io.StringIO(), Clock()
    with Bars(Console(file=out, width=140), clock) as bars:
        bars.pretraining(60, 60, 0.5)
        for loss in (0.5, 0.4, 0.4):  # that of 0.5 was trained by this command
            clock.now += 53
            bars.stage_1_found()
            bars.pretraining(60, 60, loss)
        clock.now += 53
        bars.pretraining(25, 60, 0.6)
    first, second = out.getvalue().splitlines()
    assert first == "stage 1: loss 0.400 after batch 60 (from the earlier run)"
    assert second.startswith("stage 1: cross-entropy: batch 25 of 60")


def test_first_of_many_items_tells_no_pace() -> None:
    out, clock = io.StringIO(), Clock()
    with Bars(Console(file=out, width=140), clock) as bars:
        for done in (1, 10):
            clock.now += 40
            bars.decoding("st-anne", done, 3_000)
    first, second = out.getvalue().splitlines()
    assert first == "decoding st-anne: image 1 of 3,000, 0:40 elapsed"
    assert second.endswith(" left")


def test_a_terminal_has_bars_and_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out, clock = io.StringIO(), Clock()
    with Bars(Console(file=out, width=140, force_terminal=True), clock) as bars:
        clock.now += 900
        bars.decoding("st-anne", 1200, 2400)
    assert "1200/2400" in out.getvalue()
    assert "image 1,200" not in out.getvalue()


def test_no_name_is_an_emoji_and_one_console() -> None:
    name = "/data/:100:/[red]ward[/red]"
    console = open_console()
    shown = console.file = io.StringIO()
    table = Table(name, title=name, caption=name)
    table.add_row(name)
    console.print(name, table)
    bars = progress.StepBars(console)
    bars._progress.disable = False
    bars.show(name, 1, 2, name, "image")
    console.width = 200
    console.print(bars._progress.get_renderable())
    assert shown.getvalue().count(name) == 7
    sources = [file for file in Path(chestfed.__file__).parent.rglob("*.py") if " Console(" in file.read_text("utf-8")]
    assert sources == []  # all others are made by `open_console`
