"""Opening a hospital's table: every format comes out as the same strings, and what is unclear is a problem."""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chestfed.data.sites.label_files import columns
from chestfed.data.sites.label_files import text as limits
from chestfed.data.sites.label_files.open import FILE_NAME, OpenedTable, open_table
from chestfed.data.sites.label_files.source import Source
from chestfed.data.sites.label_files.text import FILE, ROW
from chestfed.data.sites.tables.schema import FileFormat
from tests.cases import each
from tests.data.sites.own_tables import problems, wide
from tests.data.sites.small_sites import load_bundled

N = None
FRAME = pd.DataFrame({"image": ["1.png", "2.png"], "edema": pd.array([1, None], "Int64"), "age": [63, 40]})
ROWS = [["1.png", "1", "63"], ["2.png", N, "40"]]


def open_files(folder: Path, files: Mapping[str, bytes] | str, **options: Any) -> tuple[Source, OpenedTable | None]:
    """Write the files and open the first, or open the one that is named."""
    for name, content in {} if isinstance(files, str) else files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    source = Source(load_bundled("chexpert"), folder)
    keep_going = options.pop("keep_going", False)
    source.keep_going = keep_going
    name = files if isinstance(files, str) else next(iter(files))
    return source, open_table(source, [folder / name], FileFormat(**options))


def cells(table: OpenedTable | None, *more: str) -> list[list[object]]:
    assert table is not None
    names = [name for name in table.frame.columns if name not in (ROW, FILE)]
    frame = table.frame[[*names, *more]].astype(object)
    return frame.where(frame.notna(), None).to_numpy().tolist()


def kinds(source: Source) -> list[tuple[str, int | None]]:
    return [(problem.kind, problem.row) for problem in source.problems]


WRITERS: dict[str, Callable[[Path], object]] = {
    "t.csv": lambda path: FRAME.to_csv(path, index=False),
    "t.txt": lambda path: FRAME.to_csv(path, index=False, sep="|"),
    "t.tsv": lambda path: FRAME.to_csv(path, index=False, sep="\t", encoding="utf-16"),
    "t.csv.gz": lambda path: FRAME.to_csv(path, index=False, sep=";"),
    "t.json": lambda path: FRAME.to_json(path, orient="records"),
    "t.ndjson": lambda path: FRAME.to_json(path, orient="records", lines=True),
    "t.json.gz": lambda path: FRAME.to_json(path, orient="records"),
    "t.parquet": lambda path: FRAME.to_parquet(path, index=False),
    "t.feather": lambda path: FRAME.to_feather(path),
    "t.xlsx": lambda path: FRAME.to_excel(path, index=False),
}


@each("name", WRITERS)
def test_formats_hold_the_same_strings(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name)
    source, table = open_files(tmp_path, name)
    assert (cells(table), source.problems) == (ROWS, [])
    assert table is not None
    assert table.frame[ROW].tolist() == [2, 3]
    assert table.frame[FILE].str.startswith(name).all()


@each("name", WRITERS)
def test_the_content_tells_the_format(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name)
    if name.endswith(".gz"):
        return
    (tmp_path / name).rename(tmp_path / "export.dat")
    assert cells(open_files(tmp_path, "export.dat")[1]) == ROWS


TEXT = "name;größe\nmünchen;1\n"


@each(
    ("content", "options", "row"),
    [
        (TEXT.encode(), {}, 2),
        (TEXT.encode("utf-8-sig"), {}, 2),
        (TEXT.encode("latin-1"), {}, 2),
        (TEXT.encode("utf-16"), {}, 2),
        (TEXT.encode("utf-16-le"), {"encoding": "utf-16-le"}, 2),
        (TEXT.replace("\n", "\r\n").encode(), {}, 2),
        (TEXT.replace("\n", "\r").encode(), {}, 2),
        (f"sep=;\r\n{TEXT}".encode(), {}, 2),
        (f"Export of today\n\n{TEXT}".encode(), {"header_row": 3}, 4),
        (f'"a title\nof two lines"\n{TEXT}'.encode(), {"header_row": 2}, 3),
        (TEXT.replace("ü", "u\u0308").replace("ö", "o\u0308").encode(), {}, 2),
        (TEXT.replace("1\n", " 1 \n;\n").encode(), {}, 2),
        (TEXT.replace(";", "\t").encode(), {}, 2),
        (TEXT.replace(";", "#").encode(), {"delimiter": "#"}, 2),
    ],
)
def test_text_is_read_in_every_usual_form(tmp_path: Path, content: bytes, options: dict[str, Any], row: int) -> None:
    source, table = open_files(tmp_path, {"t.csv": content}, **options)
    assert (cells(table, ROW), source.problems) == ([["münchen", "1", row]], [])
    assert table is not None
    assert list(table.frame.columns[:2]) == ["name", "größe"]


