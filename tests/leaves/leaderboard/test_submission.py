"""Files of submissions: what is in them, and every kind that is refused."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from chestfed.core.errors import ChestfedError
from chestfed.core.provenance import Origin
from chestfed.core.pseudonyms import PUBLISHED, VARIABLE, key_for, make_key
from chestfed.data.images.database import pack_keys
from chestfed.leaves.leaderboard import submission
from chestfed.leaves.leaderboard.benchmark import Split, digest_split
from chestfed.leaves.leaderboard.making import make_header, make_scores, open_runs, strip_places
from chestfed.leaves.leaderboard.submission import HEADER, SCORES, SubmittedMethod, read_submission, write_submission
from chestfed.results.tables.run_folder import RunFolder
from tests.cases import assert_refused, each
from tests.leaves.leaderboard.submissions import forge, make_benchmark, make_split, read_parts, submit, write_parts
from tests.results.tables.finished_runs import IMAGES, NAMES, seal_run, write_run

Lines = list[str]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two runs and their submission, which no test changes."""
    return submit(tmp_path_factory.mktemp("runs")).parent


@pytest.fixture(scope="module")
def ours(runs: Path) -> Path:
    return runs / "ours.zip"


def test_scores_are_those_of_the_run(runs: Path) -> None:
    read = read_submission(runs / "ours.zip", make_benchmark())
    assert read.header.seeds == [1, 2]
    predictions = RunFolder(runs / "run-2").predictions(2)
    scores = read.align_scores("site0", 2, 2, predictions["image"].to_list())
    np.testing.assert_array_equal(scores, predictions[[f"score_{name}" for name in NAMES]].to_numpy(float))


def test_same_content_gives_the_same_bytes(ours: Path, tmp_path: Path) -> None:
    read = read_submission(ours, make_benchmark())
    write_submission(tmp_path / "again.zip", read.header, read.scores)
    assert (tmp_path / "again.zip").read_bytes() == ours.read_bytes()


def test_no_label_and_no_patient_is_in_it(ours: Path) -> None:
    parts = read_parts(ours)
    assert parts[SCORES].splitlines()[0] == b"hospital,k,seed,image,edema,atelectasis"
    assert set(json.loads(parts[HEADER])) == {
        *("format", "benchmark", "splits", "data", "method", "runs", "configuration", "results", "parts", "sha256")
    }
    assert not any(word in parts[HEADER] for word in (b"label", b"patient"))


def test_places_are_stripped_everywhere(tmp_path: Path) -> None:
    place = "/home/alice/secret"
    run = write_run(tmp_path / "run", compared=False)
    about = json.loads((run / "study.json").read_text())
    about["configuration"] |= {"deep": [{"file": f"{place}/a.csv"}, "C:\\Users\\alice\\b.csv", "~alice/c"]}
    (run / "study.json").write_text(json.dumps(about))
    seal_run(run)
    header = make_header(open_runs([run]), make_benchmark(), SubmittedMethod(name="ours"))
    assert header.configuration["deep"] == [{"file": "a.csv"}, "b.csv", "c"]
    assert "alice" not in header.model_dump_json()
    assert strip_places({"a": "package.module:Name", "b": 1}) == {"a": "package.module:Name", "b": 1}


# ---- runs that are refused ---------------------------------------------------------------------------------------


