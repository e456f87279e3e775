"""Sets of partners: which studies run, that they equal those of K, and what partners contribute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError
from chestfed.leaves.subsets.contributions import collect_contributions, describe_contributions
from chestfed.results.evaluation.joining.contributions import Subset
from chestfed.results.tables.collect import read_comparison
from chestfed.results.tables.run_folder import RunFolder
from chestfed.studies.designs.design import list_variants
from chestfed.studies.experiment.loading import load_pipeline
from tests.cases import assert_refused
from tests.command_line import call
from tests.studies.training.tiny_studies import SMALL, TUNED, run_three, write_three

FILE = bundled("pipelines") / "source_addition_samples.yaml"


def test_every_set_is_a_study(tmp_path: Path) -> None:
    file = write_three(tmp_path)
    variants = list_variants(load_pipeline(file, ["subsets={}", "seeds=2"]), file)
    assert [variant.values["subset"] for variant in variants[:4]] == [
        Subset(),
        Subset({"chestxray8"}),
        Subset({"vindr"}),
        Subset({"chestxray8", "vindr"}),
    ]
    assert [variant.pipeline.seed for variant in variants] == [1] * 4 + [2] * 4
    assert [variant.pipeline.k for variant in variants[:4]] == [[1], [2], [2], [3]]
    names = [[Path(entry.config).stem for entry in variant.pipeline.sites] for variant in variants[:4]]
    assert names[2:] == [["chexpert", "vindr"], ["chexpert", "chestxray8", "vindr"]]


def test_another_target_comes_first(tmp_path: Path) -> None:
    file = write_three(tmp_path)
    (first, *_, last) = list_variants(load_pipeline(file, ["subsets={target: vindr}"]), file)
    assert [Path(entry.config).stem for entry in first.pipeline.sites] == ["vindr"]
    assert [Path(entry.config).stem for entry in last.pipeline.sites] == ["vindr", "chexpert", "chestxray8"]


def test_orders_are_sampled_on_request() -> None:
    variants = list_variants(load_pipeline(FILE, ["subsets={pairs: 2}"]), FILE)
    assert len(variants) == len({variant.values["subset"] for variant in variants}) <= 16


@pytest.mark.parametrize(
    ("settings", "kind"),
    [(["subsets={target: nobody}"], "unknown site"), (["subsets={}", "sites=[{config: a.yaml}]", "k=[1]"], "")],
)
def test_impossible_sets_are_refused(tmp_path: Path, settings: list[str], kind: str) -> None:
    file = write_three(tmp_path)
    if kind:
        with assert_refused(ConfigError, kind, site="nobody"):
            list_variants(load_pipeline(file, settings), file)
    else:
        text = file.read_text().splitlines()
        file.write_text("\n".join([*text[:3], "k: null\n"]))
        with assert_refused(ConfigError, "no partner"):
            list_variants(load_pipeline(file, ["subsets={}"]), file)


def test_key_of_a_design_needs_a_value(tmp_path: Path) -> None:
    file = write_three(tmp_path)
    text = file.read_text()
    for key in ("subsets", "held_out"):
        file.write_text(f"{text}\n{key}:\n")
        with assert_refused(ConfigError, "invalid value", key=key, place=f"{file}:{len(text.splitlines()) + 2}"):
            load_pipeline(file)
        assert load_pipeline(file, [f"{key}=null"]).design is None
    (derived := tmp_path / "derived.yaml").write_text(f"extends: {file.name}\n")
    with assert_refused(ConfigError, "invalid value", key="held_out"):
        load_pipeline(derived)
    derived.write_text(f"extends: {file.name}\nheld_out: null\n")
    assert load_pipeline(derived).held_out is None
    file.write_text(f"{text}\nsubsets: {{}}\n")
    assert load_pipeline(file).design is not None


def test_sets_of_several_methods_are_refused(tmp_path: Path) -> None:
    for settings in (["windows=[1,2]"], ["selected=[codasca,coda_plus]"], ["held_out={sites: all}"]):
        with pytest.raises(ConfigError):
            load_pipeline(write_three(tmp_path), ["subsets={}", *settings])


@pytest.fixture(scope="module")
def studies(furnish: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all sets."""
    folder = furnish(tmp_path_factory.mktemp("subsets"))
    write_three(folder)
    run_three(folder, "--set", "subsets={}")
    return folder


