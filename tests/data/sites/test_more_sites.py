"""The ready-made configurations of further public sets, each on the small files of `more_sites.yaml`."""

from __future__ import annotations

import gzip
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from chestfed.core.diseases import DISEASES
from chestfed.data.images.decode import decode
from chestfed.data.sites import SiteTable, load_site_config, open_site
from chestfed.data.sites.releases.padchest import tree
from chestfed.data.sites.tables.codebook import FINDING, read_book
from chestfed.data.sites.terms import normal, parse_meaning
from chestfed.learning.objectives.auc_margin import AucMargin
from chestfed.leaves.samples.layouts import make_dicom
from tests.cases import each
from tests.command_line import call
from tests.data.sites.own_tables import labels
from tests.data.sites.small_sites import CONFIGS, column, list_problems, load_bundled, open_files, write_files
from tests.data.sites.test_real_labels import data as data

N = None
MORE = CONFIGS / "more"
SETS: dict[str, dict[str, str]] = yaml.safe_load(Path(__file__).with_name("more_sites.yaml").read_text("utf-8"))
#: Name of a set -> kind, path, and what is read of it, of each image.
IMAGES = {name: [line.split() for line in files.pop("images").splitlines()] for name, files in SETS.items()}
#: A gradient: bone is brighter than air, so that an inversion would be seen.
GREY = np.linspace(0, 255, 48 * 40).reshape(48, 40)


def draw(kind: str, gray: np.ndarray = GREY) -> bytes:
    """An image file of a kind of `more_sites.yaml`."""
    picture, file = Image.fromarray(gray.astype("u1")), io.BytesIO()
    if kind[:3] in ("dcm", "inv"):
        largest = 2 ** int(kind[3:]) - 1
        stored = (gray if kind[:3] == "dcm" else 255 - gray) / 255 * largest
        dataset = make_dicom(stored, int(kind[3:]))
        dataset.PhotometricInterpretation = "MONOCHROME2" if kind[:3] == "dcm" else "MONOCHROME1"
        dataset.save_as(file, enforce_file_format=True)
    elif kind == "I;16":
        Image.fromarray((gray * 257).astype(np.uint16)).save(file, "PNG")
    else:
        (picture if kind == "jpg" else picture.convert(kind)).save(file, "JPEG" if kind == "jpg" else "PNG", quality=95)
    return file.getvalue()


def make_files(name: str) -> dict[str, str | bytes]:
    return {**SETS[name], **{path: draw(kind) for kind, path, *_ in IMAGES[name]}}


def open_set(folder: Path, name: str, *overrides: str) -> SiteTable:
    """The set, written and opened with its shipped configuration."""
    return open_files(folder, f"more/{name}", make_files(name), *overrides)


@pytest.mark.slow
@each("name", SETS)
def test_a_set_in_its_own_layout_is_read(tmp_path: Path, name: str) -> None:
    table = open_set(tmp_path, name)
    rows = [line[1:] for line in IMAGES[name] if len(line) > 2]
    for place, key in enumerate(("image", "split", "view")):
        assert column(table, key) == [row[place] for row in rows]
    assert labels(table.about(DISEASES)) == [[N if cell == "-" else float(cell) for cell in row[3:]] for row in rows]
    for image in column(table, "image"):
        np.testing.assert_allclose(decode(table.root / str(image)).astype(float), GREY, atol=6)
    values = torch.from_numpy(table.about(DISEASES).labels())
    logits, alpha = torch.zeros(values.shape, requires_grad=True), torch.full((5,), 0.1, requires_grad=True)
    extra = torch.full((10,), 0.5, requires_grad=True)
    AucMargin(torch.full((5,), 0.3)).loss(logits, values, extra, alpha).backward()
    for place, disease in enumerate(DISEASES):  # a disease that a set does not label moves nothing in training
        known = disease in load_site_config(MORE / f"{name}.yaml").diseases
        parts = [logits.grad[:, place], extra.grad[[place, 5 + place]], alpha.grad[place]]  # type: ignore[index]
        assert any(part.abs().sum() > 0 for part in parts) == known
        assert known or torch.isnan(values[:, place]).all()


