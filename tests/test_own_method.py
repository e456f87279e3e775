"""docs/own_method.md: an algorithm, an objective and a network of one's own, each one file outside the package."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch

import chestfed as api
from chestfed.core.bundled import bundled
from chestfed.learning.algorithms.variables import Point
from chestfed.plugins import Setting
from chestfed.testing import check_algorithm, check_model, check_objective
from tests.command_line import Called

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "docs" / "examples" / "own_method"
PAGE = (ROOT / "docs" / "own_method.md").read_text(encoding="utf-8")
DIGITS = [
    *("collection.clients=2", "federated.window=2", "federated.batch_size=4", "federated.stage_steps=4"),
    *("federated.stages=1", "evaluation.resamples=0", "runtime.threads=1"),
]
SAMPLES = [
    *("samples.size=tiny", "model={name: 'patches:PATCHES', width: 8}", "selected=[fedexp:FedExP]"),
    *("methods.*.objective={name: 'focal:FOCAL', gamma: 1.5}", "k=[1,2]", "pretrain.epochs=0.2", "preprocess.size=64"),
    *("federated.batch_size=2", "federated.window=2", "federated.stage_steps=4", "federated.local_lr=0.01"),
    *("evaluation.resamples=20", "runtime.threads=1"),
]

Command = Callable[..., Called]


@pytest.fixture(scope="module")
def here(home: Path) -> Path:
    for file in EXAMPLES.glob("*.py"):
        shutil.copy(file, home)
    return home


def sets(settings: list[str]) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


def test_page_shows_the_files() -> None:
    for name in ("fedexp", "momentum", "focal", "patches", "compare_fedexp"):
        text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
        assert f"{{literalinclude}} examples/own_method/{name}.py\n" in PAGE
        assert text.count("\n") <= 80


@pytest.mark.slow
def test_files_keep_their_contracts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    assert "the server's step counts every client by its weight, in any order" in check_algorithm("fedexp:FedExP")
    assert "a saved state resumes bit by bit" in check_algorithm("momentum:MOMENTUM")
    assert len(check_objective("focal:FOCAL", gamma=1.5)) == 11
    assert check_model("patches:PATCHES", size=64)


def test_comparison_in_float64_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    example = importlib.import_module("compare_fedexp")
    try:
        assert example.compare() < 1e-12
        spec = example.FEDEXP
        wrong = replace(spec, build=lambda options, setting: replace(spec.build(options, setting), epsilon=0.1))
        monkeypatch.setattr(example, "FEDEXP", wrong)
        assert example.compare() > 1e-6
    finally:
        for name in ("compare_fedexp", "fedexp"):
            sys.modules.pop(name, None)


def test_momentum_lives_across_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    example = importlib.import_module("momentum")
    try:
        rule = example.MOMENTUM.build(example.MomentumOptions(server=0.5, client=0.5), Setting(1, 1.0, clients=1))
        start = Point(torch.zeros(1), torch.zeros(0))
        server, client, points = rule.start_stage(start), rule.start_client(start), []
        for _ in range(2):
            update, client = rule.local_round(rule.message(server), client, lambda primal, dual: (torch.ones(1), dual))
            server = rule.server_round(server, [update], [1.0])
            points.append(rule.current(server).primal.item())
    finally:
        sys.modules.pop("momentum", None)
    # velocities of the client .5 and .75; those of the server .5 and .5 * .5 + .75
    assert points == [-0.5, -1.5]


@pytest.mark.slow
def test_method_is_compared_and_resumes(here: Path, chestfed: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    words = ["study", bundled("pipelines") / "digits_ih.yaml", "--methods", "fedexp:FedExP,codasca", "--seeds", "2"]
    done = chestfed(*words, *sets(DIGITS), "--no-tracking")
    assert done.code == 0, done.err
    (results,) = (here / "runs").glob("comparison-*/results.csv")
    assert set(pd.read_csv(results)["algorithm"]) == {"fedexp:FedExP", "codasca"}
    again = chestfed(*words, *sets(DIGITS), "--no-tracking")
    assert again.out.count("from the earlier run") == 4
    with (here / "fedexp.py").open("a") as file:
        file.write("\n# another line\n")
    changed = chestfed(*words, *sets(DIGITS), "--no-tracking")
    assert changed.code == 0, changed.err
    assert changed.out.count("from the earlier run") == 2  # CODASCA's


@pytest.mark.parametrize("line", re.findall(r"^chestfed study pipelines/digits_ih.yaml (.*)$", PAGE, re.MULTILINE))
def test_every_command_of_the_page_can_run(
    here: Path, chestfed: Command, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(here)
    done = chestfed("study", bundled("pipelines") / "digits_ih.yaml", *line.split(), *sets(DIGITS), "--dry-run")
    assert done.code == 0, done.err


def test_three_plug_ins_work_together(here: Path, chestfed: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    done = chestfed("study", *sets(SAMPLES), "--no-tracking")
    assert done.code == 0, done.err
    assert done.out.count("Does adding hospitals help at") == 1
    (folder,) = (here / "runs").glob("synthetic-source_addition_samples-*")
    study = api.Study.load(folder)
    assert study.configuration["federated"]["algorithm"]["name"] == "fedexp:FedExP"
    scored = chestfed("evaluate", study.folder, "--site", bundled("site_configs") / "synthetic/chexpert.yaml", "--data",
                      "synthetic_hospitals", "--resamples", "20", "--k", "1")  # fmt: skip
    assert scored.code == 0, scored.err
    assert "small transformer" in " ".join(scored.out.split())  # lines are as wide as the terminal
    assert "mean AUC over 5 diseases" in scored.out.splitlines()[-1]
    page = chestfed("report", study.folder)
    assert page.code == 0, page.err
    assert "small transformer" in (study.folder / "report.html").read_text(encoding="utf-8")
    assert chestfed("compare", study.folder / "k1", study.folder / "k2", "--resamples", "20").code == 0


def test_foreign_option_is_refused(here: Path, chestfed: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    for setting, key in (
        ("methods.*.algorithm={name: 'fedexp:FedExP', momentum: 0.5}", "momentum"),
        ("methods.*.objective={name: 'focal:FOCAL', alpha: 0.5}", "alpha"),
        ("model={name: 'patches:PATCHES', growth_rate: 8}", "growth_rate"),
    ):
        done = chestfed("study", *sets([setting]), "--dry-run")
        assert done.code == 1
        assert key in done.err


def test_example_step_is_built_and_mixes(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(here))
    spec = importlib.import_module("mixing").MIXING
    assert spec.build({"server_mixing": 1.0}, 0) is None
    before, after = Point(torch.zeros(3), torch.ones(1)), Point(torch.ones(3), torch.zeros(1))
    mixed, _ = spec.build({"server_mixing": 0.25}, 0).move(before, after, None)
    assert (mixed.primal.tolist(), mixed.dual.tolist()) == ([0.25] * 3, [0.75])


STEP = "        local.primal.sub_(gradient, alpha=self.local_lr)\n"
NEW = "        return Point(server.primal + step * mean, server.dual)\n"
LOSS = "        return per_disease.mean()\n"
#: A file, what is changed in it, and the words by which a study names the mistake.
MISTAKES = [
    ("fedexp", "from pydantic", "import nosuchpackage\nfrom pydantic", "nosuchpackage"),
    ("fedexp", "class FedExPOptions", "raise SystemExit(3)\nclass FedExPOptions", "wrong.py:10: SystemExit"),
    ("fedexp", "class FedExPOptions(Options)", "class FedExPOptions", "derived from chestfed.plugins.Options"),
    ("fedexp", "FedExP(setting.window, setting.local_lr, options.epsilon)", "None", "build made a NoneType"),
    ("fedexp", "setting.window", "setting.windw", "wrong.py:40, in <lambda>: AttributeError"),
    ("fedexp", "def server_round", "def server_rond", "rename it to server_round"),
    ("fedexp", "message, client, gradients", "message", "client_step(self, local, message, client, gradients)"),
    ("fedexp", STEP, "        raise RuntimeError('mine')\n", "wrong.py:24, in client_step: RuntimeError: mine"),
    ("fedexp", STEP, STEP.replace("gradient,", "gradient[:5],"), "wrong.py:24, in client_step: RuntimeError"),
    ("fedexp", STEP, STEP.replace("self.local_lr", "float('nan')"), "correct the step of FedExP"),
    ("fedexp", NEW, "        return None\n", "server_round returned None"),
    ("fedexp", NEW, NEW.replace("server.primal +", "server.primal.double() +"), "primal as torch.float64"),
    ("fedexp", NEW, NEW.replace("* mean", "* mean[:1] + mean[:3]"), "must match the size"),
    ("fedexp", NEW, NEW.replace("mean,", "float('nan') * mean,"), "after FedExP.server_round"),
    ("focal", "kind=\"minimization\"", "kind=\"minimisation\"", "no built-in algorithm takes its kind"),
    ("focal", "labels, extra, dual)", "labels)", "loss(self, logits, labels, extra, dual)"),
    ("focal", LOSS, "        return per_disease\n", "is torch.float32 [1]"),
    ("focal", LOSS, "        return None\n", "is a NoneType"),
    ("focal", LOSS, LOSS.replace("()", "().detach()"), "without a gradient"),
    ("focal", LOSS, LOSS.replace("()", "() * float('nan')"), "the loss of the first batch"),
    ("focal", LOSS, LOSS.replace("()", "() + (0 * logits).sum().sqrt()"), "the gradient of the first batch"),
]  # fmt: skip


def test_mistake_in_own_part_is_named(tmp_path: Path, chestfed: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """One message without a traceback, and without the advice to lower a step size that no step was taken with."""
    words = ["study", bundled("pipelines") / "digits_ih.yaml", "--no-tracking", "--seeds", "1", *sets(DIGITS)]
    for number, (part, old, new, expected) in enumerate(MISTAKES):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        for name in ("fedexp", "focal"):
            shutil.copy(EXAMPLES / f"{name}.py", folder)
        text = (EXAMPLES / f"{part}.py").read_text(encoding="utf-8")
        assert old in text
        (folder / "wrong.py").write_text(text.replace(old, new, 1), encoding="utf-8")
        own = {
            "fedexp": "fedexp:FedExP",
            "focal": "focal:FOCAL",
            part: f"wrong:{'FedExP' if part == 'fedexp' else 'FOCAL'}",
        }
        done = chestfed(*words, "--methods", own["fedexp"], "--set", f"methods.*.objective={own['focal']}")
        said = " ".join(done.err.split())
        assert (done.code, expected in said) == (1, True), said
        assert "Traceback" not in said
        assert ("Lower federated.local_lr" in said) == ("correct the step" in expected), said
