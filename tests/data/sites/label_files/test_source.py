"""Finding and reading label files, whatever state they are in."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from chestfed.data.sites.label_files.encodings import likely
from chestfed.data.sites.label_files.source import Source
from tests.cases import each
from tests.data.sites.small_sites import load_bundled, write_files

TEXT = "name,value\nmünchen,1\n"


GERMAN = "Datei;Ödem;Erguß;Größe;Befund\n1.png;1;0;2;Herz vergrößert\n"
SPANISH = "Archivo;Tamaño;Hallazgo\n1.png;1;consolidación\n2.png;2;neumonía «basal»\n"
FRENCH = "Fichier;Âge;Constatation\n1.png;63 ans;Cœur augmenté\n2.png;40;épanchement à gauche\n3.png;12;œdème\n"
CZECH = "Soubor;Pohlaví;Výpotek;Zvětšené srdce\n1.png;žena;1;0\n"
RUSSIAN = "Файл;Пол;Отек;Выпот\n1.png;Ж;1;0\n2.png;М;увеличение сердца;ателектаз\n"
WRITTEN = {
    **dict.fromkeys(("cp1252", "mac_roman", "cp850"), (GERMAN, SPANISH)),
    **dict.fromkeys(("cp1250", "mac_latin2", "cp852", "iso8859_2"), (CZECH,)),
    **dict.fromkeys(("cp1251", "koi8_r", "cp866", "mac_cyrillic"), (RUSSIAN,)),
}


@each("encoding", list(WRITTEN))
def test_the_written_encoding_is_a_candidate(encoding: str) -> None:
    for text in (*WRITTEN[encoding], *((FRENCH,) if encoding in ("cp1252", "mac_roman") else ())):
        assert text in [text.encode(encoding).decode(name) for name in likely(text.encode(encoding))]


def make_source(folder: Path, content: bytes | None, name: str = "train.csv") -> Source:
    write_files(folder, {} if content is None else {name: content})
    return Source(load_bundled("chexpert"), folder / "site")


@each(
    "content",
    [
        TEXT.encode(),
        TEXT.encode("utf-8-sig"),
        gzip.compress(TEXT.encode()),
        TEXT.replace("\n", "\r\n").encode(),
        TEXT.replace("\n", "\r").encode(),
        TEXT.replace("name,", ' name ,"other, one",').replace("n,1", "n,,,1").encode(),
        TEXT.replace("\n", "\r\n").encode("utf-16"),
        b"\xfe\xff" + TEXT.encode("utf-16-be"),
    ],
)
def test_text_is_read_in_every_usual_form(tmp_path: Path, content: bytes) -> None:
    source = make_source(tmp_path, content)
    frame = source.read(source.root / "train.csv", ["name", "value"])
    assert frame is not None
    assert frame.to_dict("records") == [{"name": "münchen", "value": "1", "row": 2}]
    assert source.problems == []


@each(
    ("content", "message"),
    [
        (b"", "has no header line"),
        (b"name,value\n", "has a header and no rows"),
        (TEXT.encode("utf-16")[:-1], "is UTF-16, but damaged or truncated"),
        ("\0".encode("utf-16") * 9, "is not text"),
        (TEXT.encode("latin-1"), "is not UTF-8 (line 2): cp1252?"),
        (b"name,value\nm\x81\x98\xb0nchen,1\n", "is not UTF-8 (line 2)"),
        (b"PK\x03\x04\x00\x00", "is not text but a zip"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a workbook"),
        (gzip.compress(TEXT.encode() * 99)[:-12], "is damaged or truncated"),
        (b"\x1f\x8b nonsense", "is damaged or truncated"),
        *(
            (b"name,value\na,1\n" + rows, "a quotation mark opens a cell that holds")
            for rows in (b'"b,2\n', b'c,"3\nd,4\n', b'e,"5\nf,"6\n')
        ),
        (b'name,value\na,"1\n2"\n"b\n,3\n', "a quotation mark opens a cell that holds"),
    ],
)
def test_what_cannot_be_read_is_one_problem(tmp_path: Path, content: bytes, message: str) -> None:
    source = make_source(tmp_path, content)
    source.read(source.root / "train.csv", ["name", "value"])
    (problem,) = source.problems
    assert problem.file == "train.csv"
    assert message in problem.message
    assert problem.advice


#: Encoding -> words of a radiology export.
WORDS = {
    "shift_jis": "胸部正面 側面 男 女 心拡大 胸水 無気肺 異常なし 肺水腫あり 浸潤影",
    "euc_jp": "胸部正面 側面 男 女 心拡大 胸水 無気肺 異常なし 肺水腫あり 浸潤影",
    "gb18030": "胸部正位 侧位 男 女 心脏增大 胸腔积液 肺不张 正常 检查号 肺水肿 实变",
    "big5": "胸部正面 側面 男 女 心臟肥大 肋膜積液 肺塌陷 正常 檢查號 肺水腫",
    "euc_kr": "흉부정면 측면 남 여 심비대 흉수 무기폐 정상 환자번호 폐부종",
    "cp1250": "výpotek nález bez ložiskových změn muž žena příznaky zvětšené řídké płyn",
    "cp1251": "выпот кардиомегалия норма мужской женский ателектаз отёк лёгких",
    "cp1252": "männlich weiblich Erguß vergrößert Röntgen unauffällig épanchement numéro niño tórax",
    "cp1253": "πλευριτική συλλογή καρδιομεγαλία φυσιολογικό άνδρας γυναίκα",
    "cp1254": "efüzyon kadın erkek ödem şüpheli göğüs",
    "cp1255": "תפליט מוגדל תקין זכר נקבה",
    "cp1256": "انصباب تضخم القلب طبيعي ذكر",
    "koi8_r": "выпот кардиомегалия норма мужской женский ателектаз отёк",
    "cp874": "ปกติ ชาย หญิง หัวใจโต",
}


@each("encoding", WORDS)
@each("count", [2, 5, 300])
def test_an_encoding_is_detected_or_refused(encoding: str, count: int) -> None:
    draws = random.Random(f"{encoding} {count}")
    words = draws.choices([word for word in WORDS[encoding].split() if not word.isascii()], k=count)
    text = "image,finding\n" + "".join(f"{place}.png,{word}\n" for place, word in enumerate(words))
    encodings = likely(text.encode(encoding))
    assert text in [text.encode(encoding).decode(name) for name in encodings]
    if encoding in ("shift_jis", "gb18030", "big5", "cp1251", "cp1256") and count == 300:
        assert len(encodings) == 1


def test_every_ragged_row_is_named(tmp_path: Path) -> None:
    source = make_source(tmp_path, b"name,value\na,1\nb\n\nc,3,4\nd,5\n")
    frame = source.read(source.root / "train.csv", ["name"])
    assert frame is not None
    assert list(zip(frame["name"], frame["row"], strict=True)) == [("a", 2), ("d", 6)]
    assert [problem.row for problem in source.problems] == [3, 5]


def test_a_cell_may_hold_line_breaks(tmp_path: Path) -> None:
    source = make_source(tmp_path, b'name,report,value\na,"one\ntwo",1\nb,"three",2\n')
    frame = source.read(source.root / "train.csv", ["name", "value"])
    assert frame is not None
    assert frame["value"].tolist() == ["1", "2"]


def test_a_plain_file_wins_over_its_gz(tmp_path: Path) -> None:
    source = make_source(tmp_path, TEXT.encode())
    write_files(tmp_path, {"train.csv.gz": gzip.compress(TEXT.encode())})
    assert source.find("train") == source.root / "train.csv"


def test_an_optional_file_may_be_missing(tmp_path: Path) -> None:
    source = make_source(tmp_path, None)
    assert source.find("valid", required=False) is None
    assert source.problems == []
    assert source.find("train") is None
    assert "looked for train.csv, CheXpert-v1.0*/train.csv" in source.problems[0].message


def test_a_named_label_file_has_to_exist(tmp_path: Path) -> None:
    source = make_source(tmp_path, None)
    assert source.read(tmp_path / "mine.csv", ["name"]) is None
    assert "no such file" in source.problems[0].message


def test_an_endless_header_cell_is_a_problem(tmp_path: Path) -> None:
    source = make_source(tmp_path, b'"' + b"a" * 200_000 + b'",value\nx,1\n')
    assert source.read(source.root / "train.csv", ["value"]) is None
    assert [problem.kind for problem in source.problems] == ["empty file"]


def test_a_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_source(tmp_path, TEXT.encode())
    read: list[Path] = []
    whole = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (read.append(path), whole(path))[1])
    assert source.header(source.root / "train.csv") == ["name", "value"]
    assert source.read(source.root / "train.csv", ["name"]) is not None
    assert len(read) == 1


def test_a_header_hides_no_wrong_encoding(tmp_path: Path) -> None:
    source = make_source(tmp_path, TEXT.encode() + "groß,2\n".encode("latin-1"))
    source.keep_going = True
    source.header(source.root / "train.csv")
    source.read(source.root / "train.csv", ["name"])
    assert [problem.kind for problem in source.problems] == ["wrong encoding"]


def test_a_repeated_column_is_a_problem(tmp_path: Path) -> None:
    source = make_source(tmp_path, b"name,value,value\nx,1,0\n")
    assert source.read(source.root / "train.csv", ["name"], ["value"]) is None
    assert [(problem.kind, problem.row) for problem in source.problems] == [("duplicate column", 1)]
