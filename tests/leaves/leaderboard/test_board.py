"""The page: AUCs computed again, comparisons, and what is refused; splits made again from the images."""

from __future__ import annotations

import html
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from sklearn.metrics import roc_auc_score

from chestfed.core.bundled import bundled
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.data.sites.phantoms import MARKER
from chestfed.leaves.leaderboard.benchmark import FOLDER, digest_split, load_benchmark, load_splits
from chestfed.leaves.leaderboard.board import Board, estimate_aucs, make_board, render_board
from chestfed.leaves.leaderboard.datasheet import make_datasheet
from chestfed.leaves.leaderboard.submission import HEADER, read_submission
from chestfed.results.evaluation.comparison import holm
from chestfed.results.evaluation.intervals.delong import auc_covariance
from chestfed.results.evaluation.labeled import Scored
from chestfed.results.evaluation.training_seeds import _tails
from chestfed.results.tables.run_folder import RunFolder
from tests.cases import assert_refused
from tests.leaves.leaderboard.submissions import forge, make_benchmark, make_split, read_parts, submit, write_parts
from tests.results.tables.finished_runs import NAMES


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our submission, a worse one of the same runs, one of the same name, and one whose digest does not fit."""
    folder = submit(tmp_path_factory.mktemp("board"), notes="<script>alert(1)</script>").parent

    def worsen(header: dict[str, Any], lines: list[str]) -> None:
        header["method"]["name"] = "noise"
        rng = np.random.default_rng(0)
        lines[1:] = [",".join([*line.split(",")[:4], *map(str, rng.random(2))]) for line in lines[1:]]

    forge(Path(shutil.copy(folder / "ours.zip", folder / "worse.zip")), worsen)
    shutil.copy(folder / "ours.zip", folder / "same_name.zip")
    parts = read_parts(folder / "ours.zip")
    write_parts(folder / "forged.zip", parts | {HEADER: parts[HEADER].replace(b"ours", b"best")})
    return folder


@pytest.fixture(scope="module")
def board(folder: Path) -> Board:
    return make_board(sorted(folder.glob("*.zip")), make_benchmark(), {"site0": make_split()}, "noise")


@pytest.mark.slow
def test_board_lists_and_refuses(board: Board) -> None:
    assert [entry.name for entry in board.entries] == ["ours", "ours (2)", "noise"]
    assert [*board.refused] == ["forged.zip"]
    assert board.refused["forged.zip"].startswith("changed: ")


def test_aucs_are_those_of_the_scores(board: Board, folder: Path) -> None:
    labels, aucs = make_split().frame["label_atelectasis"], []
    for seed in (1, 2):
        scores = RunFolder(folder / f"run-{seed}").predictions(2)["score_atelectasis"]
        aucs.append(roc_auc_score(labels, scores))
    row = board.rows.query("what == 'auc' and model == 'ours' and k == 2 and disease == 'atelectasis'").iloc[0]
    assert row["auc"] == pytest.approx(np.mean(aucs))
    assert row["sd"] == pytest.approx(np.std(aucs, ddof=1))
    assert row["low"] < row["auc"] < row["high"]
    assert (row["seeds"], row["verified"]) == (2, True)


def test_differences_are_holm_corrected(board: Board) -> None:
    for view, models in {"gain": ["ours", "ours (2)", "noise"], "versus": ["ours", "ours (2)"]}.items():
        rows = board.rows[(board.rows["what"] == view) & (board.rows["disease"] == "mean")]
        assert [*rows["model"]] == models
        assert [*rows["p_holm"]] == pytest.approx(holm([*rows["p"]]))
    assert set(board.rows.query("what == 'versus'")["reference"]) == {"noise"}
    assert (board.rows.query("what == 'versus' and disease == 'mean'")["difference"] > 0).all()


def test_page_is_whole_and_escaped(board: Board) -> None:
    page = render_board(board)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "forged.zip" in page
    assert "http://" not in page
    assert page.index("1. ours") < page.index("3. noise")


def test_page_begins_with_answer_and_figure(board: Board, folder: Path) -> None:
    page = html.unescape(render_board(board))
    first = page[: page.index("<nav")]
    assert "ours, ours (2) have the highest mean AUC at site0" in first
    assert "Against noise, after Holm's correction: higher with ours, ours (2)." in first
    assert "K=2 against K=1 at site0, after Holm's correction: no significant difference with ours" in first
    assert first.count("<img ") == 1
    assert re.search(r'alt="[^"]*minus that of noise[^"]*ours \+0\.\d+', first)
    alone = make_board([folder / "forged.zip"], make_benchmark(), {"site0": make_split()})
    assert "No submission was accepted." in render_board(alone).partition("<nav")[0]


def test_unknown_baseline_is_refused(folder: Path) -> None:
    with assert_refused(ConfigError, "unknown baseline"):
        make_board([folder / "ours.zip"], make_benchmark(), {"site0": make_split()}, "theirs")


def test_labels_are_of_this_installation(folder: Path) -> None:
    """With its labels reversed the AUCs are reversed."""
    split = make_split()
    labels = {f"label_{name}": 1 - split.frame[f"label_{name}"] for name in NAMES}
    splits = split, replace(split, frame=split.frame.assign(**labels))
    boards = [make_board([folder / "ours.zip"], make_benchmark(), {"site0": part}) for part in splits]
    first, second = (board.rows.query("what == 'auc'")["auc"].to_numpy() for board in boards)
    np.testing.assert_allclose(first, 1 - second)


def test_interval_is_over_patients_and_seeds() -> None:
    """Squared standard error of the mean AUC: S^2 / r of the seeds, and the mean covariance of two seeds."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, (60, 1)).astype(float)
    runs = [Scored(labels + rng.normal(0, 2, labels.shape), labels, np.arange(60), ["edema"]) for _ in range(3)]
    aucs, covariance = auc_covariance([run.scores for run in runs], labels, np.eye(3), np.arange(60), None)
    parts = [aucs.var(ddof=1) / 3, covariance[~np.eye(3, dtype=bool)].mean()]
    row = estimate_aucs(runs)[0]
    assert row["auc"] == pytest.approx(aucs.mean())
    half = row["high"] - row["auc"]
    assert row["auc"] - row["low"] == pytest.approx(half)
    assert _tails(parts, [2, 59])(half) == pytest.approx(0.05, abs=0.002)


