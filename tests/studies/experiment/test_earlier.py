"""A pipeline whose model file is made by another study says by which commands."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path

import pytest

from chestfed.app.commands.options import known_pipelines
from chestfed.core.bundled import pipeline_file
from chestfed.core.errors import ConfigError
from chestfed.learning.models import FeatureOptions
from chestfed.studies.experiment.earlier import list_earlier_commands
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.running import check
from tests.cases import assert_refused


def needs_a_study(name: str) -> bool:
    model = load_pipeline(pipeline_file(name)).model
    return isinstance(model, FeatureOptions) and str(model.network).startswith("runs/")


def test_commands_of_bundled_pipelines_can_be_run() -> None:
    names = [name for name in known_pipelines() if needs_a_study(name)]
    assert names
    for name in names:
        commands = list_earlier_commands(pipeline_file(name), quick=True)
        *_, last = commands
        program, command, earlier, *words = shlex.split(last)
        assert (program, command, words[-1]) == ("chestfed", "study", "--quick"), name
        settings = [text for option, text in itertools.pairwise(words) if option == "--set"]
        k = load_pipeline(pipeline_file(name)).k[-1]
        assert words[words.index("--k") + 1] == str(k)
        load_pipeline(pipeline_file(earlier), [*settings, f"k=[{k}]"])


def test_missing_model_file_names_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = pipeline_file("phantoms_methods_tuned")
    for quick in (True, False):
        file = load_pipeline(path, ["quick=true"] if quick else [])
        with assert_refused(ConfigError, "no model file") as caught:
            check(file, path, tmp_path)
        (command,) = caught.value.fields["commands"]  # type: ignore[misc]
        assert command.startswith("chestfed study source_addition_samples --methods fedavg --k 5 ")
        assert command.endswith(" --quick") is quick
        assert f"  {command}\n" in str(caught.value)
        assert "--set model.network=runs/FOLDER/k5/model.safetensors" in str(caught.value)
