"""Typical mistakes: one message on stderr, no traceback, the same exit code, kind and fields for the same mistake."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from chestfed.app import cli
from chestfed.core.errors import ChestfedError
from tests.command_line import call
from tests.results.tables.finished_runs import write_run

Mistake = tuple[str, str, dict[str, Any]]

#: Words of the command, kind and fields of the error. {data}: an empty folder.
ERRORS: list[Mistake] = [
    # names, of the kind that was asked for and of others
    ("study source_adition_samples", "no such name", {"suggestion": "source_addition_samples"}),
    ("study digits", "no such name", {"suggestion": "digits_ih"}),
    ("study missing.yaml", "no such name", {"suggestion": ""}),
    ("study good", "no such name", {"suggestion": "good"}),
    ("study runs/good", "not a pipeline", {}),
    ("tune runs/together", "not a pipeline", {"suggestion": "chestfed report runs/together"}),
    ("tune model.pth", "not a pipeline", {"suggestion": "chestfed evaluate model.pth --site SITE"}),
    ("report model.pth", "not a run", {"suggestion": "chestfed evaluate model.pth --site SITE"}),
    ("report empty.yaml", "not a run", {"suggestion": "chestfed study empty.yaml"}),
    ("saliency empty.yaml --site chexpert", "not a model", {"suggestion": "chestfed study empty.yaml"}),
    ("saliency together --site chexpert", "comparison of studies", {"studies": ("same1", "same2")}),
    ("evaluate together --site chexpert", "comparison of studies", {"studies": ("same1", "same2")}),
    ("export together", "comparison of studies", {"studies": ("same1", "same2")}),
    ("saliency nope --site chexpert", "no such name", {}),
    ("saliency pipelines/digits_ih.yaml --site chexpert", "no such name", {"suggestion": "digits_ih"}),
    ("export nope", "no such name", {}),
    ("study chexpert", "no such name", {"suggestion": "chexpert"}),
    ("study codasca", "no such name", {"suggestion": "codasca"}),
    ("study hannover", "no such name", {"suggestion": "hannover"}),
    ("site check chexprt", "no such name", {"suggestion": "chexpert"}),
    ("site check source_addition_samples", "no such name", {"suggestion": "source_addition_samples"}),
    ("site check same1", "no such name", {"suggestion": "same1"}),
    ("site stats vinder", "no such name", {"suggestion": "vindr"}),
    ("site card nowhere.yaml", "no such name", {"suggestion": ""}),
    ("evaluate nope --site chexpert", "no such name", {"suggestion": ""}),
    ("evaluate chexpert --site chexpert", "no such name", {"suggestion": "chexpert"}),
    ("evaluate good --site chexprt", "no such name", {"suggestion": "chexpert"}),
    ("evaluate good/k9 --site chexpert", "no such name", {}),
    ("report 0bc31d30b888", "no such folder", {"suggestion": "synthetic-abc-0bc31d30b889"}),
    ("report nope", "no such folder", {"suggestion": ""}),
    ("report sume1", "no such folder", {"suggestion": "same1"}),
    ("report chexpert", "no such folder", {"suggestion": "chexpert"}),
    ("report source_addition_samples", "no such folder", {"suggestion": "source_addition_samples"}),
    ("report runs", "several studies", {"studies": ("good", "same1", "same2", "synthetic-abc-0bc31d30b889")}),
    ("report same", "several", {}),
    ("compare good nope", "no such name", {"suggestion": ""}),
    ("compare good chexpert", "no such name", {"suggestion": "chexpert"}),
    ("power nix", "no such name", {"suggestion": ""}),
    ("power chexpert", "no such name", {"suggestion": "chexpert"}),
    ("algorithms scafold", "unknown algorithm", {"suggestion": "scaffold"}),
    ("study --methods codaska", "unknown algorithm", {"suggestion": "codasca"}),
    ("datasets show hanover", "unknown release", {"suggestion": "hannover"}),
    ("datasets show chexpert", "unknown release", {"suggestion": "chexpert"}),
    ("runs /nope", "missing folder", {}),
    # keys and values
    ("study --set federatd.window=3", "unknown key", {"key": "federatd", "suggestion": "federated"}),
    ("study --set federated.window=x", "invalid value", {"key": "federated.window"}),
    ("study --set federated=3", "invalid value", {"key": "federated"}),
    ("study --set windows=1,8", "invalid value", {"key": "windows"}),
    ("study --set windows=[a]", "invalid value", {"key": "windows.0"}),
    ("study --set evaluation.interval=obuchovski", "invalid value", {"suggestion": "obuchowski"}),
    ("study --set samples.size=tini", "invalid value", {"key": "samples.size", "suggestion": "tiny"}),
    ("study --set preprocess=[1]", "invalid value", {"key": "preprocess"}),
    ("study --k 0", "invalid value", {}),
    ("study --k one", "invalid value", {"place": "--k"}),
    ("study digits_ih --k 9", "invalid value", {"key": "k", "place": "--k"}),
    ("study --set k=9", "invalid value", {"place": "--set k"}),
    ("study --device gpu", "invalid value", {"key": "runtime.device", "place": "--device", "suggestion": "cuda"}),
    ("study entry.yaml", "invalid value", {"key": "sites.0"}),
    ("study near.yaml", "no such file", {"place": "near.yaml:1", "suggestion": "source_addition_samples"}),
    ("study empty.yaml", "empty file", {}),
    ("site check comments.yaml", "empty file", {}),
    ("study methods.yaml", "invalid value", {"key": "methods", "place": "methods.yaml:2"}),
    ("site check views.yaml", "missing key", {"key": "title", "place": "views.yaml:1"}),
    ("study digits_ih --set window=8", "unknown key", {"key": "window", "suggestion": "federated.window"}),
    ("study --set federated.local_learning_rate=1", "unknown key", {"suggestion": "local_lr"}),
    ("study --set evaluation.split=validation", "invalid value", {"suggestion": "valid"}),
    ("samples --extra st-anne/dicm", "unknown shape", {"suggestion": "dicom"}),
    ("leaderboard data --benchmark sample-v2", "unknown benchmark", {"suggestion": "samples-v2"}),
    ("study site.yaml", "no such name", {"key": "sites.1.config", "place": "site.yaml:4", "suggestion": "chexpert"}),
    ("study --set sites.0.config=chexprt", "no such name", {"key": "sites.0.config", "place": "--set sites.0.config"}),
    # files and folders
    ("ui --out data", "no store", {}),
]
#: Words of the command of an error, and a word of what its message says is wrong or to do.
FILES_AND_VALUES: list[tuple[str, str]] = [
    ("study binary.yaml", "not a text file"),
    ("evaluate broken.pth --site synthetic/vindr --data data", "broken.pth"),
    ("site check broken.yaml --data data", "broken.yaml"),
    ("study --cluster missing.yaml", "missing.yaml"),
    ("study --add-site source_addition_samples", "source_addition_samples"),
    ("study --set k=[7]", "7"),
    ("study --methods nosuch:Rule", "--methods: 'nosuch:Rule'"),
    ("study --set selected=[nosuch:Rule]", "--set selected: 'nosuch:Rule'"),
    ("study --set subsets={} --k 1,2", "subsets"),
    ("study --set federated.windw=3", "window"),
    ("study source_addition_densenet121 --data nowhere", "nowhere"),
    ("evaluate good/k9 --site chexpert", "has k1, k2"),
    ("report good/k9", "has k1, k2"),
    ("leaderboard nowhere", "nowhere: no such folder"),
    ("compare good", "two"),
    ("compare good same1 --k 7", "K=7"),
]
#: Words of the command of a usage error, and a word that its message has besides.
USAGE: list[tuple[str, str]] = [
    ("stduy", "study"),
    ("train", "study"),
    ("new algorithm mine", "new has: pipeline"),
    ("list", "runs"),
    ("good", "report"),
    ("check chexpert", "'site check'"),
    ("stats chexpert", "'site stats'"),
    ("site chek chexpert", "check"),
    ("study --epochs 5", "pretrain.epochs=5"),
    ("study --lr 0.1", "federated.local_lr=0.1"),
    ("study --seed", "--seed"),
    ("study --seeds three", "--seeds"),
    ("study --seeds 0", "--seeds"),
    ("study --nothing", "--nothing"),
    ("study --jobs 0", "--jobs"),
    ("study --methods ,", "--methods"),
    ("study --seed 1 --set seed=2", "seed"),
    ("evaluate model.onnx --site chexpert --views all", "views=all"),
    ("evaluate model.onnx --site chexpert --split validation", "valid"),
    ("evaluate model.onnx --site chexpert --split all", "held-out"),
    ("study --learning-rate 0.1", "pretrain.lr=0.1"),
    ("samples --size tyny", "tiny"),
    ("evaluate", "model"),
    ("report", "chestfed runs"),
    ("compare", "chestfed runs"),
    ("evaluate model.onnx", "--site"),
    ("ui --port 0", "--port"),
]
#: Words of pydantic and Python that say nothing to a person.
FOREIGN = (
    "literal[",
    "constrained",
    "Input should",
    "Field required",
    "Extra inputs",
    "Value error",
    "instance of",
    "dictionary",
    "Traceback",
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs, two of which have a part of their names in common, and broken files."""
    folder = tmp_path_factory.mktemp("mistakes")
    write_run(folder / "runs" / "good")
    for name in ("same1", "same2", "synthetic-abc-0bc31d30b889"):
        shutil.copytree(folder / "runs" / "good", folder / "runs" / name)
    (folder / "entry.yaml").write_text("extends: source_addition_samples\nsites: [x.yaml]\n", encoding="utf-8")
    sites = "extends: source_addition_samples\nsites:\n- config: chexpert\n- config: chexprt\nk: [1, 2]\n"
    (folder / "site.yaml").write_text(sites, encoding="utf-8")
    (folder / "near.yaml").write_text("extends: source_adition_samples\n", encoding="utf-8")
    (folder / "empty.yaml").write_text("", encoding="utf-8")
    (folder / "comments.yaml").write_text("# nothing yet\n", encoding="utf-8")
    (folder / "methods.yaml").write_text("extends: source_addition_samples\nmethods:\n", encoding="utf-8")
    (folder / "views.yaml").write_text("site: a\nviews: pa\n", encoding="utf-8")
    (folder / "broken.yaml").write_text("site: [", encoding="utf-8")
    (folder / "broken.pth").write_bytes(b"no model")
    (folder / "binary.yaml").write_bytes(bytes(range(256)))
    (folder / "model.pth").write_bytes(b"no model")
    (folder / "data").mkdir()
    runs = [{"folder": name} for name in ("same1", "same2")]
    (folder / "runs" / "together").mkdir()
    (folder / "runs" / "together" / "comparison.json").write_text(json.dumps({"about": {"runs": runs}}))
    return folder


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """The errors that the command line prints."""
    printed: list[Exception] = []
    original = cli.print_error

    def record(error: Exception) -> None:
        printed.append(error)
        original(error)

    monkeypatch.setattr(cli, "print_error", record)
    monkeypatch.delenv("CHESTFED_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return printed


def test_sixty_mistakes_are_listed() -> None:
    assert len({line for line, *_ in (*ERRORS, *USAGE)}) >= 60


@pytest.mark.parametrize(("line", "kind", "fields"), ERRORS)
def test_mistake_has_kind_and_fields(
    home: Path, errors: list[ChestfedError], line: str, kind: str, fields: dict[str, Any]
) -> None:
    called = call(*line.split(), folder=home)
    assert called.code == 1, called.err + called.out
    (error,) = errors
    assert isinstance(error, ChestfedError)
    assert error.kind == kind, error
    assert fields.items() <= error.fields.items(), error
    assert called.out == ""
    assert not [word for word in FOREIGN if word in called.err]
    if fields.get("suggestion"):
        assert fields["suggestion"] in called.err


@pytest.mark.parametrize(("line", "word"), FILES_AND_VALUES)
def test_error_names_file_or_value(home: Path, errors: list[ChestfedError], line: str, word: str) -> None:
    called = call(*line.split(), folder=home)
    assert (called.code, called.out) == (1, ""), called.err + called.out
    (error,) = errors
    assert isinstance(error, ChestfedError)
    assert word in called.err
    assert not [word for word in FOREIGN if word in called.err]


@pytest.mark.parametrize(
    ("line", "key", "suggestion"),
    [
        ("study digits_ih --set collection.name=digit", "collection.name", "digits"),
        ("study --set diseases=[oedema]", "source_addition_samples.yaml: 'diseases'", "edema"),
    ],
)
def test_error_of_a_study_names_key(
    home: Path, errors: list[ChestfedError], line: str, key: str, suggestion: str
) -> None:
    call(*line.split(), "--data", "data", folder=home)
    (error,) = errors
    assert key in str(error)
    assert error.fields["suggestion"] == suggestion


@pytest.mark.parametrize(("line", "word"), USAGE)
def test_usage_error_names_what_is_meant(home: Path, errors: list[ChestfedError], line: str, word: str) -> None:
    called = call(*line.split(), folder=home)
    assert called.code == 2, called.err + called.out
    assert not errors
    assert called.out == ""
    text = " ".join(called.err.replace("\u2502", " ").split())
    assert word in text.partition("Error")[2]
    assert not [word for word in FOREIGN if word in text]


@pytest.mark.parametrize("line", ["site check chexpert", "study source_addition_densenet121", "datasets get hannover"])
def test_missing_data_folder_names_option(home: Path, errors: list[ChestfedError], line: str) -> None:
    called = call(*line.split(), folder=home)
    assert (called.code, len(errors)) == (1, 1)
    assert "--data" in called.err
