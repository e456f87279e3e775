"""Typical mistakes: one message on stderr, no traceback, the same exit code for the same mistake, and what to do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.command_line import call
from tests.results.tables.finished_runs import write_run

#: Words of the command, exit code, and a part of the message that says what to do. {data}: an empty folder.
MISTAKES = [
    # commands and options
    ("stduy", 2, "Did you mean 'study'"),
    ("studies", 2, "No such command"),
    ("site chek chexpert", 2, "check"),
    ("study --epochs 5", 2, "--set pretrain.epochs=5"),
    ("study --lr 0.1", 2, "--set federated.local_lr=0.1"),
    ("study --seed", 2, "requires an argument"),
    ("study --seeds three", 2, "whole numbers"),
    ("study --seeds 0", 2, "number of seeds"),
    ("study --learning-rate 0.1", 2, "--set pretrain.lr=0.1"),
    ("study --nothing", 2, "No such option"),
    ("study --jobs 0", 2, "--jobs"),
    ("study --methods ,", 2, "give names"),
    ("study --seed 1 --set seed=2", 2, "use only one"),
    ("study --set subsets={{}} --k 1,2", 1, "remove it"),
    ("study --set windows=1,8", 1, "write [1,8]"),
    ("study --set windows=[a]", 1, "windows.0"),
    ("study --set evaluation.interval=wald", 1, "obuchowski"),
    ("evaluate model.onnx --site chexpert --views all", 2, "--set views=all"),
    ("samples --size huge", 2, "tiny"),
    ("evaluate", 2, "Missing argument"),
    ("report", 2, "Missing argument"),
    ("compare", 2, "Missing argument"),
    ("evaluate model.onnx", 2, "--site"),
    ("evaluate model.onnx --site chexpert --split all", 2, "held-out"),
    ("ui --port 0", 2, "--port"),
    # names
    ("study source_adition_samples", 1, "Did you mean source_addition_samples"),
    ("study digits", 1, "digits_ih"),
    ("study missing.yaml", 1, "no pipeline of this name"),
    ("site check chexprt", 1, "Did you mean chexpert"),
    ("site stats vinder", 1, "vindr"),
    ("site card nowhere.yaml", 1, "no site of this name"),
    ("evaluate nope --site chexpert", 1, "MODEL is a run"),
    ("evaluate 0123 --site chexpert", 1, "MODEL is a run"),
    ("evaluate good --site chexprt", 1, "Did you mean chexpert"),
    ("report nope", 1, "no such folder"),
    ("report runs", 1, "open one of them"),
    ("report same", 1, "2 runs in runs have that name"),
    ("compare good", 1, "two models"),
    ("compare good nope", 1, "nope"),
    ("compare good same1 --k 7", 1, "K=7"),
    ("algorithms scafold", 1, "scaffold"),
    ("study --methods codaska", 1, "codasca"),
    ("datasets show hanover", 1, "hannover"),
    ("datasets get hannover", 1, "--data"),
    # keys and values
    ("study --set federatd.window=3", 1, "federated"),
    ("study --set federated.windw=3", 1, "window"),
    ("study --set federated.window=x", 1, "federated.window"),
    ("study --set k=[7]", 1, "k"),
    ("study --k 0", 1, "k"),
    ("study --k one", 1, "k"),
    ("study --device gpu", 1, "runtime.device"),
    ("study --cluster missing.yaml", 1, "missing.yaml"),
    ("study --add-site source_addition_samples", 1, "no site of this name"),
    # files and folders
    ("site check chexpert", 1, "--data DIR or $CHESTFED_DATA"),
    ("study source_addition_densenet121", 1, "--data DIR"),
    ("study source_addition_densenet121 --data nowhere --dry-run", 1, "no such folder"),
    ("evaluate broken.pth --site synthetic/vindr --data {data}", 1, "broken.pth"),
    ("ui --out {data}", 1, "chestfed study"),
    ("site check broken.yaml --data {data}", 1, "broken.yaml"),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs, two of which have a part of their names in common, and broken files."""
    folder = tmp_path_factory.mktemp("mistakes")
    write_run(folder / "runs" / "good")
    for name in ("same1", "same2"):
        shutil.copytree(folder / "runs" / "good", folder / "runs" / name)
    (folder / "broken.pth").write_bytes(b"no model")
    (folder / "broken.yaml").write_text("site: [", encoding="utf-8")
    (folder / "data").mkdir()
    return folder


def test_fifty_mistakes_are_listed() -> None:
    assert len(MISTAKES) >= 50


@pytest.mark.parametrize(("line", "code", "advice"), MISTAKES)
def test_mistake_has_one_message_with_advice(
    home: Path, monkeypatch: pytest.MonkeyPatch, line: str, code: int, advice: str
) -> None:
    monkeypatch.delenv("CHESTFED_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    called = call(*line.format(data="data").split(), folder=home)
    assert called.code == code, called.err + called.out
    assert "Traceback" not in called.err
    assert called.out == ""
    assert advice in " ".join(called.err.replace("\u2502", " ").split())
    if code == 1:
        assert called.err.startswith("error: ")