def change_predictions(run: Path, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    file = run / "k2" / "predictions.parquet"
    change(pd.read_parquet(file)).to_parquet(file, index=False)
    seal_run(run)


@pytest.mark.slow
@each(
    "damage, kind",
    [
        (lambda run: (run / "k2" / "result.json").unlink(), "run cannot be submitted"),
        (lambda run: (run / "study.json").write_text("{}"), "run cannot be submitted"),
        (lambda run: (run / "k2" / "predictions.parquet").write_bytes(b""), "run cannot be submitted"),
        (lambda run: shutil.rmtree(run), "run cannot be submitted"),
        (lambda run: change_predictions(run, lambda rows: rows[1:]), "other number of images"),
        (
            lambda run: change_predictions(run, lambda rows: rows.assign(image=rows["image"][::-1].values)),
            "other split",
        ),
        (lambda run: change_predictions(run, lambda rows: rows.assign(label_edema=1.0)), "other split"),
        (lambda run: change_predictions(run, lambda rows: rows.assign(patient=range(len(rows)))), "other split"),
        (lambda run: change_predictions(run, lambda rows: rows.drop(columns="score_edema")), "not scored"),
    ],
)
def test_other_or_damaged_run_is_refused(damage: Callable[[Path], Any], kind: str, tmp_path: Path) -> None:
    damage(write_run(tmp_path / "run", compared=False))
    with assert_refused(ChestfedError, kind):
        runs = open_runs([tmp_path / "run"])
        make_header(runs, make_benchmark(), SubmittedMethod(name="ours"))
        make_scores(runs, make_benchmark(), {})


def test_runs_of_two_studies_are_refused(tmp_path: Path) -> None:
    first, second = write_run(tmp_path / "a"), write_run(tmp_path / "b", seed=2, lr=0.2)
    for runs in ([first, second], [first, first]):
        with assert_refused(ChestfedError, "different studies"):
            open_runs(runs)


def test_k_that_was_not_run_is_refused(tmp_path: Path) -> None:
    runs = open_runs([write_run(tmp_path / "run", compared=False)])
    with assert_refused(ChestfedError, "K is missing", k=5):
        make_header(runs, make_benchmark(k=[1, 5]), SubmittedMethod(name="ours"))


def test_secret_names_become_common_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [bytes([n]) * 16 for n in range(IMAGES)]
    run, split = write_run(tmp_path / "run", compared=False), make_split()
    for k in (1, 2):
        file = run / f"k{k}" / "predictions.parquet"
        secret = [key_for(public=False).name("image", source) for source in sources]
        pd.read_parquet(file).assign(image=secret).to_parquet(file, index=False)
    seal_run(run)
    common = [PUBLISHED.name("image", source) for source in sources]
    split = Split(split.frame.assign(image=common), pack_keys(sources), Origin.REAL)
    benchmark = make_benchmark(target={"digest": digest_split(split.frame, NAMES)})
    scores = make_scores(open_runs([run]), benchmark, {"site0": split})
    assert sorted(scores.query("k == 2")["image"]) == sorted(common)
    expected = pd.read_parquet(run / "k2" / "predictions.parquet")["score_edema"].to_numpy()
    values = scores.query("k == 2").set_index("image").loc[common, "edema"]
    np.testing.assert_array_equal(values.to_numpy(np.float32), expected)
    make_key(tmp_path / "other")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "other"))
    with assert_refused(ChestfedError, "other key", hospital="site0"):
        make_scores(open_runs([run]), benchmark, {"site0": split})


# ---- files that are refused --------------------------------------------------------------------------------------


def put(key: str, value: object) -> Callable[[dict[str, Any], Lines], None]:
    def change(header: dict[str, Any], _: Lines) -> None:
        *parents, last = key.split(".")
        for parent in parents:
            header = header[int(parent) if parent.isdigit() else parent]
        header[last] = value

    return change


def rewrite(row: int, column: int, value: str) -> Callable[[dict[str, Any], Lines], None]:
    def change(_: dict[str, Any], lines: Lines) -> None:
        cells = lines[row].split(",")
        cells[column] = value
        lines[row] = ",".join(cells)

    return change


def add_labels(_: dict[str, Any], lines: Lines) -> None:
    lines[:] = [f"{line},{'1' if n else 'label_edema'}" for n, line in enumerate(lines)]


@each(
    "change, kind",
    [
        (lambda header, lines: lines.append(lines[-1]), "other images"),
        (lambda header, lines: lines.pop(), "other images"),
        (lambda header, lines: lines.__delitem__(slice(1, IMAGES + 1)), "other images"),
        (rewrite(1, 3, "f" * 32), "other images"),
        (rewrite(1, 1, "3"), "other images"),
        (rewrite(1, 0, "site9"), "other images"),
        (rewrite(1, 4, "nan"), "not a score"),
        (rewrite(1, 4, "inf"), "not a score"),
        (rewrite(1, 4, ""), "not a score"),
        (rewrite(1, 4, "high"), "not a score"),
        (rewrite(1, 2, "9" * 40), "not a score"),
        (rewrite(0, 4, "atelectasis"), "other content"),
        (rewrite(1, 4, "0.5,1"), "other content"),
        (add_labels, "other content"),
        (put("benchmark", "other-v1"), "other benchmark"),
        (put("splits", {"site0": "0" * 64}), "other split"),
        (put("splits", {}), "other split"),
        (put("runs.1.seed", 1), "other content"),
        (put("runs", []), "other content"),
        (put("method.url", "javascript:alert(1)"), "other content"),
        (put("method.name", "=cmd"), "other content"),
        (put("method.notes", "x" * 3000), "other content"),
        (put("more", 1), "other content"),
        (put("format", 2), "other content"),
        (put("runs.0.costs", {"1": {"rounds": float("nan")}}), "other content"),
    ],
)
def test_forged_content_is_refused(change: Any, kind: str, ours: Path, tmp_path: Path) -> None:
    file = forge(Path(shutil.copy(ours, tmp_path)), change)
    with assert_refused(ChestfedError, kind):
        read = read_submission(file, make_benchmark())
        for seed in (1, 2):
            for k in (1, 2):
                read.align_scores("site0", k, seed, make_split().frame["image"].to_list())


