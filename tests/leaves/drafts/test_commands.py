"""From a folder and a table to a study with one hospital more, by commands alone."""

from __future__ import annotations

import csv
import json
import re
import tempfile
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from chestfed.app.cli import app
from chestfed.core.bundled import bundled
from chestfed.core.config import Document
from chestfed.core.errors import ChestfedError, ConfigError, SiteError
from chestfed.data.sites import SiteTable, load_site_config, open_site
from chestfed.data.sites.tables.codebook import read_book, write_book
from chestfed.leaves.drafts.writing import _render
from chestfed.leaves.samples.extra import SHAPES, write_extra
from tests.cases import assert_refused
from tests.command_line import timed_once
from tests.studies.training import tiny_studies

#: The shapes whose labels are words.
TERMS = ("delimited", "list", "long", "dicom")
SMALL = [part for setting in tiny_studies.SMALL for part in ("--set", setting)]


@pytest.fixture(scope="module")
def hospitals(furnish: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the five tiny hospitals; `add_site` draws further ones."""
    return furnish(tmp_path_factory.mktemp("hospitals"))


@pytest.fixture
def home(hospitals: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands run in."""
    monkeypatch.chdir(hospitals)
    monkeypatch.delenv("CHESTFED_DATA", raising=False)
    return hospitals


def chestfed(*arguments: object) -> str:
    """What a command prints; its error is raised."""
    with timed_once() if "--dry-run" in arguments else nullcontext():
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result.output


def add_site(home: Path, shape: str, *more: object) -> str:
    """What `site new` prints of the hospital of a shape; its YAML and code book are written anew.

    Denials and doubts of the samples' findings are confirmed as proposed.
    """
    written = write_extra(home / "mine", f"st-{shape}", shape, size="tiny")
    (home / f"site_configs/st-{shape}.codes.csv").unlink(missing_ok=True)
    labels = () if written.table is None else ("--labels", written.table)
    answers = {"--uncertain": "missing", "--blank": "negative" if shape in TERMS else "missing"}
    more = (*more, *(word for key, value in answers.items() if key not in more for word in (key, value)))
    more = (*more, *(("--column", "ignore=Rippenfraktur") if shape == "wide" else ("--no-split",)))
    if shape == "readers" and "--raters" not in more:
        more = (*more, "--raters", "any")
    command = ("site", "new", f"st-{shape}", "--images", written.pictures, *labels, "--no-input", "--force", *more)
    try:
        return chestfed(*command)
    except SystemExit:
        out = Path(more[more.index("--out") + 1]) if "--out" in more else home / "site_configs"  # type: ignore[arg-type]
        codes, _ = read_book(out / f"st-{shape}.codes.csv")
        rows = [code if code.is_known else replace(code, meaning=code.proposal, confirmed="yes") for code in codes]
        write_book(out / f"st-{shape}.codes.csv", rows)
    return chestfed(*command)


def list_sites(shapes: Iterable[str]) -> list[str]:
    """The options that add them to a study."""
    return [word for shape in shapes for word in ("--add-site", f"site_configs/st-{shape}.yaml")]


def open_added(home: Path, shape: str) -> SiteTable:
    return open_site(load_site_config(home / f"site_configs/st-{shape}.yaml"), home / "nowhere")


@pytest.mark.slow_but("wide", "dicom")
@pytest.mark.parametrize("shape", SHAPES)
def test_folder_and_table_become_figures(home: Path, shape: str) -> None:
    output = add_site(home, shape)
    assert "SYNTHETIC: Loaded " in output
    stats = chestfed("site", "stats", f"site_configs/st-{shape}.yaml")
    assert "train" in stats


@pytest.mark.slow
def test_added_hospitals_extend_k(home: Path) -> None:
    for shapes in (SHAPES, ["wide"]):
        for shape in shapes:
            add_site(home, shape)
        plan = chestfed("study", *list_sites(shapes), "--dry-run", *SMALL)
        for shape in shapes:
            assert re.search(rf"st-{shape}\b", plan)
        ks = [int(k) for k in re.findall(r"stage 2, K=(\d+) ", plan)]
        assert ks == list(range(1, 6 + len(shapes)))


@pytest.mark.slow_but("wide", "readers")
@pytest.mark.parametrize("shape", SHAPES)
def test_labels_are_those_of_the_samples(home: Path, shape: str) -> None:
    """The reference is what the films say, not what is written in the table."""
    from chestfed.core.diseases import DISEASES
    from chestfed.leaves.samples.extra import draw_extra

    add_site(home, shape, "--uncertain", "positive")
    table = open_added(home, shape)
    films = draw_extra(f"st-{shape}", shape, size="tiny")
    prefix = {"dicom": "dicom/"}.get(shape, "")
    by_image = {f"{prefix}{image}": row for image, row in table.frame.set_index("image").iterrows()}
    frontal = {name: film for name, film in films.items() if film.view != "lateral" or shape == "readers"}
    assert set(by_image) == set(frontal)
    for name, film in frontal.items():
        row = by_image[name]
        for disease in DISEASES:
            label = film.labels[disease]
            doubts = label == -1 and shape in ("wide", "delimited", "list", "dicom")
            assert row[disease] == float(label == 1 or doubts), (name, disease)
        if shape != "readers":
            assert row["view"] == film.view
    patients = {film.patient.number: by_image[name]["patient"] for name, film in frontal.items()}
    assert len(set(patients.values())) == len(patients)


@pytest.mark.slow_but("wide", "dicom")
@pytest.mark.parametrize("shape", SHAPES)
def test_output_and_yaml_name_no_patient(home: Path, shape: str) -> None:
    output = add_site(home, shape)
    output = "\n".join(line for line in output.splitlines() if not re.match(r" +row \d+ -> ", line))
    written = (home / f"site_configs/st-{shape}.yaml").read_text(encoding="utf-8")
    frame = open_added(home, shape).frame
    names = {*frame["patient"], *frame["study"], *(Path(image).stem for image in frame["image"])}
    names = {name for name in names if len(name) > 3 and not name.startswith("view")}
    assert len(names) > 20 or shape == "long"
    for name in names:
        assert name not in output
        assert name not in written


@pytest.mark.slow
def test_study_runs_with_all_shapes(home: Path, tmp_path: Path) -> None:
    for shape in SHAPES:
        add_site(home, shape)
        assert "passed" in chestfed("site", "check", f"site_configs/st-{shape}.yaml")
    ks = (1, 5 + len(SHAPES))
    study = ["study", *list_sites(SHAPES), "--set", f"k={list(ks)}", *SMALL, "--no-tracking", "--out", str(tmp_path)]
    output = chestfed(*study)
    assert all(f"st-{shape}" in output for shape in SHAPES)
    (folder,) = tmp_path.glob("synthetic-source_addition_samples-*")
    with (folder / "table.csv").open(encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert {row["k"] for row in table} == {*map(str, ks)}
    assert all((folder / f"k{k}" / "model.safetensors").exists() for k in ks)
    rounds = [json.loads(line) for line in (folder / f"k{ks[-1]}" / "rounds.jsonl").read_text().splitlines()]
    assert all(entry["images"] == 4 * ks[-1] for entry in rounds)  # every hospital takes part in every round
    assert "from the earlier run" in chestfed(*study)


@pytest.mark.slow
def test_dry_run_finds_a_site_below_the_data(home: Path, tmp_path: Path, copied_hospitals: None) -> None:
    (tmp_path / "synthetic-st-list").symlink_to(home / "mine/synthetic-st-list")
    output = add_site(home, "list", "--data", home / "mine", "--out", tmp_path)
    site, data = str(tmp_path / "st-list.yaml"), ["--data", tmp_path]
    assert f"chestfed study --add-site {site} --data {home / 'mine'}" in output.replace("'", "")
    assert "st-list" in chestfed("study", "--add-site", site, "--dry-run", *data, *SMALL)
    assert [path.name for path in tmp_path.glob("synthetic-*")] == ["synthetic-st-list"]
    (tmp_path / "synthetic-chexpert").mkdir()
    with assert_refused(ChestfedError, "another folder in its place", folder="synthetic-chexpert"):
        chestfed("study", "--add-site", site, *data, *SMALL)


@pytest.mark.slow
def test_real_among_synthetic_is_noted(home: Path, tmp_path: Path) -> None:
    """The marks of the phantoms say "no patients"; that would be wrong of this one."""
    written = write_extra(tmp_path / "data", "real", "wide", size="tiny")
    for mark in written.folder.glob("SYNTHETIC*"):
        mark.unlink()
    new = ["site", "new", "real", "--images", written.pictures, "--labels", written.table, "--uncertain", "missing"]
    new += ["--column", "ignore=Rippenfraktur"]
    assert "SYNTHETIC" not in chestfed(*new, "--no-input", "--out", tmp_path)
    plan = chestfed("study", "--add-site", tmp_path / "real.yaml", "--dry-run", *SMALL)
    assert "note: real: real; synthetic: chexpert" in plan
    assert "The results say PARTLY SYNTHETIC" in plan
    assert "note:" not in chestfed("study", "--dry-run", *SMALL)


def test_printed_split_tests_the_own_site(home: Path, tmp_path: Path) -> None:
    assert "`sites` with `test_fraction: 0.3` and `evaluation.split: test`" in add_site(home, "list")
    assert "`sites` and `evaluation.split: test`" in add_site(home, "wide")
    path = str(home / "site_configs/st-wide.yaml")
    chexpert = bundled("site_configs") / "synthetic" / "chexpert.yaml"
    sites = f"sites=[{{config: {path}}}, {{config: {chexpert}}}]"
    command = ["study", "--set", sites, "--set", "k=[1,2]", *SMALL, "--no-tracking", "--out", tmp_path / "runs"]
    command += ["--data", tmp_path / "data"]
    with assert_refused(ConfigError, "no test image", site="st-wide") as caught:
        chestfed(*command)
    assert "set evaluation.split: test" in str(caught.value)
    assert not list(tmp_path.glob("data/synthetic-*"))  # nothing was drawn
    assert "st-wide" in chestfed(*command, "--set", "evaluation.split=test", "--dry-run")


def test_disease_of_no_study_is_noted(home: Path) -> None:
    few = ("--set", "diseases=[cardiomegaly,edema,consolidation,atelectasis]")
    plan = chestfed("study", "--dry-run", *few, *SMALL)
    assert re.search(r"note: labeled, but not among the study's diseases.*chexpert: Pleural Effusion", plan, re.DOTALL)
    assert "not among the study's diseases" not in chestfed("study", "--dry-run", *SMALL)


def write_site(home: Path, name: str, old: str, new: str) -> Path:
    """The YAML of a hospital with something changed."""
    text = (home / "site_configs/st-list.yaml").read_text(encoding="utf-8")
    assert old in text
    path = home / f"site_configs/{name}.yaml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    return path


def test_taken_name_is_refused(home: Path) -> None:
    add_site(home, "list")
    path = write_site(home, "taken", "site: st-list", "site: vindr")
    with assert_refused(ConfigError, "duplicate site") as caught:
        chestfed("study", "--add-site", path, "--dry-run", *SMALL)
    assert caught.value.fields["sites"].count("vindr") == 2


def change_book(home: Path, old: str, new: str) -> Path:
    """The YAML of a hospital in whose code book something is changed."""
    add_site(home, "wide")
    path = home / "site_configs/st-wide.codes.csv"
    text = path.read_text(encoding="utf-8")
    assert re.search(old, text, re.MULTILINE)
    path.write_text(re.sub(old, new, text, flags=re.MULTILINE), encoding="utf-8")
    return home / "site_configs/st-wide.yaml"


def test_site_without_training_is_refused(home: Path) -> None:
    site = change_book(home, "^(,split,training,.*),train,", r"\1,valid,")
    with assert_refused(ConfigError, "no training image", clients=["st-wide"]):
        chestfed("study", "--add-site", site, "--dry-run", *SMALL)


@pytest.mark.slow
def test_site_without_labels_is_refused(home: Path) -> None:
    site = change_book(home, "^(,label,.*),(?:positive|negative|uncertain),", r"\1,blank,")
    with pytest.raises(SiteError) as caught:
        chestfed("study", "--add-site", site, "--dry-run", *SMALL)
    assert {problem.kind for problem in caught.value.problems} == {"one class"}


def test_collection_takes_no_hospital(home: Path) -> None:
    add_site(home, "list")
    pipeline = bundled("pipelines") / "digits_ih.yaml"
    with assert_refused(ConfigError, "no sites"):
        chestfed("study", pipeline, "--add-site", "site_configs/st-list.yaml", "--dry-run")


@pytest.mark.slow
def test_root_is_found_from_any_folder(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_site(home, "list", "--data", "mine", "--out", "mine")
    text = (home / "mine/st-list.yaml").read_text(encoding="utf-8")
    assert "root: synthetic-st-list" in text
    monkeypatch.chdir(tmp_path)
    data = ["--data", home / "synthetic_hospitals"]
    plan = chestfed("study", "--add-site", home / "mine/st-list.yaml", "--dry-run", *data, *SMALL)
    assert "st-list" in plan
    assert chestfed("site", "stats", home / "mine/st-list.yaml", "--data", home / "mine")


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]))


@given(st.lists(TEXTS | st.sampled_from(["1e3", "no", "- a", "{x}", "a: b", "#", "~"])))
def test_any_text_comes_back_from_the_yaml(texts: list[str]) -> None:
    entries = {f"k{number}": (text, "c" * 100) for number, text in enumerate(texts)}
    entries |= {"long": (texts, "why\nnot"), "map": (dict.fromkeys(texts, "x"), "")}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.yaml")
        path.write_text("\n".join(_render({"a": entries})) + "\n", encoding="utf-8")
        data = Document(path).data["a"]
    assert data["long"] == texts
    assert [data[f"k{number}"] for number in range(len(texts))] == texts
    assert list(data["map"]) == list(dict.fromkeys(texts))
