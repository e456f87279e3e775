"""Ranks with other settings, code or data are refused before the first round, on all ranks."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chestfed.core.errors import ConfigError
from chestfed.learning.engines.declaration import rank
from chestfed.learning.engines.ranks.link import Link
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.training import identity
from chestfed.studies.training.data.collection import load_collection
from chestfed.studies.training.data.experiment import Experiment
from chestfed.studies.training.deployments import agreement
from chestfed.studies.training.deployments.agreement import Description, agree, describe_data, describe_studies
from tests.command_line import Called, call
from tests.learning.engines.forked_ranks import fork_ranks, run_ranks
from tests.studies.training.test_resume_algorithms import make_pipeline

SMALL = ["model.blocks=[1]", "federated.window=2", "federated.stage_steps=4", "runtime.threads=1", "windows=[]"]
STUDY = ("study", "digits_ih", "--methods", "coda", "--seeds", "1", "--no-tracking")
MACHINE = replace(prepare_machine(make_pipeline("coda").runtime), threads=1)


def _study(out: Path, *of_rank_1: str) -> Called:
    """The command as a rank gives it, rank 1 with further words."""
    words = [word for setting in SMALL for word in ("--set", setting)]
    return call(*STUDY, *words, "--out", out / str(rank()), *(of_rank_1 if rank() else ()))


def test_ranks_with_other_options_are_refused(tmp_path: Path) -> None:
    other = ("--set", "federated.local_lr=0.3")
    first, second = fork_ranks(tmp_path, 2, partial(_study, tmp_path / "runs", *other))
    assert (first.code, second.code) == (1, 1)
    assert "rank 1: federated.local_lr is 0.3" in first.err
    assert not list(tmp_path.glob("runs/*/digits*"))


def test_ranks_with_other_places_train(tmp_path: Path) -> None:
    """Each rank has an --out of its own, as on machines without a common disk; only rank 0 writes there."""
    other = ("--cache", str(tmp_path / "cache"), "--set", "engine={name: torchrun, timeout: 90}", "--device", "cpu")
    first, second = fork_ranks(tmp_path, 2, partial(_study, tmp_path / "runs", *other))
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert list(tmp_path.glob("runs/0/digits*/k5/result.json"))
    assert not list(tmp_path.glob("runs/1/digits*"))


def _change_nothing(patch: pytest.MonkeyPatch) -> None:
    pass


def _change_torch(patch: pytest.MonkeyPatch) -> None:
    installed = identity.installed_packages() | {"torch": "1.0"}
    patch.setattr(identity, "installed_packages", lambda: installed)


def _change_results_version(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(agreement, "RESULTS_VERSION", 0)


def _change_code(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(agreement, "identify_code", lambda module: "edited")


def _describe(change: Callable[[pytest.MonkeyPatch], None], *settings: str, threads: int = 1) -> Description:
    """What a rank describes of two studies after a change."""
    pipelines = {"coda": make_pipeline("coda", *settings), "seed 2": make_pipeline("coda", *settings, "seed=2")}
    with pytest.MonkeyPatch.context() as patch:
        change(patch)
        return describe_studies(pipelines, replace(MACHINE, threads=threads))


def _describe_images(digits: Experiment, change: str) -> Description:
    """The digits with another label of a client, another order of the test images, or another key."""
    client, test = digits.clients[1], digits.test
    if change == "label":
        labels = client.labels.copy()
        labels[0] = 1 - labels[0]
        client = replace(client, labels=labels)
    if change == "order":
        test = replace(test, labels=np.ascontiguousarray(test.labels[::-1]))
    if change == "key":
        test = replace(test, key="another")
    return describe_data([replace(digits, clients=(digits.clients[0], client), test=test)])


def _agree_on_each(descriptions: list[tuple[Description, Description]], link: Link) -> list[Any]:
    outcomes: list[Any] = []
    for pair in descriptions:
        try:
            outcomes.append(agree(link, pair[link.rank]))
        except ConfigError as error:
            digests = re.findall("[0-9a-f]{16}", str(error))  # they tell people nothing
            outcomes.append((error.kind, error.fields["ranks"], error.fields["keys"], digests))
    return outcomes


def test_other_code_or_data_are_refused(tmp_path: Path) -> None:
    digits = load_collection(make_pipeline("coda"), None, MACHINE)
    code, data = _describe(_change_nothing), _describe_images(digits, "")
    cases = {
        "torch": (code, _describe(_change_torch)),
        "results version": (code, _describe(_change_results_version)),
        "files of chestfed": (code, _describe(_change_code)),
        "key of names": (data, _describe_images(digits, "key")),
        f"training images of {digits.clients[1].name}": (data, _describe_images(digits, "label")),
        f"test images 0, {digits.test.site}": (data, _describe_images(digits, "order")),
    }
    first, second = run_ranks(tmp_path, 2, partial(_agree_on_each, list(cases.values())))
    assert first == [("ranks differ", [1], [key], []) for key in cases]
    assert second == [[]] * len(cases)  # which hears of it with its next note


def test_other_threads_are_reported(tmp_path: Path) -> None:
    both = _describe(_change_nothing), _describe(_change_nothing, threads=2)
    ((text,),), others = run_ranks(tmp_path, 2, partial(_agree_on_each, [both]))
    assert "rank 1: threads is 2 (rank 0: 1)" in text
    assert others == [[]]


def test_paths_of_ranks_may_differ() -> None:
    """Files that only rank 0 reads are compared by name."""
    places = [_describe(_change_nothing, f"model.initial_weights={place}/w.safetensors") for place in ("/a", "/b")]
    assert places[0] == places[1]


@pytest.mark.parametrize("setting", ["evaluation.resamples=51", "title=other", "runtime.loader_workers=3"])
def test_settings_that_name_no_run_are_compared(setting: str) -> None:
    one, other = (_describe(_change_nothing, *settings)["settings"] for settings in ([], [setting]))
    assert [key for key in one if one[key] != other[key]] == [setting.partition("=")[0]]


def test_other_list_of_studies_differs() -> None:
    pipelines = {str(seed): make_pipeline("coda", f"seed={seed}") for seed in (1, 2)}
    one, both = ({name: pipelines[name] for name in names} for names in (["1"], ["1", "2"]))
    assert describe_studies(one, MACHINE)["studies"] != describe_studies(both, MACHINE)["studies"]
