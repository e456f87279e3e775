"""The ready-made configurations of further public sets, each on small files in the set's own layout."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from chestfed.core.diseases import DISEASES
from chestfed.images.decode import decode
from chestfed.objectives.auc_margin import AucMargin
from chestfed.sites import SiteTable, load_site_config, open_site
from chestfed.sites.releases.padchest import tree
from chestfed.sites.spreadsheet.term_table import read_terms
from chestfed.sites.terms import normal
from tests.cases import each
from tests.command_line import call
from tests.sites.more_sites import GREY, NIH, SETS, png
from tests.sites.own_tables import labels
from tests.sites.small_sites import CONFIGS, column, config_of, open_files, problems_of, write_files
from tests.sites.test_real_labels import data as data

N = None
MORE = CONFIGS / "more"


def opened(folder: Path, name: str, *overrides: str) -> SiteTable:
    """The set, written and opened with its shipped configuration."""
    return open_files(folder, f"more/{name}", SETS[name](folder), *overrides)


def test_every_configuration_is_exercised_here() -> None:
    assert sorted(path.stem for path in MORE.glob("*.yaml")) == sorted(SETS) == sorted(EXPECTED)


#: Images, splits, views and the five labels of each small set.
EXPECTED: dict[str, tuple[list[str], list[str], list[str], list[list[float | None]]]] = {
    "brax": (
        [
            "images/id_aa/Study_1.2.1/Series_1.3.1/image-1.4.1.png",
            "images/id_bb/Study_1.2.2/Series_1.3.3/image-1.4.3.png",
        ],
        ["train", "train"],
        ["pa", "ap"],
        [[1, 1, 0, 0, 0], [0, 0, 1, 1, 1]],
    ),
    "chestdr": (
        ["images/d1.png", "images/d2.png"],
        ["train", "train"],
        ["frontal", "frontal"],
        [[0, 1, 0, 0, 1], [1, 0, 0, 0, 0]],
    ),
    "chestx_det": (
        ["train/1001.png", "train/1002.png", "test/36346.png"],
        ["train", "train", "test"],
        ["frontal"] * 3,
        [[0, N, 0, 0, 0], [0, N, 0, 0, 1], [1, N, 1, 0, 0]],
    ),
    "chexpert_plus": (
        [
            "PNG/train/patient00001/study1/view1_frontal.png",
            "DICOM/train/patient00002/study3/view1_frontal.dcm",
            "PNG/PNG/valid/patient64541/study1/view1_frontal.png",
        ],
        ["train", "train", "valid"],
        ["frontal"] * 3,
        [[1, 1, 0, 0, 0], [0, 0, 1, 1, 1], [0] * 5],
    ),
    "chexpert_test": (
        ["CheXpert/val/patient64541/study1/view1_frontal.jpg", "CheXpert/test/patient64741/study1/view1_frontal.jpg"],
        ["valid", "test"],
        ["frontal", "frontal"],
        [[0, 1, 0, 0, 0], [1, 0, 0, 1, 0]],
    ),
    "cxr_lt": (
        [
            "files/p10/p10000032/s50414260/02aa804e-bde0afdd.jpg",
            "files/p11/p11000032/s50414261/2a2277a9-b0ded155.jpg",
            "files/p12/p12000032/s50414262/e084de3b-be89b11e.dcm",
        ],
        ["train", "valid", "test"],
        ["pa", "ap", "ap"],
        [[1, 0, 0, 1, 0], [0, 1, 0, 0, 1], [0] * 5],
    ),
    "chexphoto": (
        [
            "train/natural/nokia/patient00001/study1/view1_frontal.jpg",
            "train/synthetic/digital/patient00001/study1/view1_frontal.jpg",
            "valid/natural/oneplus/patient64541/study1/view1_frontal.jpg",
        ],
        ["train", "train", "valid"],
        ["frontal"] * 3,
        [[1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [0, 1, 0, 1, 1]],
    ),
    "mimic_cxr_test": (
        ["files/p10/p10000032/s50414260/02aa804e.jpg", "files/p11/p11000032/s50414261/2a2277a9.jpg"],
        ["test", "test"],
        ["pa", "ap"],
        [[1, 0, 0, N, 0], [0, 1, 1, 0, 0]],
    ),
    "nih_expert_labels": (
        ["images_001/images/00000211_006.png", "images_012/images/00029560_000.png"],
        ["test", "test"],
        ["pa", "pa"],
        [[1, 0, 0, 0, 0], [0, 0, 0, 0, 1]],
    ),
    "bimcv_covid19": (
        [
            "sub-S0001/ses-E0001/mod-rx/sub-S0001_ses-E0001_run-1_bp-chest_vp-ap_dx.png",
            "sub-S0002/ses-E0002/mod-rx/sub-S0002_ses-E0002_acq-2_run-1_bp-chest_vp-pa_cr.png",
            "sub-S0003/ses-E0003/mod-rx/sub-S0003_ses-E0003_run-1_bp-chest_vp-pa_dx.png",
        ],
        ["train"] * 3,
        ["ap", "pa", "pa"],
        [[0, 0, 0, 0, 1], [1, N, N, N, N], [N] * 5],
    ),
    "padchest_gr": (
        [f"Padchest_GR_files/PadChest_GR/{name}_1.png" for name in "abc"],
        ["train", "valid", "test"],
        ["frontal"] * 3,
        [[1, 0, 0, 0, 1], [0] * 5, [0, 0, 0, 1, 0]],
    ),
    "openi": (
        [f"images/images_normalized/{number}_IM-000{number}-1001.dcm.png" for number in (1, 2, 3, 4)],
        ["train"] * 4,
        ["frontal"] * 4,
        [[1, 0, 0, 0, 1], [0] * 5, [N] * 5, [0, 0, 0, 1, 0]],
    ),
    "rsna_pneumonia": (
        ["stage_2_train_images/0004cf0.dcm", "stage_2_train_images/0004cf1.dcm"],
        ["train", "train"],
        ["pa", "ap"],
        [[1, 0, 0, 0, 1], [0] * 5],
    ),
    "taix_ray": (
        ["data/u1.png", "data/u2.png", "data/u3.png"],
        ["train", "train", "valid"],
        ["ap"] * 3,
        [[1, N, N, 0, 1], [0, N, N, 0, 0], [N, N, N, 1, 0]],
    ),
    "vindr_pcxr": (
        ["train/a1.dicom", "train/a2.dicom", "test/t1.dicom"],
        ["train", "train", "test"],
        ["frontal"] * 3,
        [[1, 0, 0, 0, 0], [0, 0, 0, 0, 1], [0] * 5],
    ),
}


@each("name", SETS)
def test_a_set_in_its_own_layout_is_read(tmp_path: Path, name: str) -> None:
    images, splits, views, five = EXPECTED[name]
    table = opened(tmp_path, name)
    assert column(table, "image") == images
    assert column(table, "split") == splits
    assert column(table, "view") == views
    assert labels(table.about(DISEASES)) == five


@each("name", SETS)
def test_the_pictures_of_a_set_are_decoded_with_bone_bright(tmp_path: Path, name: str) -> None:
    table = opened(tmp_path, name)
    for image in column(table, "image"):
        gray = decode(table.root / str(image)).astype(float)
        np.testing.assert_allclose(gray, GREY, atol=6)


@each("name", SETS)
def test_a_configuration_says_where_from_on_which_terms_and_whom_to_cite(name: str) -> None:
    text = (MORE / f"{name}.yaml").read_text(encoding="utf-8")
    site = load_site_config(MORE / f"{name}.yaml")
    assert site.license
    assert site.citation
    assert site.source.startswith("https://")
    assert len(site.diseases) >= 2
    assert f"{site.root}/" in text.split("\nsite:", maxsplit=1)[0]
    assert f"chestfed site stats site_configs/more/{name}.yaml" in text


@each("name", SETS)
def test_diseases_that_a_set_does_not_label_are_missing_and_move_nothing_in_training(tmp_path: Path, name: str) -> None:
    table = opened(tmp_path, name).about(DISEASES)
    known = load_site_config(MORE / f"{name}.yaml").diseases
    found = torch.from_numpy(table.labels())
    logits = torch.zeros(found.shape, requires_grad=True)
    extra, alpha = torch.full((10,), 0.5, requires_grad=True), torch.full((5,), 0.1, requires_grad=True)
    AucMargin(torch.full((5,), 0.3)).loss(logits, found, extra, alpha).backward()
    assert logits.grad is not None
    assert extra.grad is not None
    assert alpha.grad is not None
    for place, disease in enumerate(DISEASES):
        moved = [logits.grad[:, place], extra.grad[[place, 5 + place]], alpha.grad[place]]
        if disease not in known:
            assert torch.isnan(found[:, place]).all()
            assert not any(part.abs().sum() for part in moved)
        else:
            assert logits.grad[:, place].abs().sum() > 0


# What is odd about one set.


def test_brax_has_ages_in_words_studies_in_the_path_and_views_that_are_left_out(tmp_path: Path) -> None:
    table = opened(tmp_path, "brax", "views=all")
    assert column(table, "age") == [65, 65, 85, 85]
    assert column(table, "sex") == ["F", "F", None, None]
    assert column(table, "view") == ["pa", "lateral", "ap", "other"]
    assert column(table, "study") == ["Study_1.2.1", "Study_1.2.1", "Study_1.2.2", "Study_1.2.3"]
    assert column(table, "patient") == ["aa", "aa", "bb", "bb"]


def test_vindr_pcxr_refuses_a_class_that_the_release_does_not_have(tmp_path: Path) -> None:
    files = dict(SETS["vindr_pcxr"](tmp_path))
    files["annotations_test.csv"] = str(files["annotations_test.csv"]) + "t1,R3,Hairline,,,,,40\n"
    (found,) = problems_of(tmp_path, "more/vindr_pcxr", files)
    assert (found.kind, found.file, found.row) == ("unknown finding", "annotations_test.csv", 3)


def test_open_i_reports_an_image_without_a_report_and_keeps_laterals_if_asked(tmp_path: Path) -> None:
    assert column(opened(tmp_path, "openi", "views=all"), "view").count("lateral") == 1
    files = dict(SETS["openi"](tmp_path))
    files["indiana_projections.csv"] = str(files["indiana_projections.csv"]) + "9,9_IM-0009-1001.dcm.png,Frontal\n"
    (found,) = problems_of(tmp_path, "more/openi", files)
    assert (found.kind, found.row) == ("unmatched row", 7)


def test_a_reader_of_the_expert_labels_can_be_asked_alone(tmp_path: Path) -> None:
    assert column(opened(tmp_path, "nih_expert_labels", "table.raters=4343882583"), "atelectasis") == [1, 0]
    assert column(opened(tmp_path, "nih_expert_labels", "table.raters=any"), "atelectasis") == [1, 0]
    assert column(opened(tmp_path, "nih_expert_labels", "table.raters=all"), "cardiomegaly") == [1, 0]


def test_rsna_keeps_nihs_patients_and_leaves_out_what_the_challenge_left_out(tmp_path: Path) -> None:
    table = opened(tmp_path, "rsna_pneumonia")
    assert column(table, "patient") == ["1", "1"]
    assert (column(table, "sex"), column(table, "age")) == (["M", "M"], [57, 58])


def test_an_rsna_image_that_nihs_table_lacks_is_reported(tmp_path: Path) -> None:
    files = dict(SETS["rsna_pneumonia"](tmp_path))
    files["Data_Entry_2017_v2020.csv"] = str(files["Data_Entry_2017_v2020.csv"]).replace("00000001_001", "00000009_001")
    kinds = {(problem.kind, problem.row) for problem in problems_of(tmp_path, "more/rsna_pneumonia", files)}
    assert ("unmatched row", 3) in kinds


def test_taix_rays_questionable_grades_follow_the_policy(tmp_path: Path) -> None:
    table = opened(tmp_path, "taix_ray", "uncertain=positive")
    assert labels(table) == [[1, 1, 1], [1, 0, 0], [N, 1, 1]]


def test_chexphoto_may_stand_in_the_releases_folder(tmp_path: Path) -> None:
    inside = {f"CheXphoto-v1.0/{name}": content for name, content in SETS["chexphoto"](tmp_path).items()}
    table = open_files(tmp_path, "more/chexphoto", inside)
    assert all((table.root / str(image)).is_file() for image in column(table, "image"))
    assert column(table, "patient") == ["patient00001", "patient00001", "patient64541"]
    assert column(table, "study")[0] == "patient00001/study1"


def test_chexpert_plus_has_studies_in_the_path_and_sexes_that_are_unknown(tmp_path: Path) -> None:
    table = opened(tmp_path, "chexpert_plus", "views=all")
    assert column(table, "study")[1:3] == ["patient00002/study3"] * 2
    assert column(table, "sex") == ["M", None, None, "M"]
    assert "patient00003" not in column(table, "patient")
    assert "1 of 5 rows are not in the joined file 'labels': left out" in table.notes[0]


def test_an_image_of_two_endings_is_not_chosen_between(tmp_path: Path) -> None:
    files = dict(SETS["chexpert_plus"](tmp_path))
    files["PNG/train/patient00001/study1/view1_frontal.dcm"] = b""
    (found,) = problems_of(tmp_path, "more/chexpert_plus", files)
    assert (found.kind, found.row) == ("ambiguous image", 2)


def test_cxr_lt_takes_patients_from_the_path_and_refuses_an_image_that_mimic_does_not_have(tmp_path: Path) -> None:
    assert column(opened(tmp_path, "cxr_lt"), "patient") == ["p10000032", "p11000032", "p12000032"]
    files = dict(SETS["cxr_lt"](tmp_path))
    files["mimic-cxr-2.0.0-metadata.csv"] = str(files["mimic-cxr-2.0.0-metadata.csv"]).replace("02aa804e", "02aa804f")
    (found,) = problems_of(tmp_path, "more/cxr_lt", files)
    assert (found.kind, found.row) == ("unmatched row", 2)


def test_padchests_terms_mean_to_a_table_what_they_mean_to_padchests_own_reader() -> None:
    site = load_site_config(CONFIGS / "padchest.yaml")
    rows, problems = read_terms(MORE / "padchest.terms.csv", site.diseases)
    assert not problems
    found = {row.term: row.meant for row in rows}
    assert found.keys() == {normal(term) for term in tree()}
    for term, above in tree().items():
        meant = found[normal(term)]
        assert meant is not None
        assert set(meant.findings) == {name for name, (word,) in site.labels.items() if word in above}, term
        assert meant.understood == (term not in ("exclude", "suboptimal study", "unchanged")), term


def test_sets_made_of_anothers_images_say_so_in_capitals() -> None:
    same = {
        path.stem for path in MORE.glob("*.yaml") if re.search(r"^# THE [A-Z ]+ARE ", path.read_text(), re.MULTILINE)
    }
    assert same == {"chestx_det", "chexpert_plus", "chexpert_test", "chexphoto", "cxr_lt"} | {
        *("mimic_cxr_test", "nih_expert_labels", "padchest_gr", "rsna_pneumonia")
    }


def test_the_index_and_the_pages_name_every_site() -> None:
    docs = CONFIGS.parent / "docs"
    index = (docs / "sites.md").read_text(encoding="utf-8")
    five = ["chexpert", "chestxray8", "padchest", "mimic_cxr", "vindr"]
    assert sorted(path.stem for path in (docs / "sites").glob("*.md")) == sorted([*SETS, *five])
    for name in [*SETS, *five]:
        assert f"](sites/{name}.md)" in index, name
        page = (docs / "sites" / f"{name}.md").read_text(encoding="utf-8")
        config = "more/" * (name in SETS) + name
        assert f"site_configs/{config}.yaml" in page
        site = yaml.safe_load((CONFIGS / f"{config}.yaml").read_text(encoding="utf-8"))
        assert site["source"] in page
        for heading in ("Get it", "Cost", "Layout", "Labels here", "Known defects", "Checked", "License", "Cite"):
            assert f"**{heading}**" in page, (name, heading)


# In a study.

STUDY = """
title: Two of the ready-made sites
sites:
  - config: chestdr.yaml
  - config: chestx_det.yaml
