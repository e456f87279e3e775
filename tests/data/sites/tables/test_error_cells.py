"""Error values in the two workbook formats where calamine reads them as empty cells."""

from __future__ import annotations

import base64
import gzip
import struct
import zipfile
from pathlib import Path

from chestfed.data.sites.label_files.error_cells import find_xls_errors
from chestfed.data.sites.label_files.workbook import open_workbook
from chestfed.data.sites.opening import survey_site
from tests.cases import each
from tests.data.sites.own_tables import WIDE, config
from tests.data.sites.tables.test_open_workbook import OFFICE, PACKAGE

#: Written by xlwt: a sheet `Ärzte` with File and Edema, the sixth of seven rows with #N/A, the last empty; and another.
XLS = gzip.decompress(
    base64.b85decode(
        r"ABzY8000000t4+>O-L0{6#nkKnfHf3@0kV~hzMDk1ZIC5eHEyy%xY0cP|w~_qCMr|qFj_^E`y*|(ME97=2e@1s6|1G7J*TVAPAndY!wu=P^WXw"
        r"+{yQ97CtCRnQyq~+&TBVXYSm4?$6AdxnyDHLBl+LLl;6=a$*P<*%YOicas2>I}T?(9i`+1SW}2aX&}QEo>sn&@EG!V&%?ld^94!Z6Qz?FL*HoD"
        r"Zdyegls2Rlx1m#+6nh5lP^v<`w5vws8Ic=A-V^RKk^9ARU1TS53u*v!slL{II*v~m%~DoHQsI%*`5=~d)ZrD!@#P!J<ytt98%mG-p9PI(1!h4b"
        r"*K23(TzaH{S{lMxe0Q3FZ{A#e-W1qZ*RDYJAEow)kNu`$0+Vn~D-OhIR3dJ2iG`QBiE*0^`LJs^Jbup3E#Mg9bjyi|Jwqe51$1ZZ^J&uUJI1nS"
        r"N$=FUL+f2y@78*c)_Yk~KwV&W?n;m-SqUm-epHampjz@tnI#EY>lf~ReS2uIKXpnhld}4|d&FjbDLA;oHK=kGyxjr9Z56p)<W=#yN%9RMYw2A{"
        r"xAfQPOwW{Xu1RSN`RNe6OKmC2Z>9Y7mm`lGr$48*Q9j>0KT(^1pPE54?O7SB&({>%RGYeei}57oX{A?_k0R^;SXrV*Lbu(~8(}pTWe7n1!Eo=m"
        r"ca-KUAHEVkd%R@Cr9DaMW#$_`d_(vl&0p?)=7)UvA>o^vA1d*0`tVKRTbgf{__uucmhi)xZ<Y8D`|!iU=U}poDBUr?RWUmvy;aJN2%Dp%%c#La"
        r"ZV0X8%UF#VHGY+^)fiR2F&Zn1%3=nOiyM^@CA|*6UJno;K!5-N0<146ed-Ch9~5%N<5N{c|JPZhv=sa%S+_WfQM$(Iv$Pvo(m7l#D}FY@Ql2lh"
        r"!aCmnLdJ1=dJe-Fly(f49lvxcR>kkL;);pCH-*Z5{!%&Z{KwD#34mC*r~noK00"
    )
)


def write_record(kind: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    head = bytes([kind]) if kind < 128 else bytes([kind & 0x7F | 0x80, kind >> 7])
    return head + bytes([len(body) & 0x7F | 0x80, len(body) >> 7]) + body


def write_text(text: str) -> bytes:
    return struct.pack("<I", len(text)) + text.encode("utf-16-le")


def make_xlsb(path: Path) -> bytes:
    """The first sheet of `XLS` as an xlsb."""
    lines = [["File", "Edema"], *([f"{n}.png", float(n % 2)] for n in range(1, 6)), ["6.png", None], ["7.png"]]
    rows = b""
    for number, line in enumerate(lines):
        rows += write_record(0, struct.pack("<I", number), bytes(13))
        for place, cell in enumerate(line):
            kind, value = (3, b"\x2a") if cell is None else (6, write_text(cell)) if isinstance(cell, str) else (5, b"")
            rows += write_record(kind, struct.pack("<II", place, 0), value or struct.pack("<d", cell))
    sheet = [write_record(129), write_record(148, struct.pack("<IIII", 0, 7, 0, 1)), write_record(145)]
    sheet += [rows, write_record(146), write_record(130)]
    book = [write_record(131), write_record(143)]
    book += [write_record(156, bytes(4), struct.pack("<I", 1), write_text("r1"), write_text("Ärzte"))]
    book += [write_record(144), write_record(132)]
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("[Content_Types].xml", "<Types/>")
        file.writestr("xl/workbook.bin", b"".join(book))
        file.writestr("xl/worksheets/sheet1.bin", b"".join(sheet))
        text = f'<Relationship Id="r1" Type="{OFFICE}/worksheet" Target="worksheets/sheet1.bin"/>'
        file.writestr("xl/_rels/workbook.bin.rels", f'<Relationships xmlns="{PACKAGE}">{text}</Relationships>')
    return path.read_bytes()


@each("kind", ["xls", "xlsb"])
def test_error_cell_is_no_empty_cell(tmp_path: Path, kind: str) -> None:
    data = XLS if kind == "xls" else make_xlsb(tmp_path / "labels.xlsb")
    (sheet,) = open_workbook(data, "labels", "Ärzte", 1)
    assert sheet.names == ["File", "Edema"]
    assert sheet.cells[1].to_pylist() == ["1", "0", "1", "0", "1", "=", None]


def test_error_cells_are_told_by_sheet() -> None:
    assert find_xls_errors(XLS) == {"Ärzte": [(6, 1)], "Other": [(1, 0)]}


@each("cut", [600, 3000, 5000])
def test_cut_workbook_is_refused(tmp_path: Path, cut: int) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/labels.xls").write_bytes(XLS[:cut])
    survey = survey_site(config(tmp_path, WIDE, "labels.xls"), tmp_path)
    assert [problem.kind for problem in survey.problems] == ["unreadable file"]