@each(
    ("content", "options", "expected"),
    [
        (b"", {}, [("empty file", N)]),
        (b"a,b\n1,2\n", {"header_row": 9}, [("empty file", N)]),
        (b"a,b\n1,2\n3\n\n4,5,6\n", {}, [("malformed row", 3), ("malformed row", 5)]),
        (b"a,b\n1,2\n1,2\n3;4\n", {}, [("mixed delimiters", 4)]),
        (b"title\na,b\n1,2\n3\n", {"header_row": 2}, [("malformed row", 4)]),
        (b"a,b\n1,2\n3,4\n5,6\n" + b'"7,8\n', {}, [("malformed CSV", 5)]),
        (b"a;b|c\n1;2|3\n", {}, [("wrong delimiter", N)]),
        (b"a;b\n1;2\n", {"delimiter": ","}, [("wrong delimiter", N)]),
        (b'"a;b"\n"1;2"\n', {}, [("wrong delimiter", N)]),
        ("a,b\nřídké nález,1\n".encode("cp1250"), {}, [("wrong encoding", N)]),
        ("a,b\nřídké nález,1\n".encode("cp1250"), {"encoding": "cp1250"}, []),
        (b"a,b\n\xfc,1\n", {"encoding": "utf-8"}, [("wrong encoding", N)]),
        ("a,b\nü,1\n".encode(), {"encoding": "cp1252"}, [("wrong encoding", N)]),
        ("a,b\nü,1\n".encode() + b"\xfc,2\n", {}, [("wrong encoding", N)]),
        ("a,b\nü,1\n".encode() + b"\xfc,2\n3\n", {"keep_going": True}, [("wrong encoding", 3), ("malformed row", 4)]),
        (TEXT.encode("utf-16")[:-1], {}, [("wrong encoding", N)]),
        (TEXT.encode("utf-16-le"), {}, [("unreadable file", N)]),
        (b"\x00\x01\x02", {}, [("unreadable file", N)]),
        (b"\x1f\x8b nonsense", {}, [("unreadable file", N)]),
        (gzip.compress(TEXT.encode() * 99)[:-12], {}, [("unreadable file", N)]),
        (b"PAR1 damaged", {}, [("unreadable file", N)]),
        (b"ARROW1 damaged", {}, [("unreadable file", N)]),
        (b"SQLite format 3\0 whole", {}, [("unreadable file", N)]),
        (b"<stata_dta> whole", {}, [("unreadable file", N)]),
        (b"$FL2 whole", {}, [("unreadable file", N)]),
        (b"PK\x03\x04 damaged", {}, [("unreadable file", N)]),
        (b"\xd0\xcf\x11\xe0 damaged", {}, [("unreadable file", N)]),
        (b"[1, 2]", {}, [("malformed JSON", N)]),
        (b'[{"a": "1.png"', {}, [("malformed JSON", N)]),
        (b"[" * 100_000, {}, [("malformed JSON", N)]),
        (b'[{"\\ud800": 1}]', {}, [("malformed JSON", N)]),
        (b'{"a": 1}\n{"a": 2, "a": 3}', {}, [("malformed JSON", N)]),
    ],
)
def test_what_is_unclear_is_a_problem(
    tmp_path: Path, content: bytes, options: dict[str, Any], expected: list[tuple[str, int | None]]
) -> None:
    source, _ = open_files(tmp_path, {"t.csv": content}, **options)
    assert kinds(source) == expected
    assert all(problem.advice for problem in source.problems)


def test_a_detected_encoding_is_noted(tmp_path: Path) -> None:
    source, _ = open_files(tmp_path, {"t.csv": TEXT.encode("latin-1")})
    assert len(source.remarks) == 1
    (problem,) = open_files(tmp_path, {"t.csv": "a,b\nřídké,1\n".encode("cp1250")})[0].problems
    assert "cp1252 or cp1250" in problem.message


def test_repeated_and_empty_names_are_kept(tmp_path: Path) -> None:
    _, table = open_files(tmp_path, {"t.csv": b"a,,a\n1,2,3\n"})
    assert table is not None
    assert table.frame.columns.tolist() == ["a", "", "a", ROW, FILE]


