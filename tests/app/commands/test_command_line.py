"""The command line as a whole: help, completion, choices, exit codes, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, get_args, get_type_hints

import pytest
from typer.testing import CliRunner

from chestfed.app.cli import app
from chestfed.app.commands.evaluate import evaluate
from chestfed.core.bundled import bundled, pipeline_file
from chestfed.core.errors import ConfigError
from chestfed.core.plugins.loading import LoadedModule
from chestfed.data.sites.dataset import load_site
from chestfed.learning.algorithms import ALGORITHMS
from chestfed.leaves.drafts.command import site_new
from chestfed.leaves.samples.command import samples
from chestfed.results.evaluation.protocols import PROTOCOLS
from tests.cases import assert_refused
from tests.command_line import call, commands
from tests.results.tables.finished_runs import write_run

HEAVY = ["torch", "monai", "mlflow", "pandas", "numpy", "sklearn", "cv2", "pydicom", "matplotlib", "yaml", "jinja2"]


def completed(*words: str) -> list[str]:
    """What a shell offers after these words."""
    environment = {
        "_CHESTFED_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["chestfed", *words]),
        "COMP_CWORD": str(len(words)),
    }
    return CliRunner().invoke(app, [], env=environment, prog_name="chestfed").stdout.split()


@pytest.mark.slow
def test_help_has_an_example_and_is_light() -> None:
    program = (
        "import sys\nfrom typer.testing import CliRunner\nfrom chestfed.app.cli import app\n"
        "for words in sys.argv[1:]:\n"
        "    help = CliRunner().invoke(app, [*words.split(), '--help'])\n"
        "    assert help.exit_code == 0 and 'Example:' in help.stdout, words\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    words = [" ".join(words) for words in commands()]
    assert len(words) == 41
    result = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_no_command_prints_the_help(chestfed: Callable[..., Any]) -> None:
    for words in ([], ["site"]):
        bare, asked = chestfed(*words), chestfed(*words, "--help")
        assert bare == asked
        assert (bare.code, bare.err, "Usage" in bare.out) == (0, "", True)


def test_tab_completes_commands_and_choices() -> None:
    assert {"study", "evaluate", "site"} <= set(completed(""))
    assert {"new", "check", "card", "probe", "stats", "table"} == set(completed("site", ""))
    assert completed("evaluate", "model.onnx", "--split", "h") == ["held-out"]
    assert completed("samples", "--size", "") == ["default", "full", "tiny", "large"]
    for words in (["study", "--methods"], ["algorithms"]):
        assert {"codasca", "coda_plus"} <= set(completed(*words, "cod"))
        assert "scaffold" not in completed(*words, "cod")


def test_completion_can_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))  # else that of the process above
    result = CliRunner().invoke(app, ["--install-completion"], prog_name="chestfed")
    assert result.exit_code == 0
    assert "chestfed" in (tmp_path / ".bash_completions/chestfed.sh").read_text()
    assert ".bash_completions/chestfed.sh" in (tmp_path / ".bashrc").read_text()


def choices(option: object) -> set[object]:
    """The values of a `Literal`, without None."""
    return {value for kind in (get_args(option) or ()) for value in choices(kind) or {kind}} - {type(None)}


def test_choices_are_those_of_the_modules() -> None:
    from chestfed.data.sites.config import SPLITS, Blank, Uncertain
    from chestfed.leaves.samples.hospitals import SIZES
    from chestfed.studies.scoring.scorers import Output

    shown = {**get_type_hints(evaluate), **get_type_hints(site_new), **get_type_hints(samples)}
    for option, expected in {
        "protocol": set(PROTOCOLS),
        "split": {*SPLITS, "held-out"},
        "output_type": choices(Output),
        "uncertain": choices(Uncertain),
        "blank": choices(Blank),
        "size": {*SIZES, "large"},
    }.items():
        assert choices(shown[option]) == expected, option


def test_options_are_overrides(monkeypatch: pytest.MonkeyPatch, chestfed: Callable[..., Any]) -> None:
    from chestfed.studies.experiment import loading

    loaded = []

    def load_only(path: Path, overrides: Sequence[str] = (), *more: Sequence[Any]) -> NoReturn:
        loaded.append((list(overrides), load_pipeline(path, overrides, *more)))
        raise ConfigError("loaded")

    load_pipeline = loading.load_pipeline
    monkeypatch.setattr(loading, "load_pipeline", load_only)
    plain = ["--methods", "npa", "--k", "2,3", "--seed", 7, "--device", "cpu", "--set", "federated.window=3"]
    chestfed("study", bundled("pipelines") / "digits_ih.yaml", *plain)
    ((overrides, pipeline),) = loaded
    sugar = ['selected=["npa"]', "seed=7", "k=[2,3]", "runtime.device=cpu"]
    assert overrides == ["federated.window=3", *sugar]
    assert (pipeline.k, pipeline.seed, pipeline.runtime.device) == ([2, 3], 7, "cpu")
    assert [method.name for method in pipeline.selected_methods] == ["npa"]
    assert pipeline.resolve().federated.window == 3


def test_exit_codes_separate_usage_and_files(tmp_path: Path, chestfed: Callable[..., Any]) -> None:
    site = bundled("site_configs") / "chexpert.yaml"
    for words in (
        ["nonsense"],
        ["study", "--nonsense"],
        ["evaluate", "model.onnx", "--site", site, "--split", "all"],
        ["evaluate", "model.onnx", "--site", site, "--model-config", tmp_path / "missing.yaml"],
        ["study", "--seeds", "a"],
        ["study", "--methods", "coda", "--set", "selected=[npa]"],
        ["study", "--seed", "1", "--set", "seed=2"],
        ["samples", "--size", "huge"],
        ["site", "new", "x", "--images", tmp_path, "--layout", "wide"],
        ["site", "new", "x", "--images", tmp_path, "--uncertain", "maybe"],
        ["key", "--new", tmp_path / "key", "--names", site],
        ["key", "--out", tmp_path / "names.json"],
    ):
        called = chestfed(*words)
        assert (called.code, called.out) == (2, ""), words
    for words in (["--k", ""], ["--device", "gpu"], ["--cluster", tmp_path / "missing.yaml"]):  # nothing is run
        called = chestfed("study", *words, "--out", tmp_path / "runs")
        assert (called.code, called.out) == (1, ""), words
    called = chestfed("study", tmp_path / "missing.yaml")
    assert (called.code, called.out) == (1, "")
    assert called.err.startswith("error: ")
    assert "Traceback" not in called.err


@pytest.mark.parametrize("command", [("study",), ("tune", "digits_ih")])
def test_algorithms_without_name_are_refused(command: tuple[str, ...], chestfed: Callable[..., Any]) -> None:
    called = chestfed(*command, "--methods", ",")
    assert called.code == 2
    assert "give names" in called.err


def test_mistyped_model_is_refused_first(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom chestfed.app.cli import main\n"
        "try:\n    main()\nfinally:\n    assert not {'torch', 'pandas'} & set(sys.modules)"
    )
    words = ["evaluate", "runs/nope", "--site", "chexpert"]
    result = subprocess.run([sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.startswith("error: runs/nope: no such file")


def test_site_for_a_pipeline_is_refused(tmp_path: Path, chestfed: Callable[..., Any]) -> None:
    site, pipeline = bundled("site_configs") / "chexpert.yaml", bundled("pipelines") / "source_addition_samples.yaml"
    (tmp_path / "model.onnx").write_bytes(b"")
    for code, *words in (
        (1, "evaluate", tmp_path / "model.onnx", "--site", pipeline, "--data", tmp_path),
        (1, "site", "check", pipeline, "--data", tmp_path),
        (1, "study", "--add-site", pipeline),
        (1, "study", site),
    ):
        called = chestfed(*words)
        assert called.code == code, words
        assert len(called.err.splitlines()) == 1
        assert "describes a site" in called.err if words[-1] == site else "describes a pipeline" in called.err


def test_brackets_in_names_are_printed_as_is(tmp_path: Path, chestfed: Callable[..., Any]) -> None:
    odd = tmp_path / "[red]:100:.yaml"
    assert str(odd) in chestfed("study", odd).err
    file = tmp_path / "[bold]:smile:.key"
    assert str(file) in chestfed("key", "--new", file).out


@pytest.mark.skipif(os.name == "nt", reason="SIGTERM is a POSIX signal")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_with_code_and_advice(monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int) -> None:
    before = signal.signal(number, signal.default_int_handler)  # tests may run where the shell ignores it
    monkeypatch.setattr(Path, "exists", lambda _: signal.raise_signal(number))
    try:
        result = call("site", "stats", "site.yaml")
    finally:
        monkeypatch.undo()
        signal.signal(number, before)
    assert (result.code, result.out) == (code, "")
    assert "run the same command again" in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("error", "plugins", "code", "words"),
    [
        (OSError(28, "No space left on device", "runs/x"), {}, 1, "runs/x: No space left on device"),
        (MemoryError(), {}, 1, "not enough memory"),
        (KeyError("x"), {}, 70, "a bug in chestfed"),
        (KeyError("x"), {"mine": LoadedModule(sys, Path(), {}, "")}, 70, "a bug in mine, or in chestfed"),
    ],
)
def test_uncaught_error_is_message_or_report(
    monkeypatch: pytest.MonkeyPatch, error: Exception, plugins: dict[str, LoadedModule], code: int, words: str
) -> None:
    def fail(_: Path) -> bool:
        raise error

    monkeypatch.setattr("chestfed.core.config.Document.__init__", lambda *_: fail(Path()))
    monkeypatch.setattr("chestfed.core.plugins.loading._loaded", plugins)
    result = call("site", "stats", "chexpert")
    assert (result.code, words in result.err) == (code, True)
    assert ("Traceback" in result.err) == (code == 70)


def test_algorithm_of_a_new_family_is_listed(monkeypatch: pytest.MonkeyPatch, chestfed: Callable[..., Any]) -> None:
    algorithm: Any = replace(ALGORITHMS.find("fedavg"), name="mine", family="one-shot")
    monkeypatch.setitem(ALGORITHMS._registered, "mine", algorithm)
    called = chestfed("algorithms", "--markdown")
    assert called.code == 0
    assert "**one-shot**" in called.out
    assert "| `mine` |" in called.out


def test_readme_counts_rules_and_variants() -> None:
    federated = [spec for spec in ALGORITHMS.built_in.values() if spec.family != "reference"]
    rules = [spec for spec in federated if not spec.variant]
    readme = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    assert f"{len(rules)} federated update rules in {len(federated)} variants" in " ".join(readme.split())
    assert [spec.name for spec in rules if spec.paper.startswith("none")] == ["codasca_minimal"]
    for spec in ALGORITHMS.built_in.values():
        assert not spec.variant or spec.variant.partition(",")[0] in ALGORITHMS.built_in


def test_pipeline_is_found_by_name_anywhere(
    tmp_path: Path, chestfed: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    few = ["--methods", "fedavg", "--seeds", "1", "--dry-run"]
    assert "Digits" in chestfed("study", "digits_ih", *few).out
    for words in (["study", *few], ["federation", "run", "--federation", "trial"]):
        missing = chestfed(*words, "digits_hi.yaml")
        assert missing.code == 1
        assert "Did you mean digits_ih" in missing.err


def test_bundled_site_is_found_anywhere(
    tmp_path: Path, chestfed: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CHESTFED_DATA", raising=False)
    path = "site_configs/synthetic/vindr.yaml"
    for words in (["site", "check", path], ["site", "stats", path], ["evaluate", tmp_path, "--site", path]):
        assert "where are the files of " in chestfed(*map(str, words)).err
    with assert_refused(ConfigError, "no data root", site="vindr"):
        load_site(path)
    assert pipeline_file("pipelines/digits_ih.yaml").is_file()
    (tmp_path / "site_configs" / "synthetic").mkdir(parents=True)
    (tmp_path / path).write_text("site: mine\n")
    assert "site_configs/synthetic/vindr.yaml:1: key" in chestfed("site", "check", path).err


def test_json_has_tables_and_errors(tmp_path: Path, chestfed: Callable[..., Any]) -> None:
    listed = chestfed("datasets", "--json")
    content = json.loads(listed.out)
    assert (listed.code, content["command"], content["exit_code"], content["error"]) == (0, "datasets", 0, None)
    assert "hannover" in [row[0] for row in content["tables"][0]["rows"]]
    failed = chestfed("report", tmp_path / "none", "--json")
    assert (failed.code, json.loads(failed.out)["exit_code"]) == (1, 1)
    assert str(tmp_path / "none") in json.loads(failed.out)["error"]


def test_quiet_prints_the_answer_alone(chestfed: Callable[..., Any]) -> None:
    assert chestfed("datasets", "-q").out.count("\n") == 1
    assert chestfed("doctor", "-q").out.splitlines() == ["chestfed can run here"]


@pytest.mark.parametrize("words", [("datasets", "get"), ("submit",), ("compare",)])
def test_usage_has_one_ellipsis(chestfed: Callable[..., Any], words: tuple[str, ...]) -> None:
    usage = chestfed(*words, "--help").out
    assert "..." in usage
    assert "...." not in usage


def test_rare_options_are_in_help_all_only(chestfed: Callable[..., Any]) -> None:
    for words, rare in ((["study"], "--cluster"), (["evaluate"], "--resamples"), ([], "leaderboard ")):
        short, whole = (chestfed(*words, option) for option in ("--help", "--help-all"))
        assert (short.code, whole.code) == (0, 0)
        assert rare not in short.out
        assert rare in whole.out


@pytest.mark.slow
def test_runs_lists_and_names_studies(tmp_path: Path, chestfed: Callable[..., Any]) -> None:
    for digest in ("aa11", "aa22"):
        write_run(tmp_path / "runs" / f"synthetic-x-{digest}", digest=digest * 3)
    (tmp_path / "runs" / "synthetic-y-aa22").mkdir()
    (tmp_path / "runs" / "synthetic-y-aa22" / "study.json").write_text("{")
    rows = json.loads(chestfed("runs", "--json", folder=tmp_path).out)["result"]["runs"]
    assert chestfed("runs", tmp_path / "runs", folder=tmp_path).out.count(str(tmp_path / "runs" / rows[0]["name"])) == 1
    states = {row["name"]: (row["state"], bool(row["gain"])) for row in rows}
    assert states["synthetic-x-aa11"] == ("finished", True)
    assert states["synthetic-y-aa22"] == ("damaged", False)
    assert chestfed("report", "aa11", folder=tmp_path).code == 0
    assert (tmp_path / "runs" / "synthetic-x-aa11" / "report.html").is_file()
    several = chestfed("report", "aa22", folder=tmp_path)
    assert (several.code, "2 runs in runs have that name" in several.err) == (1, True)