k: [1, 2]
model: {name: small, init_features: 8, growth_rate: 8, blocks: [1]}
preprocess: {size: 64}
pretrain: {epochs: 1, batch_size: 8, lr: 1.0e-2}
federated: {algorithm: codasca, window: 2, stages: 1, stage_steps: 4, batch_size: 4}
evaluation: {split: test, resamples: 20}
"""
FIVE = ("cardiomegaly", "pulmonary_edema", "consolidation", "atelectasis", "pleural_effusion")
FOUR = ("Cardiomegaly", "Consolidation", "Atelectasis", "Effusion")


def test_a_site_that_lacks_a_disease_trains_beside_one_that_has_it(tmp_path: Path) -> None:
    table = [",img_id," + ",".join(FIVE)]
    table += [f"{n},{n}.png," + ",".join(str(int((n + place) % 3 == 0)) for place in range(5)) for n in range(24)]
    objects = [
        {"file_name": f"{n}.png", "syms": [name for place, name in enumerate(FOUR) if (n + place) % 3 == 0]}
        for n in range(24)
    ]
    files = {
        "chestdr/chestdr_published_19d.csv": "\n".join(table) + "\n",
        "chestx-det/ChestX_Det_train.json": json.dumps(objects),
        "chestx-det/ChestX_Det_test.json": json.dumps([{"file_name": "t.png", "syms": []}]),
        "chestx-det/test/t.png": png(gray=GREY[::-1]),
        **{f"chestdr/images/{n}.png": png() for n in range(24)},
        **{f"chestx-det/train/{n}.png": png(gray=GREY[::-1]) for n in range(24)},
    }
    write_files(tmp_path, files)
    for name, keys in (("chestdr", "splits: {test_fraction: 0.25}\n"), ("chestx_det", "")):
        text = f"extends: {(MORE / name).as_posix()}.yaml\n{keys}"
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "study.yaml").write_text(STUDY, encoding="utf-8")
    options = ["--data", "site", "--set", "runtime.threads=1", "--set", "runtime.device=cpu", "--no-tracking"]
    result = call("study", "study.yaml", *options, folder=tmp_path)
    assert result.code == 0, result.err + result.out
    (written,) = (tmp_path / "runs").glob("*/study.json")
    assert "chestx_det" in written.read_text(encoding="utf-8")


# On real label files.


@pytest.mark.real_data
def test_rsnas_labels_are_nihs_on_the_real_table(tmp_path: Path, data: Path) -> None:
    import gzip

    real = gzip.decompress((data / "labels" / "Data_Entry_2017_v2020.csv.gz").read_bytes())
    assert real.startswith(NIH.encode())
    names = [line.split(b",", 1)[0].decode() for line in real.splitlines()[1:]]
    mapping = [{"img_id": name, "subset_img_id": f"s{place}"} for place, name in enumerate(names)]
    files = {
        "mappings.json": json.dumps(mapping),
        "Data_Entry_2017_v2020.csv": real,
        "stage_2_detailed_class_info.csv": "patientId,class\n"
        + "".join(f"s{place},Normal\n" for place in range(len(names))),
    }
    table = open_files(tmp_path, "more/rsna_pneumonia", files)
    assert (len(table.frame), table.frame["patient"].nunique()) == (112_120, 30_805)
    np.testing.assert_allclose(table.positive_ratios(), [0.0248, 0.0205, 0.0416, 0.1031, 0.1188], atol=0.00006)


@pytest.mark.real_data
def test_chexphotos_configuration_reads_chexperts_real_table_as_its_own_reader_does(data: Path) -> None:
    file = data / "labels" / "chexpert_train.csv.gz"
    overrides = ["upsample={}", "views=[frontal,pa,ap]"]
    theirs = open_site(load_site_config(CONFIGS / "chexpert.yaml", overrides), data, file)
    small = ["table.images.remove_prefix=CheXpert-v1.0-small/"]
    ours = open_site(config_of("more/chexphoto", *small), data, file)
    assert len(ours.frame) == 191_027
    for name in ("image", "patient", "study"):
        assert column(ours, name) == column(theirs, name)
    np.testing.assert_array_equal(ours.labels(), theirs.labels())
