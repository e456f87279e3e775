"""No command loses a number of its tables in a narrow terminal."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from chestfed.core.bundled import bundled
from tests.command_line import call
from tests.results.tables.finished_runs import write_run

SITES = [bundled("site_configs") / "synthetic" / f"{name}.yaml" for name in ("chexpert", "padchest")]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    for seed in (1, 2):
        write_run(folder / "runs" / f"synthetic-study-{seed}", seed=seed)
    return folder


def count_numbers(text: str) -> Counter[str]:
    """The numbers of a text, each with how often it stands there."""
    return Counter(re.findall(r"(?<![\w.,])[-+]?\d[\d,]*(?:\.\d+)?(?![\w])", text))


@pytest.mark.slow_but("site stats", "runs", "compare runs/synthetic-study-1")
@pytest.mark.parametrize(
    "words",
    [
        ["site", "stats", *SITES, "--data", "tiny"],
        ["datasets", "list"],
        ["algorithms"],
        ["runs"],
        ["compare", "runs/synthetic-study-1", "runs/synthetic-study-2", "--out", "paired"],
        ["compare", "runs/synthetic-study-1/k1", "runs/synthetic-study-1/k2", "--out", "paired"],
    ],
    ids=lambda words: " ".join(map(str, words[:2])),
)
def test_narrow_terminals_have_every_number(
    words: list[str], home: Path, tiny_hospitals: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (home / "tiny").exists():
        (home / "tiny").symlink_to(tiny_hospitals)
    texts = []
    for columns in ("400", "80", "60"):
        monkeypatch.setenv("COLUMNS", columns)
        called = call(*words, folder=home)
        assert called.code == 0, called.err
        texts.append(called.out)
    wide, *narrow = map(count_numbers, texts)
    assert wide
    for numbers in narrow:
        assert not wide - numbers


@pytest.mark.parametrize("words", [["study"], ["evaluate"], ["tune"], ["power"], ["site", "new"], ["site", "check"]])
def test_narrow_help_has_whole_keys(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    called = call(*words, "--help-all", folder=tmp_path)
    assert called.code == 0
    assert "…" not in called.out