def test_aucs_alone_are_not_verifiable(tmp_path: Path) -> None:
    from tests.leaves.leaderboard.test_submission import submit_aucs

    submit(tmp_path)
    file, benchmark = submit_aucs(tmp_path, tmp_path), make_benchmark(disclosure="aucs")
    board = make_board([file], benchmark, {})
    rows = read_submission(file, benchmark).rows
    assert not board.rows["verified"].any()
    assert board.rows.query("k == 2 and disease == 'mean'")["auc"].item() == rows["site0", 2, 1].mean.value
    assert "not verifiable" in render_board(board)


# ---- splits ------------------------------------------------------------------------------------------------------


def test_digest_is_of_content_and_grouping() -> None:
    frame = make_split().frame
    digest = digest_split(frame, NAMES)
    other_names = frame.assign(patient=[f"patient {number}" for number in frame["patient"]])
    assert digest_split(other_names.sample(frac=1, random_state=0), NAMES) == digest
    changed = [
        (frame.assign(label_edema=frame["label_edema"].fillna(0)), NAMES),
        (frame.assign(label_edema=1 - frame["label_edema"]), NAMES),
        (frame.assign(patient=range(len(frame))), NAMES),
        (frame.assign(image=[*frame["image"][1:], "f" * 32]), NAMES),
        (frame[1:], NAMES),
        (frame, NAMES[::-1]),
    ]
    assert len({digest, *(digest_split(*arguments) for arguments in changed)}) == len(changed) + 1


def write_benchmark(folder: Path, target: dict[str, Any], pipeline: str = "source_addition_samples") -> Path:
    plain = make_benchmark(disclosure="scores").model_dump() | {"name": "tiny-v1", "pipeline": pipeline, "k": [1, 2]}
    plain |= {"diseases": ["edema", "atelectasis"], "targets": {"chexpert": target}}
    plain["settings"] = ["samples.size=tiny", "preprocess.size=64", "model.pool=4"]
    file = folder / "tiny-v1.yaml"
    file.write_text(yaml.safe_dump(plain))
    return file