def test_changed_part_is_refused(ours: Path, tmp_path: Path) -> None:
    parts = read_parts(ours)
    header = json.loads(parts[HEADER])
    changed = [
        parts | {SCORES: parts[SCORES].replace(b"0.", b"0.1", 1)},
        parts | {HEADER: json.dumps(header | {"sha256": "0" * 64}).encode()},
        parts | {HEADER: json.dumps(header | {"method": {"name": "theirs"}}).encode()},
        parts | {HEADER: json.dumps(header | {"parts": {}}).encode()},
    ]
    for content in changed:
        with assert_refused(ChestfedError, "changed"):
            read_submission(write_parts(tmp_path / "changed.zip", content), make_benchmark())


@each(
    "content, kind",
    [
        (lambda parts: {}, "not a submission"),
        (lambda parts: {SCORES: parts[SCORES]}, "not a submission"),
        (lambda parts: {HEADER: parts[HEADER]}, "not a submission"),
        (lambda parts: parts | {"../../evil.py": b""}, "not a submission"),
        (lambda parts: parts | {"/etc/passwd": b""}, "not a submission"),
        (lambda parts: {f"../{name}": part for name, part in parts.items()}, "not a submission"),
        (lambda parts: parts | {HEADER: b"[" * 200_000}, "other content"),
        (lambda parts: parts | {HEADER: b"\xff{}"}, "other content"),
        (lambda parts: parts | {HEADER: b"[]"}, "other content"),
        (lambda parts: parts | {HEADER: b'{"sha256": NaN}'}, "other content"),
        (lambda parts: parts | {HEADER: b"9" * 10_000}, "other content"),
    ],
)
def test_other_archive_is_refused(content: Any, kind: str, ours: Path, tmp_path: Path) -> None:
    parts = read_parts(ours)
    with assert_refused(ChestfedError, kind):
        read_submission(write_parts(tmp_path / "forged.zip", content(parts)), make_benchmark())
    assert not list(tmp_path.parent.rglob("evil.py"))


def test_damaged_archive_is_refused(ours: Path, tmp_path: Path) -> None:
    file = Path(shutil.copy(ours, tmp_path))
    content = file.read_bytes()
    for place in range(0, len(content), len(content) // 40):
        damaged = content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]
        file.write_bytes(damaged)
        try:
            read = read_submission(file, make_benchmark())
        except ChestfedError as error:
            assert error.kind, error  # noqa: PT017
        else:  # what the directory says besides names, sizes and checksums is not used
            assert read.header.seeds == [1, 2]
    for damaged in (b"", content[:100], content[: len(content) // 2], b"PK" * 100):
        file.write_bytes(damaged)
        with assert_refused(ChestfedError, "not a submission"):
            read_submission(file, make_benchmark())


def test_bomb_and_huge_file_are_refused(ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = read_parts(ours)
    monkeypatch.setattr(submission, "LIMIT", 1 << 20)
    bomb = write_parts(tmp_path / "bomb.zip", parts | {SCORES: bytes(1 << 21)})
    assert bomb.stat().st_size < 1 << 16
    huge = tmp_path / "huge.zip"
    with zipfile.ZipFile(huge, "w") as archive:
        archive.writestr(SCORES, bytes(1 << 21))
    for file in (bomb, huge):
        with assert_refused(ChestfedError, "too large"):
            read_submission(file, make_benchmark())


# ---- AUCs alone --------------------------------------------------------------------------------------------------


def submit_aucs(runs: Path, folder: Path) -> Path:
    header = make_header(open_runs([runs / "run-1"]), make_benchmark(disclosure="aucs"), SubmittedMethod(name="ours"))
    write_submission(folder / "aucs.zip", header, pd.DataFrame())
    return folder / "aucs.zip"


def test_aucs_alone_have_no_row_per_image(runs: Path, tmp_path: Path) -> None:
    file = submit_aucs(runs, tmp_path)
    parts = read_parts(file)
    assert [*parts] == [HEADER]
    assert not any(image.encode() in parts[HEADER] for image in make_split().frame["image"])
    read = read_submission(file, make_benchmark(disclosure="aucs"))
    assert read.rows["site0", 2, 1].aucs == RunFolder(runs / "run-1").row(2).aucs
    with assert_refused(ChestfedError, "not a submission"):  # a file with scores where none may be
        read_submission(runs / "ours.zip", make_benchmark(disclosure="aucs"))


@each(
    "change",
    [
        lambda header, _: header["results"].pop(),
        lambda header, _: header["results"].append(header["results"][0]),
        put("results.0.hospital", "site9"),
        put("results.0.row.aucs.0.value", 1.5),
        put("results.0.row.aucs.0.positives", 0),
        put("results.0.row.aucs.0.positives", None),
        put("results.0.row.aucs.0.disease", "pneumonia"),
        put("results.0.row.aucs", []),
        put("results.0.row", {}),
    ],
)
def test_forged_aucs_are_refused(change: Any, runs: Path, tmp_path: Path) -> None:
    with assert_refused(ChestfedError, "other content"):
        read_submission(forge(submit_aucs(runs, tmp_path), change), make_benchmark(disclosure="aucs"))
