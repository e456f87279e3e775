"""From an untouched folder and table to a study with one hospital more, by commands alone."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from chestfed.commands.site import new
from chestfed.core.bundled import bundled
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.samples import SHAPES, write_extra
from chestfed.sites import SiteTable, load_site_config, open_site
from tests.new_site.hospitals import bring, chestfed, rows
from tests.training import tiny_studies

#: The shapes whose labels are words.
TERMS = ("delimited", "list", "long", "dicom")
SMALL = [part for setting in tiny_studies.SMALL for part in ("--set", setting)]


@pytest.fixture(scope="module")
def hospitals(furnish: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the five tiny hospitals, and a further one in each shape."""
    folder = furnish(tmp_path_factory.mktemp("hospitals"))
    for shape in SHAPES:
        write_extra(folder / "mine", f"st-{shape}", shape, size="tiny")
    return folder


@pytest.fixture
def home(hospitals: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands run in."""
    monkeypatch.chdir(hospitals)
    monkeypatch.delenv("CHESTFED_DATA", raising=False)
    return hospitals


def added(home: Path, shape: str, *more: str) -> str:
    """What `site new` prints of the hospital of a shape; its YAML and mapping table are written anew."""
    (home / f"site_configs/st-{shape}.terms.csv").unlink(missing_ok=True)
    written = write_extra(home / "mine", f"st-{shape}", shape, size="tiny")
    labels = () if written.table is None else ("--labels", written.table)
    if shape in TERMS:  # the cells of the samples name every disease that is present
        more = ("--blank", "negative", *more)
    return chestfed("site", "new", f"st-{shape}", "--images", written.pictures, *labels, "--yes", "--force", *more)


def with_sites(shapes: Iterable[str]) -> list[str]:
    """The options that add them to a study."""
    return [word for shape in shapes for word in ("--add-site", f"site_configs/st-{shape}.yaml")]


def opened(home: Path, shape: str) -> SiteTable:
    return open_site(load_site_config(home / f"site_configs/st-{shape}.yaml"), home / "nowhere")


@pytest.mark.parametrize("shape", SHAPES)
def test_from_folder_and_table_to_the_figures_of_a_hospital(home: Path, shape: str) -> None:
    said = added(home, shape)
    assert "SYNTHETIC: Loaded " in said
    stats = chestfed("site", "stats", f"site_configs/st-{shape}.yaml")
    assert "train" in stats


def test_one_hospital_or_all_can_be_added_to_the_plan_and_k_goes_on_with_them(home: Path) -> None:
    for shapes in (SHAPES, ["onehot"]):
        for shape in shapes:
            added(home, shape)
        plan = chestfed("study", *with_sites(shapes), "--dry-run", *SMALL)
        for shape in shapes:
            assert re.search(rf"st-{shape}\b", plan)
        ks = [int(k) for k in re.findall(r"stage 2, K=(\d+) ", plan)]
        assert ks == list(range(1, 6 + len(shapes)))


@pytest.mark.parametrize("shape", SHAPES)
def test_labels_views_and_people_are_those_of_the_samples(home: Path, shape: str) -> None:
    """The reference is what the films say, not what is written in the table."""
    from chestfed.core.diseases import DISEASES
    from chestfed.samples import extra
    from chestfed.samples.hospitals import SIZES, Hospital, films_of

    added(home, shape, "--uncertain", "positive", *(["--raters", "any"] if shape == "readers" else []))
    table = opened(home, shape)
    look = {"mix": extra._MIX, "look": extra._LOOK}
    of = Hospital(f"st-{shape}", "", 60, 0, 12, studies=1.4, lateral=0.08, counts_lateral=True, **look)  # type: ignore[arg-type]
    films = {extra.SHAPES[shape].picture(film): film for film in films_of(of, 1, SIZES["tiny"])}
    prefix = {"dicom": "dicom/"}.get(shape, "")
    by_image = {f"{prefix}{image}": row for image, row in table.frame.set_index("image").iterrows()}
    frontal = {name: film for name, film in films.items() if film.view != "lateral" or shape == "readers"}
    assert set(by_image) == set(frontal)
    for name, film in frontal.items():
        row = by_image[name]
        for disease in DISEASES:
            said = film.said[disease]
            doubts = said == -1 and shape in ("onehot", "delimited", "list", "dicom")
            assert row[disease] == float(said == 1 or doubts), (name, disease)
        if shape != "readers":
            assert row["view"] == film.view
    patients = {film.patient.number: by_image[name]["patient"] for name, film in frontal.items()}
    assert len(set(patients.values())) == len(patients)


@pytest.mark.parametrize("shape", SHAPES)
def test_neither_output_nor_yaml_names_a_patient_a_study_or_an_image(home: Path, shape: str) -> None:
    said = added(home, shape)
    said = "\n".join(line for line in said.splitlines() if not re.match(r" +row \d+ -> ", line))
    written = (home / f"site_configs/st-{shape}.yaml").read_text(encoding="utf-8")
    frame = opened(home, shape).frame
    names = {*frame["patient"], *frame["study"], *(Path(image).stem for image in frame["image"])}
    names = {name for name in names if len(name) > 3 and not name.startswith("view")}
    assert len(names) > 20 or shape == "long"
    for name in names:
        assert name not in said
        assert name not in written


def test_a_study_with_a_further_hospital_of_every_shape_runs_in_three_commands(home: Path, tmp_path: Path) -> None:
    for shape in SHAPES:
        added(home, shape)
        assert "passed" in chestfed("site", "check", f"site_configs/st-{shape}.yaml")
    ks = (1, 5 + len(SHAPES))
    study = ["study", *with_sites(SHAPES), "--set", f"k={list(ks)}", *SMALL, "--no-tracking", "--out", str(tmp_path)]
    said = chestfed(*study)
    assert all(f"st-{shape}" in said for shape in SHAPES)
    (folder,) = tmp_path.glob("synthetic-source_addition_samples-*")
    with (folder / "table.csv").open(encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert {row["k"] for row in table} == {*map(str, ks)}
    assert all((folder / f"k{k}" / "model.safetensors").exists() for k in ks)
    rounds = [json.loads(line) for line in (folder / f"k{ks[-1]}" / "rounds.jsonl").read_text().splitlines()]
    assert all(one["images"] == 4 * ks[-1] for one in rounds)  # every hospital takes part in every round
    assert "from the earlier run" in chestfed(*study)


def test_a_dry_run_before_the_samples_are_written_finds_an_added_hospital_below_the_data_root(
    home: Path, tmp_path: Path, copied_hospitals: None
) -> None:
    (tmp_path / "synthetic-st-list").symlink_to(home / "mine/synthetic-st-list")
    said = added(home, "list", "--data", home / "mine", "--out", tmp_path)
    site, data = str(tmp_path / "st-list.yaml"), ["--data", tmp_path]
    assert f"chestfed study --add-site {site} --data {home / 'mine'}" in said.replace("'", "")
    assert "st-list" in chestfed("study", "--add-site", site, "--dry-run", *data, *SMALL)
    assert [path.name for path in tmp_path.glob("synthetic-*")] == ["synthetic-st-list"]
    (tmp_path / "synthetic-chexpert").mkdir()
    with pytest.raises(ChestfedError, match=f"^{tmp_path}/synthetic-chexpert is not the synthetic hospital"):
        chestfed("study", "--add-site", site, "--dry-run", *data, *SMALL)


def test_a_real_hospital_among_synthetic_ones_is_pointed_out(home: Path, tmp_path: Path) -> None:
    """The marks of the phantoms say "no patients"; that would be wrong of this one."""
    written = write_extra(tmp_path / "data", "real", "onehot", size="tiny")
    for mark in written.folder.glob("SYNTHETIC*"):
        mark.unlink()
    new = ["site", "new", "real", "--images", written.pictures, "--labels", written.table, "--yes", "--out", tmp_path]
    assert "SYNTHETIC" not in chestfed(*new)
    plan = chestfed("study", "--add-site", tmp_path / "real.yaml", "--dry-run", *SMALL)
    assert "note: real is not synthetic, other sites are: the results say PARTLY SYNTHETIC" in plan
    assert "note:" not in chestfed("study", "--dry-run", *SMALL)


def write_site(home: Path, name: str, old: str, new: str) -> Path:
    """The YAML of a hospital with something changed."""
    text = (home / "site_configs/st-list.yaml").read_text(encoding="utf-8")
    assert old in text
    path = home / f"site_configs/{name}.yaml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    return path


def test_a_hospital_whose_name_is_taken_is_refused(home: Path) -> None:
    added(home, "list")
    path = write_site(home, "taken", "site: st-list", "site: vindr")
    with pytest.raises(ConfigError, match=r"two sites have the same name: .*vindr, vindr"):
        chestfed("study", "--add-site", path, "--dry-run", *SMALL)


def test_a_hospital_without_a_disease_of_the_study_is_refused(home: Path) -> None:
    five = ("cardiomegaly", "edema", "consolidation", "atelectasis", "pleural_effusion")
    unsaid = [part for disease in five for part in ("--label", f"{disease}=none")]
    added(home, "list", "--label", "hernia=escoliosis", *unsaid)
    with pytest.raises(ConfigError, match=r"'st-list' labels hernia: none of the study's diseases, which are cardiom"):
        chestfed("study", "--add-site", "site_configs/st-list.yaml", "--dry-run", *SMALL)


def changed(home: Path, old: str, new: str) -> None:
    """Another meaning in the mapping table of `st-onehot`."""
    path = home / "site_configs/st-onehot.terms.csv"
    text = path.read_text(encoding="utf-8-sig")
    assert re.search(old, text, re.MULTILINE)
    path.write_text(re.sub(old, new, text, flags=re.MULTILINE), encoding="utf-8")


def test_a_hospital_without_a_training_image_is_refused(home: Path) -> None:
    added(home, "onehot")
    changed(home, "^(split,training,.*),train,", r"\1,valid,")
    with pytest.raises(ConfigError, match="no training image at: st-onehot"):
        chestfed("study", "--add-site", home / "site_configs/st-onehot.yaml", "--dry-run", *SMALL)


def test_a_hospital_whose_training_images_have_no_label_is_refused(home: Path) -> None:
    added(home, "onehot")
    changed(home, "^(value,.*),(?:positive|negative|uncertain|blank),", r"\1,blank,")
    with pytest.raises(ConfigError, match="no training image at st-onehot has a label"):
        chestfed("study", "--add-site", home / "site_configs/st-onehot.yaml", "--dry-run", *SMALL)


def test_a_collection_takes_no_further_hospital(home: Path) -> None:
    added(home, "list")
    pipeline = bundled("pipelines") / "digits_ih.yaml"
    with pytest.raises(ConfigError, match="no 'sites' to add a hospital to"):
        chestfed("study", pipeline, "--add-site", "site_configs/st-list.yaml", "--dry-run")


def test_a_root_beside_the_yaml_is_found_from_any_folder(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added(home, "list", "--data", "mine", "--out", "mine")
    text = (home / "mine/st-list.yaml").read_text(encoding="utf-8")
    assert "root: synthetic-st-list" in text
    monkeypatch.chdir(tmp_path)
    data = ["--data", home / "synthetic_hospitals"]
    plan = chestfed("study", "--add-site", home / "mine/st-list.yaml", "--dry-run", *data, *SMALL)
    assert "st-list" in plan
    assert chestfed("site", "stats", home / "mine/st-list.yaml", "--data", home / "mine")


def test_a_yaml_that_is_there_is_not_replaced(home: Path) -> None:
    added(home, "list")
    with pytest.raises(ConfigError, match=r"st-list\.yaml exists: use --force"):
        chestfed("site", "new", "st-list", "--images", "mine/synthetic-st-list/imagenes", "--labels", "x.csv", "--yes")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--label", "cardiomegaly"], "expected DISEASE=NAME"),
        (["--label", "cardiomgaly=x"], "did you mean 'cardiomegaly'"),
        (["--value", "2=perhaps"], "unknown meaning of a value"),
        (["--labels", "nowhere.csv"], "no such file"),
    ],
)
def test_flags_that_do_not_fit_are_refused(tmp_path: Path, flags: list[str], message: str) -> None:
    file = bring(tmp_path, rows())
    command = ["site", "new", "x", "--images", tmp_path / "images", "--labels", file, "--out", tmp_path, "--yes"]
    with pytest.raises(ConfigError, match=message):
        chestfed(*command, *flags)
    assert not (tmp_path / "x.yaml").exists()


def test_a_long_name_is_refused_with_a_short_one(tmp_path: Path) -> None:
    file = bring(tmp_path, rows())
    with pytest.raises(ConfigError, match="such as st-anne"):
        chestfed("site", "new", "St. Anne", "--images", tmp_path / "images", "--labels", file, "--yes")


def test_a_yaml_that_was_changed_by_hand_is_kept_and_the_changed_keys_are_told(tmp_path: Path) -> None:
    bring(tmp_path, rows())
    command = ["site", "new", "x", "--images", tmp_path / "images", "--labels", tmp_path / "labels.csv", "--yes"]
    chestfed(*command, "--out", tmp_path)
    path = tmp_path / "x.yaml"
    assert "Changed keys" not in chestfed(*command, "--out", tmp_path, "--force")
    assert not (tmp_path / "x.earlier.yaml").exists()
    by_hand = path.read_text(encoding="utf-8").replace("uncertain: missing", "uncertain: positive  # as we agreed")
    path.write_text(by_hand, encoding="utf-8")
    said = chestfed(*command, "--out", tmp_path, "--force")
    assert "uncertain: positive -> missing" in said
    assert "blank" not in said.partition("Changed keys")[2].partition("written to")[0]
    assert (tmp_path / "x.earlier.yaml").read_text(encoding="utf-8") == by_hand
    assert load_site_config(path).uncertain["edema"] == "missing"


def test_a_site_that_does_not_open_is_written_and_reported(tmp_path: Path) -> None:
    table = rows(Set=["train", "test"])  # every patient is in both
    file = bring(tmp_path, table)
    with pytest.raises(ConfigError, match="was written, but the site cannot be opened") as caught:
        chestfed("site", "new", "x", "--images", tmp_path / "images", "--labels", file, "--out", tmp_path, "--yes")
    assert "patient in two splits (6)" in str(caught.value)
    assert "Zappa" not in str(caught.value)
    assert (tmp_path / "x.yaml").exists()


def test_on_a_terminal_it_asks_and_an_empty_answer_takes_the_guess(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new, "on_a_terminal", lambda: True)
    file = bring(tmp_path, rows(Sex=["F", "M"]))
    typed = "\n".join(["", "", "", "", "", "nonsense", "none", "", "negative", "", ""]) + "\n"
    command = ["site", "new", "x", "--images", tmp_path / "images", "--labels", file, "--out", tmp_path]
    said = chestfed(*command, typed=typed)
    assert "image column: 12 of 12 cells name a file\n  File: row 2 -> img000.png" in said
    assert "'nonsense' is not one of these" in said
    text = (tmp_path / "x.yaml").read_text(encoding="utf-8")
    assert "sex:" not in text
    assert "uncertain: negative" in text
