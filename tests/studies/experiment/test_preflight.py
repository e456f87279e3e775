"""What cannot work is refused before anything runs, all of it in one message."""

from __future__ import annotations

from pathlib import Path

import pytest

from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError
from chestfed.learning.algorithms import ALGORITHMS
from chestfed.learning.models import network_options
from chestfed.studies.designs.design import list_variants
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.pipeline import Pipeline, Runtime
from chestfed.studies.experiment.rules import check_runs
from tests.cases import assert_refused
from tests.command_line import call

DIGITS = bundled("pipelines") / "digits_ih.yaml"


def runs(algorithms: list[str], *settings: str, windows: tuple[int, ...] = (4,)) -> list[Pipeline]:
    compared = [f"windows={list(windows)}", "seeds=2"]
    loaded = load_pipeline(DIGITS, [*settings, *compared], methods=algorithms)
    return [variant.pipeline for variant in list_variants(loaded, DIGITS)]


def refused(*arguments: str) -> str:
    result = call("study", DIGITS, "--no-tracking", *arguments)
    assert result.code == 1
    assert "Traceback" not in result.err
    return " ".join(result.err.split())


def test_every_bad_run_is_named() -> None:
    with pytest.raises(ConfigError) as error:
        check_runs(runs(["codasca", "admm", "pdmm"], windows=(1, 8)) + runs(["gossip"], "model.norm=batch"))
    head, eta, norm = str(error.value).splitlines()
    assert head == "invalid configuration; nothing was started:"
    assert eta == (
        "admm, window 1, K=5: algorithm.eta: auto: eta has no tuning-free value for admm with window 1 and 2 "
        "neighbors: set a number, or take a larger window"
    )
    assert norm.startswith("gossip, window 4, K=5: without a server nobody averages")
    assert norm.endswith("set model.norm: group")


def test_every_k_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "graph.txt").write_text("0 1\n2 3\n")
    settings = ["selected=[pdmm]", f"methods.pdmm.algorithm.topology={tmp_path / 'graph.txt'}", "k=[3,4]"]
    with pytest.raises(ConfigError) as error:
        check_runs([load_pipeline(DIGITS, settings).resolve()])
    _, three, four = str(error.value).splitlines()
    assert three.startswith("pdmm, window 16, K=3: algorithm.topology: edge 2 3: with 3 clients the nodes are 0 to 2")
    assert four.startswith("pdmm, window 16, K=4: algorithm.topology: no path leads from node 0 to 2, 3")


@pytest.mark.parametrize(
    ("settings", "model"),
    [
        ([], "tests.learning.models.tiny_transformer:TINY"),
        (["selected=[local_scgdam]"], "small"),
        (["runtime.compile=true"], "small"),
    ],
)
def test_recompute_only_where_equal(settings: list[str], model: str) -> None:
    run = load_pipeline(DIGITS, ["runtime.recompute=true", *settings]).resolve()
    run = run.model_copy(update={"model": network_options(model)})
    with assert_refused(ConfigError, "invalid configuration", keys=["runtime.recompute"]):
        check_runs([run])


def test_shared_problem_is_reported_once() -> None:
    with pytest.raises(ConfigError) as error:
        check_runs(runs(["pdmm", "gossip"], "model.norm=batch"))
    (_, only) = str(error.value).splitlines()
    assert only.startswith("pdmm, window 4, K=5; gossip, window 4, K=5: without a server")


def test_missing_gpu_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with assert_refused(ConfigError, "no such device", device="cuda:2"):
        prepare_machine(Runtime(device="cuda:2"))


def test_what_works_is_not_refused() -> None:
    check_runs(runs(list(ALGORITHMS.built_in), windows=(4, 8)))


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_nothing_starts_after_problems(dry: list[str], tmp_path: Path) -> None:
    out = tmp_path / "runs"
    message = refused("--methods", "codasca,admm", "--set", "windows=[1,8]", "--out", str(out), *dry)
    assert "admm, window 1, K=5: algorithm.eta: auto" in message
    assert not out.exists()


def test_a_held_out_study_is_looked_at_too(tmp_path: Path) -> None:
    pipeline = bundled("pipelines") / "leave_one_site_out.yaml"
    settings = ["selected=[pdmm]", "model.norm=batch", "methods.pdmm.algorithm.eta=1.0"]
    sets = [part for setting in settings for part in ("--set", setting)]
    result = call("study", pipeline, "--dry-run", *sets, folder=tmp_path)
    assert result.code == 1
    assert "pdmm" in result.err
    assert "set model.norm: group" in " ".join(result.err.split())
    assert not list(tmp_path.iterdir())
