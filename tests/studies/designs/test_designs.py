"""Designs: one of another distribution is a file, and Python runs those that the command runs, with equal folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import chestfed
from chestfed.app.commands.machine.schema import schemas
from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError
from chestfed.studies.designs.design import DESIGNS, Finished, list_variants
from chestfed.studies.experiment.loading import load_pipeline
from tests.cases import assert_refused
from tests.command_line import call
from tests.studies.training.test_resume_algorithms import SETTINGS
from tests.studies.training.tiny_studies import SMALL

DIGITS, SAMPLES = (bundled("pipelines") / f"{name}.yaml" for name in ("digits_ih", "source_addition_samples"))
#: A design in one file: the study with each value of weight decay.
SEVENTH = """
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from chestfed.core.plugins import Options
from chestfed.results.tables.run_folder import RunFolder
from chestfed.studies.designs.design import Design, DesignSpec, Done, Finished, Takes, Variant


class Decays(Options):
    values: list[float]


def test_incomplete_design_names_what_lacks() -> None:
    class Incomplete(Design):
        pass

    with pytest.raises(TypeError, match=r"Incomplete.*finish.*variants"):
        Incomplete(None, Path())  # type: ignore[abstract,arg-type]


class DecaysDesign(Design):
    @cached_property
    def variants(self) -> list[Variant]:
        return [self._change(value) for value in self.file.design.values]

    def _change(self, value: float) -> Variant:
        federated = self.pipeline.federated.model_copy(update={"weight_decay": value})
        return Variant(self.pipeline.model_copy(update={"federated": federated}), f"decay {value:g}")

    def finish(self, done: Sequence[Done], out: Path) -> Finished:
        means = [RunFolder(one.result.folder).row().mean.value for one in done]
        folder = out / "decays"
        folder.mkdir(exist_ok=True)
        lines = [f"{one.variant.label},{mean}" for one, mean in zip(done, means, strict=True)]
        (folder / "decays.csv").write_text("\\n".join(lines))
        return Finished(folder, f"{len(done)} decays", tuple(one.result for one in done))


ABOUT = "train with each weight decay"
DECAYS = DesignSpec("decays", DecaysDesign, Decays, takes=frozenset({Takes.COLLECTION}), description=ABOUT)
"""


def add_design(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the design as a distribution."""
    (folder / "seventh.py").write_text(SEVENTH)
    about = folder / "seventh-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: seventh\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[chestfed.designs]\ndecays = seventh:DECAYS\n")
    monkeypatch.syspath_prepend(folder)


def read_files(folder: Path) -> dict[str, bytes]:
    """Tables, models, predictions and results below a folder."""
    kinds = ("*.csv", "model.safetensors", "predictions.parquet", "result.json", "comparison.json")
    return {str(file.relative_to(folder)): file.read_bytes() for kind in kinds for file in folder.rglob(kind)}


def as_options(settings: list[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def test_design_of_another_package_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_design(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    settings = [*SETTINGS, "k=[1]", "seeds=1", "selected=[fedavg]", "decays={values: [0.0, 0.5]}"]
    assert "decays" in schemas()["pipeline"]["properties"]
    called = call("study", DIGITS, *as_options(settings), "--no-tracking", "--out", "runs")
    assert called.code == 0, called.err
    assert called.out.splitlines()[-1] == "2 decays"
    assert (tmp_path / "runs/decays/decays.csv").read_text().startswith("decay 0,0.")
    python = chestfed.run("digits_ih", overrides=settings, out="python", quiet=True)
    assert isinstance(python, Finished)
    assert read_files(tmp_path / "runs") == read_files(tmp_path / "python")
    with assert_refused(ConfigError, "unknown key", key="decays.value", suggestion="values"):
        load_pipeline(DIGITS, [*settings[:-1], "decays={values: [0.0], value: 1}"])
    with assert_refused(ConfigError, "invalid value", key="decays"):
        load_pipeline(DIGITS, [*settings, "seeds=2"])


def test_every_design_has_variants() -> None:
    """Without a key every K is one study."""
    assert {"comparison", "held_out", "target_images", "alternatives"} <= {*DESIGNS.built_in}
    assert len(list_variants(load_pipeline(SAMPLES), SAMPLES)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pipeline", "settings"),
    [
        ("leave_one_site_out", ["held_out.sites=[vindr,chexpert]"]),
        ("source_addition_samples", ["target_images={counts: [10, null]}", "k=[1,3]"]),
    ],
)
def test_python_writes_what_the_command_writes(
    pipeline: str,
    settings: list[str],
    furnish: Callable[[Path], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(furnish(tmp_path))
    settings = [*SMALL, *settings]
    called = call("study", pipeline, *as_options(settings), "--no-tracking", "--out", "runs")
    assert called.code == 0, called.err
    finished = chestfed.run(pipeline, overrides=settings, out="python", quiet=True)
    assert read_files(tmp_path / "runs") == read_files(tmp_path / "python")
    assert finished.folder.parent.name == "python"