def find_run(folder: Path, *names: str) -> RunFolder:
    """The run of seed 1 with these sites' YAMLs."""
    for file in sorted(folder.glob("runs/*three-*/study.json")):
        run = RunFolder(file.parent)
        sites = [Path(entry["config"]).stem for entry in run.configuration["sites"]]
        if sites == list(names) and run.settings.seed == 1 and run.ks == (len(names),):
            return run
    raise AssertionError(names)


@pytest.mark.slow
def test_sets_in_order_equal_the_study_of_k(studies: Path) -> None:
    run_three(studies, "--k", "1,2,3")
    (study,) = (
        run for file in studies.glob("runs/*three-*/study.json") if (run := RunFolder(file.parent)).ks == (1, 2, 3)
    )
    names = ("chexpert", "chestxray8", "vindr")
    for k in (1, 2, 3):
        alone = find_run(studies, *names[:k])
        stored = [run.folder(k) / "predictions.parquet" for run in (study, alone)]
        ours, theirs = (pd.read_parquet(file) for file in stored)
        pd.testing.assert_frame_equal(ours, theirs)


def test_contributions_are_written(studies: Path) -> None:
    (folder,) = studies.glob("runs/*contributions-*")
    table, sets = (pd.read_csv(folder / f"{name}.csv") for name in ("contributions", "sets"))
    values = table.set_index(["partner", "measure"])["value"]
    means = sets.groupby("set")["mean"].mean()
    total = means["chexpert + chestxray8 + vindr"] - means["chexpert"]
    assert values["all partners", "shapley"] == pytest.approx(total, abs=1e-12)
    assert values["chestxray8", "shapley"] + values["vindr", "shapley"] == pytest.approx(total, abs=1e-12)
    assert values["vindr", "added_first"] == pytest.approx(means["chexpert + vindr"] - means["chexpert"], abs=1e-12)
    assert len(sets) == 4
    assert (table["target"] == "chexpert").all()


def test_other_test_images_are_refused(studies: Path, tmp_path: Path) -> None:
    run = find_run(studies, "chexpert")
    other = find_run(studies, "chexpert", "vindr")
    runs = [(Subset(), 1, run.path), (Subset({"vindr"}), 1, other.path)]
    together = collect_contributions(runs, "chexpert", ("vindr",))
    assert "vindr" in describe_contributions(together)
    file = other.folder(2) / "predictions.parquet"
    frame = pd.read_parquet(file)
    cut = tmp_path / "cut.parquet"
    frame.iloc[1:].to_parquet(cut)
    with assert_refused(ConfigError, "other images"):
        collect_contributions([runs[0], (Subset({"vindr"}), 1, cut)], "chexpert", ("vindr",))


def test_dry_run_names_the_finished_set(studies: Path) -> None:
    keys = [word for setting in SMALL for word in ("--set", setting)]
    shown = call("study", "three.yaml", *keys, "--set", "subsets={}", "--dry-run", folder=studies).out
    finished = [line for line in shown.splitlines() if "finished in" in line]
    assert len(finished) == 4
    assert len({line.split("runs/")[1] for line in finished}) == 4


def test_k_of_the_command_line_is_refused() -> None:
    with assert_refused(ConfigError, "no effect", key="k"):
        load_pipeline(FILE, ["subsets={}", "k=[1,3]"])


@pytest.mark.slow
def test_each_set_has_alternatives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one seed, which has no curves over seeds; a gate needs variances, which one patient has not."""
    monkeypatch.setattr("chestfed.results.evaluation.labeled.LEAST_PATIENTS", 2)
    write_three(tmp_path)
    run_three(tmp_path, "--out", "sets", settings=[*SMALL, *TUNED, "subsets.alternatives=true"])
    (path,) = tmp_path.glob("sets/*comparison-*")
    rows = read_comparison(path).gains("alternatives", disease="mean", model="gate")
    assert set(rows["subset"]) == {"chexpert + chestxray8", "chexpert + vindr", "chexpert + chestxray8 + vindr"}
    assert set(rows["reference"]) == {"own data alone"}
    (table,) = tmp_path.glob("sets/*contributions-*/contributions.csv")
    assert "all partners" in set(pd.read_csv(table)["partner"])