VALUES = pa.table(
    {
        "whole": [1.0, None],
        "single": pa.array([0.1, float("nan")], pa.float32()),
        "large": [2.0**60, 1e-7],
        "flags": [True, None],
        "dates": [date(2024, 2, 29), None],
        "lists": [["x", "ü"], []],
        "words": pa.array(["q", None]).dictionary_encode(),
    }
)
VALUE_CELLS = [
    ["1", "0.1", "1.152921504606847e+18", "true", "2024-02-29", '["x", "\\u00fc"]', "q"],
    [N, N, "1e-07", N, N, "[]", N],
]


def test_typed_values_become_plain_text(tmp_path: Path) -> None:
    pq.write_table(VALUES.append_column("bytes", pa.array([b"1", b"2"])), tmp_path / "t.parquet", row_group_size=1)
    _, table = open_files(tmp_path, "t.parquet")
    assert cells(table) == VALUE_CELLS
    assert table is not None
    assert "'bytes'" in table.notes[0]


def test_feather_is_measured_before_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({"image": ["1.png"] * 200_000, "edema": np.zeros(200_000, np.int64)})
    for compression in ("zstd", "lz4"):
        frame.to_feather(tmp_path / "t.feather", compression=compression)
        assert columns._measure_feather(tmp_path / "t.feather") >= 8 * len(frame)
        monkeypatch.setattr(limits, "LARGEST", 1_000_000)
        with monkeypatch.context() as patch:
            patch.setattr("pyarrow.feather.read_table", lambda *_, **__: pytest.fail("it was opened"))
            source, _ = open_files(tmp_path, "t.feather")
        assert kinds(source) == [("unreadable file", N)]
        monkeypatch.undo()
        assert open_files(tmp_path, "t.feather")[0].problems == []
    frame["image"] = frame["image"].astype("category")
    frame.to_feather(tmp_path / "t.feather")
    assert columns._measure_feather(tmp_path / "t.feather") >= 8 * len(frame)


COCO = {
    "images": [{"id": 7, "file_name": "1.png"}, {"id": 8, "file_name": "2.png"}],
    "categories": [{"id": 1, "name": "Edema"}, {"id": 2, "name": "Mass"}],
    "annotations": [{"image_id": 7, "category_id": c, "bbox": [1, 2, 3, 4]} for c in (1, 1, 2)],
}
REPORT = {
    "resourceType": "DiagnosticReport",
    "subject": {"reference": "Patient/1"},
    "conclusionCode": [{"text": "Edema"}, {"text": "Mass"}],
}
FHIR_NAMES = ["resourceType", "subject.reference", "conclusionCode.0.text", "conclusionCode.1.text"]


@each(
    ("content", "names", "expected"),
    [
        (COCO, ["id", "file_name", "category"], [["7", "1.png", "Edema"], ["7", "1.png", "Mass"], ["8", "2.png", N]]),
        ({"resourceType": "Bundle", "entry": [{"resource": REPORT}]}, FHIR_NAMES, N),
        (REPORT, FHIR_NAMES, N),
        ([{"a": {"b": 1}, "c": [1, "x"]}], ["c", "a.b"], [['[1, "x"]', "1"]]),
        ({**COCO, "annotations": [{"image_id": 9, "category_id": 1}]}, N, [("unreadable file", N)]),
        ({**COCO, "categories": []}, N, [("unreadable file", N)]),
        ({**COCO, "images": COCO["images"] * 2}, N, [("unreadable file", N)]),
    ],
)
def test_nested_json_is_flattened(tmp_path: Path, content: Any, names: list[str] | None, expected: Any) -> None:
    source, table = open_files(tmp_path, {"t.json": json.dumps(content).encode()})
    if names is None:
        assert kinds(source) == expected
        return
    assert table is not None
    assert table.frame.columns.tolist()[:-2] == names
    assert cells(table) == (expected or [["DiagnosticReport", "Patient/1", "Edema", "Mass"]])


