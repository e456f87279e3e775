"""`site new` where names of image files are a study's number and a view, and patients are in a second table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from chestfed.core.errors import ConfigError
from chestfed.data.checks.check import check_site
from chestfed.data.sites import load_site_config
from chestfed.leaves.drafts.draft import draft_site
from chestfed.leaves.drafts.proposal import Answers, Proposal, parse_answers
from tests.command_line import Called, call

JOIN = "join=[{file: exams.csv, key: [Exam, Number], columns: [MRN, Ward], unmatched: drop}]"
OPTIONS = ("--column", "image=Exam", "--column", "patient=MRN", "--test-fraction", "0.3", "--blank", "missing")


@pytest.fixture
def hospital(tmp_path: Path) -> Path:
    """Forty studies: all have a frontal image, every fourth a lateral one; two images have no row."""
    (tmp_path / "images").mkdir()
    names = [f"{7000 + number}_PA" for number in range(42)] + [f"{7000 + number}_LAT" for number in range(0, 40, 4)]
    for number, name in enumerate(names):
        Image.fromarray(np.full((8, 8), number, np.uint8)).save(tmp_path / "images" / f"{name}.png")
    labels = [f"{7000 + number},{number % 2},{number // 2 % 2}" for number in range(40)]
    labels += ["7003,0,0", "6999,0,0"]  # another row of study 3, and one without a partner
    (tmp_path / "labels.csv").write_text("\n".join(["Exam,Edema,Cardiomegaly", *labels]), encoding="utf-8")
    exams = [f"{7000 + number},p{number // 2},{'AB'[number % 3 > 0]}" for number in range(40)]
    (tmp_path / "exams.csv").write_text("\n".join(["Number,MRN,Ward", *exams]), encoding="utf-8")
    return tmp_path


def describe(folder: Path, *options: str) -> Called:
    files = ("--images", "images", "--labels", "labels.csv", "--no-input")
    return call("site", "new", "st-anne", *files, *OPTIONS, *options, folder=folder)


def draft(folder: Path, answers: Answers) -> Proposal:
    return draft_site("st-anne", folder / "images", folder / "labels.csv", answers)


def test_names_behind_a_cell_are_offered(hospital: Path) -> None:
    question = next(item for item in draft(hospital, Answers()).questions if "image column" in item.text)
    frontal = "--column image=Exam --set 'images.path={image}_PA.png' --set default_view=pa"
    assert [answer.partition(" (")[0] for answer in question.answers] == [
        frontal,
        "--column image=Exam --set 'images.path={image}_LAT.png' --set default_view=lateral --set 'views=[lateral]'",
    ]
    answers = parse_answers(columns=["image=Exam"], keys=["images.path={image}_PA.png", "default_view=pa"])
    proposal = draft(hospital, answers)
    assert not [item for item in proposal.questions if "image column" in item.text and "names" in item.text]
    assert proposal.image.iloc[0] == "images/7000_PA.png"


def test_offered_names_are_in_folders(hospital: Path) -> None:
    for number in range(42):
        folder = hospital / "images" / f"f{number % 2}"
        folder.mkdir(exist_ok=True)
        (hospital / "images" / f"{7000 + number}_PA.png").rename(folder / f"{7000 + number}_PA.png")
    question = next(item for item in draft(hospital, Answers()).questions if "image column" in item.text)
    assert "--set images.recursive=true" in question.answers[0]


def test_all_rows_and_images_are_counted(hospital: Path) -> None:
    drop = [f"rows.{key}=drop" for key in ("contradictory", "duplicate", "missing_image")]
    keys = ["images.path={image}_PA.png", "default_view=pa", JOIN, *drop]
    result = describe(hospital, *(word for key in keys for word in ("--set", key)), "--column", "ignore=Ward")
    text = " ".join(result.out.split())
    assert result.code == 0, text
    assert "Loaded 39 images" in text
    assert "13 of 52 image files in images are of no row that is read" in text
    assert "named by no row" not in text
    path = hospital / "site_configs/st-anne.yaml"
    assert "42 rows in labels.csv" in path.read_text(encoding="utf-8").partition("\n")[0]
    report = check_site(load_site_config(path), hospital, cache_root=hospital / "cache", workers=0)
    counts = report.counts
    assert counts.rows + sum(counts.dropped.values()) == 42
    assert [problem.message for problem in report.warnings if problem.file == "images"] == [
        "13 of 52 image files in images are of no row that is read: not used"
    ]


def test_draft_counts_idle_images_so_far(hospital: Path) -> None:
    result = describe(hospital, "--set", "images.path={image}_PA.png", "--set", JOIN)
    assert result.code == 2
    assert "named by no row so far" in " ".join(result.out.split())


def test_drawn_split_is_to_be_kept(hospital: Path) -> None:
    questions = draft(hospital, Answers()).questions
    assert any("--fix-splits" in item.text for item in questions if "--test-fraction 0.2" in item.answers)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("images.path={image}_PA.png", {"images": {"path": "{image}_PA.png"}}),
        ("images.path='{image}_PA.png'", {"images": {"path": "{image}_PA.png"}}),
        ("images.path={image}", {"images": {"path": "{image}"}}),
        ("images.suffix=.PNG", {"images": {"suffix": ".PNG"}}),
        ("title=St. Anne: [a", {"title": "St. Anne: [a"}),
        ('delimiter="', {"delimiter": '"'}),
        ("separator=\\t", {"separator": "\t"}),
        ("patient_prefix=1", {"patient_prefix": "1"}),
        ("header_row=2", {"header_row": 2}),
        ("ignore=[A, B]", {"ignore": ["A", "B"]}),
    ],
)
def test_text_of_a_key_needs_no_quotes(key: str, expected: dict[str, object]) -> None:
    assert parse_answers(keys=[key]).keys == expected


@pytest.mark.parametrize("key", ["ignore=[A", "codes={a", "join=[{file: x", "header_row={2", "rows.total={"])
def test_other_value_has_to_be_yaml(hospital: Path, key: str) -> None:
    with pytest.raises(ConfigError, match="not valid YAML"):
        parse_answers(keys=[key])
    result = describe(hospital, "--set", key)
    assert result.code == 1
    assert f"--set {key}: not valid YAML" in " ".join(result.err.split())
    assert "Traceback" not in result.err