def test_configurations_name_their_source() -> None:
    assert sorted(path.stem for path in MORE.glob("*.yaml")) == sorted(SETS)
    for name in SETS:
        text, site = (MORE / f"{name}.yaml").read_text(encoding="utf-8"), load_site_config(MORE / f"{name}.yaml")
        assert site.license, name
        assert site.citation, name
        assert site.source.startswith("https://"), name
        assert len(site.diseases) >= 2, name
        assert f"{site.root}/" in text.split("\nsite:", maxsplit=1)[0], name
        assert f"chestfed site stats site_configs/more/{name}.yaml" in text, name


#: What is odd about one set: name, overrides -> columns.
ODD = """
brax; views=all; {age: [65, 65, 85, 85], sex: [F, F, ~, ~], view: [pa, lateral, ap, other], patient: [aa, aa, bb, bb]}
brax; views=all; {study: [Study_1.2.1, Study_1.2.1, Study_1.2.2, Study_1.2.3]}
openi; views=all; {view: [frontal, frontal, frontal, frontal, lateral]}
nih_expert_labels; table.raters=4343882583; {atelectasis: [1, 0]}
nih_expert_labels; table.raters=any; {atelectasis: [1, 0]}
nih_expert_labels; table.raters=all; {cardiomegaly: [1, 0]}
rsna_pneumonia; views=all; {patient: ["1", "1"], sex: [M, M], age: [57, 58]}
taix_ray; uncertain=positive; {cardiomegaly: [1, 1, ~], pleural_effusion: [1, 0, 1], atelectasis: [1, 0, 1]}
chexphoto; views=[frontal]; {patient: [patient00001, patient00001, patient64541]}
chexpert_plus; views=all; {sex: [M, ~, ~, M], patient: [patient00001, patient00002, patient00002, patient64541]}
cxr_lt; views=[pa,ap]; {patient: [p10000032, p11000032, p12000032]}
"""


@each(("name", "override", "expected"), [line.split("; ") for line in ODD.strip().splitlines()])
def test_what_is_odd_about_a_set_is_read(tmp_path: Path, name: str, override: str, expected: str) -> None:
    table, columns = open_set(tmp_path, name, override), yaml.safe_load(expected)
    assert {key: column(table, key) for key in columns} == columns


def test_notes_and_folders_of_sets(tmp_path: Path) -> None:
    assert "1 of 5 rows are not in the joined file 'labels': left out" in open_set(tmp_path, "chexpert_plus").notes[0]
    inside = {f"CheXphoto-v1.0/{name}": content for name, content in make_files("chexphoto").items()}
    table = open_files(tmp_path / "inside", "more/chexphoto", inside)
    assert all((table.root / str(image)).is_file() for image in column(table, "image"))


#: Set, file, text and its replacement (None: appended) -> kind and row of the problem.
WRONG = [
    ("vindr_pcxr", "annotations_test.csv", N, "t1,R3,Hairline,,,,,40\n", ("unknown finding", 3)),
    ("openi", "indiana_projections.csv", N, "9,9_IM-0009-1001.dcm.png,Frontal\n", ("unmatched row", 7)),
    ("rsna_pneumonia", "Data_Entry_2017_v2020.csv", "00000001_001", "00000009_001", ("unmatched row", 3)),
    ("chexpert_plus", "PNG/train/patient00001/study1/view1_frontal.dcm", N, "", ("ambiguous image", 2)),
    ("cxr_lt", "mimic-cxr-2.0.0-metadata.csv", "02aa804e", "02aa804f", ("unmatched row", 2)),
]