@each(
    ("files", "expected", "problems"),
    [
        ({"a.csv": b"x,y\n1,2\n", "b.csv": b"y,x\n4,3\n"}, [["1", "2", "a.csv", 2], ["3", "4", "b.csv", 2]], []),
        ({"a.csv": b"x\n1\n", "b.tsv": b"x\n2\n", "c.png": b""}, [["1", "a.csv", 2], ["2", "b.tsv", 2]], []),
        ({"a.csv": b"x\n1\n", ".b.csv": b"z\n2\n", "_c/d.csv": b"z\n"}, [["1", 2]], []),
        ({"s=1/a.csv": b"x\n1\n", "s=2/a.csv": b"x\n1\n"}, [["1", s, "a.csv", 2] for s in "12"], []),
        ({"a.csv": b"x,y\n1,2\n", "b.csv": b"x,z\n1,2\n", "c.csv": b"x\n"}, N, [("other header", 1)] * 2),
        ({"a.csv": b"x,y\n1\n", "b.csv": b"\xff\xfe\x00"}, N, [("malformed row", 2), ("wrong encoding", N)]),
        ({"a.png": b""}, N, [("missing file", N)]),
    ],
)
def test_a_folder_is_one_table(tmp_path: Path, files: dict[str, bytes], expected: Any, problems: list[Any]) -> None:
    for name, content in files.items():
        (tmp_path / "t" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / name).write_bytes(content)
    source, table = open_files(tmp_path, "t")
    assert kinds(source) == problems
    assert expected is None or cells(table, ROW) == expected
    assert table is None or len(files) == 1 or FILE_NAME in table.frame or len(expected) == 1


def test_a_zip_names_the_unzip_command(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as file:
        file.writestr("1.png", b"")
    (problem,) = open_files(tmp_path, "images.zip")[0].problems
    assert "unzip 'images.zip' -d 'images'" in problem.advice


def test_a_site_of_zipped_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "images.zip").touch()
    assert [problem.kind for problem in problems(tmp_path, {}, [wide(1)])] == ["zipped images"]
    (tmp_path / "site" / "1.png").touch()
    assert problems(tmp_path, {}, [wide(1)]) == []


@each(
    ("body", "kind"),
    [
        ("return pd.read_csv(paths[0], sep='#')", N),
        ("return {}['Jane Doe']", "unreadable file"),
        ("return 1", "unreadable file"),
    ],
)
def test_a_function_may_prepare_the_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, kind: str | None
) -> None:
    name = f"prepare_{abs(hash(body))}"
    (tmp_path / f"{name}.py").write_text(f"import pandas as pd\n\ndef read(paths):\n    {body}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    source, table = open_files(tmp_path, {"t.dat": b"a#b\n1#2\n"}, prepare=f"{name}:read")
    assert [problem.kind for problem in source.problems] == ([] if kind is None else [kind])
    assert kind is not None or cells(table) == [["1", "2"]]
    assert "Jane" not in str(source.problems)


def test_prepare_names_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import json\n\ndef read(paths):\n    return json.loads('{')\n"
    (tmp_path / "prepare_json.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    source, _ = open_files(tmp_path, {"t.dat": b"1"}, prepare="prepare_json:read")
    (problem,) = source.problems
    assert "JSONDecodeError (line 4)" in problem.message


def test_many_matching_files_are_three_names(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    for number in range(40):
        (tmp_path / "site" / f"{number:02}.csv").touch()
    (problem,) = problems(tmp_path, {}, None, "*.csv")
    assert problem.kind == "ambiguous label file"
    assert problem.message.endswith("00.csv, 01.csv, 02.csv and 37 more")
    assert "the folder of all of them" in problem.advice


LARGEST = 1_000_000


def repeated(word: str, rows: int) -> pa.Array:
    return pa.array([word]).take(pa.array(np.zeros(rows, np.int32)))


BOMBS = {
    "words": repeated("x" * 206, 50_000),
    "categories": pa.DictionaryArray.from_arrays(np.zeros(50_000, np.int32), ["x" * 206]),
    "lists": pa.ListArray.from_arrays([0, 25_000, 50_000], repeated("x" * 206, 50_000)),
    "numbers": pa.array(np.zeros(500_000)),
    "empty words": pa.nulls(1_500_000, pa.string()),
}


@each("name", BOMBS)
def test_a_parquet_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(limits, "LARGEST", LARGEST)
    pq.write_table(pa.table({"a": [1] * len(BOMBS[name]), "b": BOMBS[name]}), tmp_path / "t.parquet")
    assert (tmp_path / "t.parquet").stat().st_size < LARGEST / 10
    before = pa.total_allocated_bytes()
    assert kinds(open_files(tmp_path, "t.parquet")[0]) == [("unreadable file", N)]
    assert pa.total_allocated_bytes() - before < LARGEST


@each("content", [bytes(LARGEST + 1), gzip.compress(bytes(40 * LARGEST)), gzip.compress(bytes(10 * LARGEST)) * 4])
def test_a_text_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(limits, "LARGEST", LARGEST)
    assert kinds(open_files(tmp_path, {"t.csv": content})[0]) == [("unreadable file", N)]
