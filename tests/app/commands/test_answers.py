"""--quiet is one line of answer, --json has it with numbers as numbers, for every command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import Called, call
from tests.results.tables.finished_runs import write_run

SITE = "site_configs/synthetic/chexpert.yaml"


def ask(folder: Path, *words: object, both: bool = False) -> tuple[Called, dict[str, Any]]:
    """What a command prints with --quiet, and what it gives programs; the same with `both` options."""
    quiet = call(*words, "--quiet", folder=folder)
    assert quiet.code in (0, 1), quiet.err
    programs = json.loads(call(*words, "--json", folder=folder).out)
    if both:
        assert json.loads(call(*words, "--json", "--quiet", folder=folder).out)["command"] == programs["command"]
    assert quiet.out.count("\n") == 1, quiet.out
    assert programs["result"]["answer"].replace("−", "-") == quiet.out.strip()
    return quiet, programs["result"]


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (("algorithms",), {"algorithms", "objectives"}),
        (("algorithms", "scaffold"), {"family", "options"}),
        (("datasets",), {"releases"}),
        (("datasets", "show", "hannover"), {"images", "bytes"}),
        (("key",), {"file", "fingerprint"}),
        (("schema", "schemas"), {"files"}),
        (("cache", "list"), {"parts", "bytes"}),
        (("cache", "prune"), {"freed", "damaged"}),
        (("runs",), {"runs"}),
        (("doctor",), {"findings", "problems"}),
    ],
)
def test_commands_answer_in_a_line(tmp_path: Path, words: tuple[str, ...], keys: set[str]) -> None:
    assert keys <= ask(tmp_path, *words, both=True)[1].keys()


def test_commands_about_sites_answer(tmp_path: Path, tiny_hospitals: Path) -> None:
    data = ("--data", tiny_hospitals)
    _, result = ask(tmp_path, "site", "stats", SITE, *data)
    assert result["images"]["chexpert"] > 0
    _, result = ask(tmp_path, "site", "check", SITE, *data, "--no-images")
    assert result["passed"] is (result["errors"] == 0)
    _, result = ask(tmp_path, "site", "table", SITE, *data, "--sample", 3)
    assert result["shown"] == 3
    small = ("--set", "samples=null", "--set", "preprocess.size=32", "--cache", tmp_path / "cache")
    _, result = ask(tmp_path, "site", "probe", "source_addition_samples", *data, *small)
    assert set(result["recall"]) == set(result["images"])
    assert result["chance"] == pytest.approx(1 / len(result["recall"]))
    assert result["chance"] < result["accuracy"] <= 1  # the phantoms' hospitals have machines of their own


def test_commands_about_runs_answer(tiny_study: Path, tmp_path: Path) -> None:
    run = next(path.parent.name for path in (tiny_study / "runs").glob("*/study.json"))
    _, result = ask(tiny_study, "evaluate", run, "--site", SITE, "--data", "synthetic_hospitals", "--resamples", 0)
    mean = result["metrics"]["mean"]["auc"]["value"]
    assert 0 < mean < 1
    assert f"{mean:.3f}" in result["answer"]
    _, result = ask(tiny_study, "runs")
    assert isinstance(result["runs"][0]["gain"], float)
    _, result = ask(tmp_path, "report", write_run(tmp_path / "run"), "--out", "page.html")
    assert result["bytes"] == (tmp_path / "page.html").stat().st_size


def test_command_without_an_answer_prints_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chestfed: Callable[..., Any]
) -> None:
    monkeypatch.setattr("chestfed.app.commands.datasets.show_answer", lambda *_, **__: None)
    quiet = chestfed("datasets", "--quiet")
    assert quiet.out.count("\n") == 1
    assert "--data DIR" in quiet.out