@each(("name", "file", "old", "new", "expected"), WRONG)
def test_what_a_release_lacks_is_refused(
    tmp_path: Path, name: str, file: str, old: str | None, new: str, expected: tuple[str, int]
) -> None:
    files = make_files(name)
    text = str(files.get(file, ""))
    files[file] = text + new if old is None else text.replace(old, new)
    assert expected in [(problem.kind, problem.row) for problem in list_problems(tmp_path, f"more/{name}", files)]


def test_padchests_terms_mean_what_they_mean() -> None:
    site = load_site_config(CONFIGS / "padchest.yaml")
    rows, problems = read_book(MORE / "padchest.codes.csv", site.diseases)
    assert not problems

    meanings = {row.value: parse_meaning(row.meaning) for row in rows if row.kind == FINDING}
    assert meanings.keys() == {normal(term) for term in tree()}
    for term, above in tree().items():
        meant = meanings[normal(term)]
        assert meant is not None
        assert set(meant.findings) == {name for name, (word,) in site.labels.items() if word in above}, term
        assert meant.understood == (term not in ("exclude", "suboptimal study", "unchanged")), term


def test_sets_of_anothers_images_say_so() -> None:
    same = {
        path.stem for path in MORE.glob("*.yaml") if re.search(r"^# THE [A-Z ]+ARE ", path.read_text(), re.MULTILINE)
    }
    assert same == {"chestx_det", "chexpert_plus", "chexpert_test", "chexphoto", "cxr_lt"} | {
        *("mimic_cxr_test", "nih_expert_labels", "padchest_gr", "rsna_pneumonia")
    }


def test_index_and_pages_name_every_site() -> None:
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
        for heading in ("Get it", "Cost", "Layout", "Labels here", "Known defects", "Checked"):
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
methods: [{algorithm: codasca}]
federated: {window: 2, stages: 1, stage_steps: 4, batch_size: 4}
evaluation: {split: test, resamples: 20}
"""
FOUR = ("Cardiomegaly", "Consolidation", "Atelectasis", "Effusion")


@pytest.mark.slow
def test_a_site_may_lack_a_disease(tmp_path: Path) -> None:
    table = [",img_id," + "cardiomegaly,pulmonary_edema,consolidation,atelectasis,pleural_effusion"]
    table += [f"{n},{n}.png," + ",".join(str(int((n + place) % 3 == 0)) for place in range(5)) for n in range(24)]
    objects = [
        {"file_name": f"{n}.png", "syms": [name for place, name in enumerate(FOUR) if (n + place) % 3 == 0]}
        for n in range(24)
    ]
    files = {
        "chestdr/chestdr_published_19d.csv": "\n".join(table) + "\n",
        "chestx-det/ChestX_Det_train.json": json.dumps(objects),
        "chestx-det/ChestX_Det_test.json": json.dumps([{"file_name": "t.png", "syms": []}]),
        "chestx-det/test/t.png": draw("L", GREY[::-1]),
        **{f"chestdr/images/{n}.png": draw("L") for n in range(24)},
        **{f"chestx-det/train/{n}.png": draw("L", GREY[::-1]) for n in range(24)},
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
def test_rsnas_labels_are_nihs_real_ones(tmp_path: Path, data: Path) -> None:
    real = gzip.decompress((data / "labels" / "Data_Entry_2017_v2020.csv.gz").read_bytes())
    assert real.startswith(b"Image Index,Finding Labels,Follow-up #,")
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
def test_chexphoto_reads_the_real_table(data: Path) -> None:
    file = data / "labels" / "chexpert_train.csv.gz"
    overrides = ["upsample={}", "views=[frontal,pa,ap]"]
    theirs = open_site(load_site_config(CONFIGS / "chexpert.yaml", overrides), data, file)
    small = ["table.images.remove_prefix=CheXpert-v1.0-small/"]
    ours = open_site(load_bundled("more/chexphoto", *small), data, file)
    assert len(ours.frame) == 191_027
    for name in ("image", "patient", "study"):
        assert column(ours, name) == column(theirs, name)
    np.testing.assert_array_equal(ours.labels(), theirs.labels())