def fix_split(folder: Path, data: Path) -> Path:
    """A benchmark of the tiny hospitals with the digest that its refusal says."""
    target: dict[str, Any] = {"images": 1, "patients": 1}
    for key in ("images", "digest"):
        with pytest.raises(ChestfedError) as caught:
            load_splits(*load_benchmark(write_benchmark(folder, target)), data, folder / "cache", ignore)
        target[key] = caught.value.fields[key]
    return write_benchmark(folder, target)


def ignore(*_: object) -> None:
    """No progress is shown."""


@pytest.mark.slow
def test_split_is_made_again_from_images(tiny_hospitals: Path, tmp_path: Path) -> None:
    benchmark, file = load_benchmark(fix_split(tmp_path, tiny_hospitals))
    split = load_splits(benchmark, file, tiny_hospitals, tmp_path / "cache", ignore)["chexpert"]
    assert len(split.frame) == benchmark.targets["chexpert"].images
    assert split.origin.any_synthetic
    with assert_refused(ConfigError, "unknown target"):
        other = benchmark.model_copy(update={"targets": {"elsewhere": benchmark.targets["chexpert"]}})
        load_splits(other, file, tiny_hospitals, tmp_path / "cache", ignore)


def test_closed_data_set_discloses_no_image(tiny_hospitals: Path, tmp_path: Path) -> None:
    """A site that is neither synthetic nor an open release, in a benchmark that asks for scores of images."""
    shutil.copytree(tiny_hospitals, tmp_path / "data", ignore=shutil.ignore_patterns(MARKER))
    site = {"extends": str(bundled("site_configs") / "synthetic" / "chexpert.yaml"), "synthetic": False}
    (tmp_path / "site.yaml").write_text(yaml.safe_dump(site))
    (tmp_path / "closed.yaml").write_text(yaml.safe_dump({"title": "x", "sites": [{"config": "site.yaml"}], "k": [1]}))
    file = write_benchmark(tmp_path, {"images": 1, "patients": 1}, "closed.yaml")
    benchmark = load_benchmark(file)[0].model_copy(update={"settings": []})
    with assert_refused(ChestfedError, "not an open release", hospital="chexpert"):
        load_splits(benchmark, file, tmp_path / "data", tmp_path / "cache", ignore)


def test_bundled_benchmarks_are_fixed() -> None:
    benchmarks = [load_benchmark(file.stem)[0] for file in FOLDER.glob("*.yaml")]
    assert {benchmark.name: benchmark.verifiable for benchmark in benchmarks} == {
        "samples-v2": True,
        "real-films-v1": True,
        "source-addition-v1": False,
    }
    for benchmark in benchmarks:
        assert all(bool(digest) == benchmark.verifiable for digest in benchmark.digests.values())
    with assert_refused(ConfigError, "unknown benchmark", name="none-v1"):
        load_benchmark("none-v1")


def test_datasheet_has_croissants_keys() -> None:
    """What `mlcroissant validate` asks for: keys, types, a digest of each file, and records of each field."""
    for path in FOLDER.glob("*.yaml"):
        sheet = json.loads(json.dumps(make_datasheet(*load_benchmark(path.stem))))
        assert (sheet["@type"], sheet["conformsTo"]) == ("sc:Dataset", "http://mlcommons.org/croissant/1.0")
        needed = {"@context", "name", "description", "license", "citeAs", "url", "version", "datePublished"}
        assert all(sheet[key] for key in needed)
        for file in sheet["distribution"]:
            assert file["@type"] == "cr:FileObject"
            assert {"@id", "name", "contentUrl", "encodingFormat"} <= set(file)
            assert len(file.get("sha256", "")) == 64 or len(file.get("md5", "")) == 32
        for records in sheet["recordSet"]:
            identifiers = {field["@id"] for field in records["field"]}
            assert all(set(row) == identifiers for row in records["data"])
            assert {field["dataType"] for field in records["field"]} <= {"sc:Text", "sc:Integer"}
        assert len({part["@id"] for key in ("distribution", "recordSet") for part in sheet[key]}) == len(
            [*sheet["distribution"], *sheet["recordSet"]]
        )
    films = make_datasheet(*load_benchmark("real-films-v1"))
    assert [entry["license"] for entry in films["isBasedOn"]][1:] == ["CC BY 4.0", "CC BY 3.0"]
