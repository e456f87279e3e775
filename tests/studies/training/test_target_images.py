"""Fewer images of the target, and the hospitals of every set: which studies run, and what their frames say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError
from chestfed.reports.pages.page import make_page
from chestfed.reports.pages.run_figures import draw_gains_by_images
from chestfed.results.tables.collect import read_comparison
from chestfed.studies.designs.design import list_variants
from chestfed.studies.designs.target import limit_target
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.training.data.sites import OWN_TEST, TEST, TRAIN, VALID
from chestfed.studies.training.identity import identify_settings
from tests.cases import assert_refused
from tests.studies.training.tiny_studies import SMALL, read_rows, run_three, write_three


@pytest.fixture(autouse=True, scope="module")
def _two_patients_count() -> Iterator[None]:
    """A gate needs variances, which one patient has not; tiny hospitals have no ten."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("chestfed.results.evaluation.labeled.LEAST_PATIENTS", 2)
        yield


@pytest.fixture(scope="module")
def folder(furnish: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The studies of two numbers of images and two K."""
    folder = furnish(tmp_path_factory.mktemp("images"))
    write_three(folder)
    run_three(folder, "--set", "target_images.counts=[10,all]", "--k", "1,3")
    return folder


def test_each_number_is_a_study(tmp_path: Path) -> None:
    file = write_three(tmp_path)
    loaded = load_pipeline(file, ["target_images={counts: [10, null], target: vindr}", "seeds=2"])
    variants = list_variants(loaded, file)
    assert [variant.values["images"] for variant in variants] == [10, 10, None, None]
    assert {Path(variant.pipeline.sites[0].config).stem for variant in variants} == {"vindr"}
    assert [variant.pipeline.sites[0].training_images for variant in variants] == [10, 10, None, None]


def test_fewer_images_are_a_part_of_more(folder: Path) -> None:
    file = folder / "three.yaml"
    pipeline = load_pipeline(file, SMALL).resolve()
    chosen = []
    for count in (5, 12, None):
        study = limit_target(pipeline, count)
        (site, *others) = read_rows(study, file, folder / str(pipeline.data_root)).sites
        rows = site.find(TRAIN)
        assert count is None or 0 < len(rows) <= count
        assert site.facts["people"]["train"]["images"] == len(rows)
        patients = set(site.table.frame["patient"].iloc[rows])
        assert not patients & set(site.table.frame["patient"].iloc[np.concatenate([site.find(TEST), site.find(VALID)])])
        chosen.append((patients, [part.find(TRAIN).tolist() for part in others]))
    assert chosen[0][0] < chosen[1][0] < chosen[2][0]
    assert chosen[0][1] == chosen[2][1]


def test_quick_study_scores_few_images(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chestfed.studies.training.data.experiment.QUICK_SCORED_IMAGES", 7)
    read = []
    for quick in ("false", "true"):
        pipeline = load_pipeline(folder / "three.yaml", [*SMALL, f"quick={quick}"]).resolve()
        read.append(read_rows(pipeline, folder / "three.yaml", folder / str(pipeline.data_root)).sites)
    for every, few in zip(*read, strict=True):
        roles = [(every.find(role), few.find(role)) for role in (TEST, OWN_TEST)]
        assert any(len(rows) > 7 for rows, _ in roles)
        beyond = 0
        for rows, kept in roles:
            assert len(rows) == len(kept) or 0 < len(kept) <= 7
            assert set(kept) <= set(rows)
            beyond += len(rows) - len(kept)
        assert few.facts["left_out"]["beyond 7 scored images"] == beyond


def test_first_client_of_target_has_fewer(folder: Path) -> None:
    file, three = folder / "three.yaml", []
    pipeline = load_pipeline(file, [*SMALL, "sites.0.clients=2", "k=null"]).resolve()
    for count in (5, None):
        site = read_rows(limit_target(pipeline, count), file, folder / str(pipeline.data_root)).sites[0]
        three.append([site.find(TRAIN, name).tolist() for name in site.clients])
    (few, others), (all_images, same) = three
    assert 0 < len(few) <= 5 < len(all_images)
    assert set(few) < set(all_images)
    assert others == same


def test_more_images_than_there_are_are_refused(folder: Path) -> None:
    file = folder / "three.yaml"
    pipeline = limit_target(load_pipeline(file, SMALL).resolve(), 5000)
    with assert_refused(ConfigError, "too many training images"):
        read_rows(pipeline, file, folder / str(pipeline.data_root))


@pytest.mark.slow
def test_a_seed_draws_other_images(folder: Path) -> None:
    file = folder / "three.yaml"
    pipeline = limit_target(load_pipeline(file, SMALL).resolve(), 12)
    rows = [
        read_rows(pipeline.model_copy(update={"seed": seed}), file, folder / str(pipeline.data_root)).sites[0]
        for seed in (1, 1, 2)
    ]
    first, same, other = (site.table.frame["image"].iloc[site.find(TRAIN)].tolist() for site in rows)
    assert first == same != other


def test_all_images_are_the_same_run(folder: Path) -> None:
    """The key is not in a run's identity, which has the content of the images."""
    pipeline = load_pipeline(folder / "three.yaml", SMALL).resolve()
    machine = read_rows(pipeline, folder / "three.yaml", folder / str(pipeline.data_root)).machine
    assert identify_settings(limit_target(pipeline, 12), machine).digest == identify_settings(pipeline, machine).digest


@pytest.mark.usefixtures("undrawn")
def test_gains_are_within_each_number(folder: Path) -> None:
    (path,) = folder.glob("runs/*comparison-*")
    results = read_comparison(path)
    gains = results.gains("study", disease="mean").set_index("model")
    assert list(gains.index) == ["K=3 with 10 target images", "K=3 with all target images"]
    assert set(gains["reference"]) == {"K=1"}
    aucs = results.view("study", disease="mean").set_index("model")["auc"]
    for words in ("with 10 target images", "with all target images"):
        assert gains["difference"][f"K=3 {words}"] == pytest.approx(aucs[f"K=3 {words}"] - aucs[f"K=1 {words}"])
    page = make_page(results)
    assert "K=3 with 10 target images" in page.html
    (picture,) = (picture for picture in page.pictures if picture.name == "gains-by-images")
    (axes,) = picture.figure.axes
    (line,) = (line for line in axes.get_lines() if line.get_label() == "K=3")
    assert list(line.get_ydata()) == list(gains["difference"])
    assert [text.get_text() for text in axes.get_xticklabels()] == ["10", "all"]
    assert (path / "gains-by-images.svg").is_file()


def test_other_studies_have_no_gain_by_count(folder: Path) -> None:
    (path,) = folder.glob("runs/*comparison-*")
    results = read_comparison(path)
    other = replace(results, estimates=results.estimates.assign(design="comparison"))
    assert draw_gains_by_images(other) == []


@pytest.mark.slow
def test_a_second_start_trains_nothing(folder: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in folder.rglob("*.safetensors")}
    run_three(folder, "--set", "target_images.counts=[10,all]", "--k", "1,3")
    assert {file: file.stat().st_mtime_ns for file in folder.rglob("*.safetensors")} == before


def test_impossible_numbers_are_refused(folder: Path) -> None:
    file = bundled("pipelines") / "source_addition_samples.yaml"
    for counts, other in (
        ("10,10", "k=null"),
        ("0", "k=null"),
        ("all,null", "k=null"),
        ("10", "subsets={}"),
        ("10", "windows=[1,2]"),
        ("10", "held_out={sites: all}"),
    ):
        with pytest.raises(ConfigError):
            load_pipeline(file, [f"target_images.counts=[{counts}]", other])
    with assert_refused(ConfigError, "unknown site", site="nobody"):
        list_variants(load_pipeline(file, ["target_images={counts: [10], target: nobody}"]), file)
