"""Damaged downloads of a release without a digest: each is removed, and the server is asked once more."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from chestfed.core.errors import ChestfedError, DamagedError
from chestfed.data.films.fetch import RECEIPT, fetch_release
from tests.cases import assert_refused, each
from tests.data.films.server import film, make_release, served, tarred, zipped

FILES = {f"r/png/{number}.png": film(number) * 3 for number in range(8)}


def _pack(mode: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in FILES.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def _deflate(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def _flip(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :]


def _patch_zip(offset: int, value: int) -> bytes:
    """A field of every entry of a zip archive, in its local header and in the directory."""
    content = bytearray(_deflate(FILES))
    for mark, place in ((b"PK\x03\x04", offset), (b"PK\x01\x02", offset + 2)):
        at = content.find(mark)
        while at >= 0:
            struct.pack_into("<H", content, at + place, value)
            at = content.find(mark, at + 4)
    return bytes(content)


PACKED = {"tar.gz": _pack("w:gz"), "tar.bz2": _pack("w:bz2"), "tar.xz": _pack("w:xz"), "zip": _deflate(FILES)}
PACKED["stored zip"] = zipped(FILES)
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "half": lambda content: content[: len(content) // 2],
    "end missing": lambda content: content[:-20],
    "first bytes": lambda content: b"\xff" * 8 + content[8:],
    "bit in the middle": lambda content: _flip(content, len(content) // 2),
    "bit at a third": lambda content: _flip(content, len(content) // 3),
    "zeros": lambda content: content[: len(content) // 2] + bytes(300) + content[len(content) // 2 + 300 :],
}
CASES = {f"{kind}, {name}": damage(content) for kind, content in PACKED.items() for name, damage in DAMAGES.items()}
CASES |= {
    "wrong CRC of gzip": PACKED["tar.gz"][:-8] + bytes(4) + PACKED["tar.gz"][-4:],
    "cut tar": _pack("w:")[:1000],
    "header of a tar": _flip(_pack("w:"), 5),
    "encrypted": _patch_zip(6, 1),
    "unknown method": _patch_zip(8, 99),
    "page of a proxy": b"<html>502 Bad Gateway</html>",
    "one letter": b"x",
    "long name": tarred({f"r/{'n' * 300}/a.png": b"x"}),
    "file as folder": tarred({"r/png": b"x", "r/png/a.png": b"x"}),
    "folder as file": tarred({"r/png/a.png/b.png": b"x", "r/png/a.png": b"x"}),
}


@each(("name", "damaged"), CASES.items())
def test_damaged_download_is_asked_for_again(tmp_path: Path, name: str, damaged: bytes) -> None:
    assert len(CASES) >= 37
    with served() as web:
        web.once["/hannover"], web.files["/hannover"] = damaged, _pack("w:gz")
        release = make_release(web, "hannover", digest=None, size=30_000, most=10**6, strip=1, keep=["*"])
        assert fetch_release(release, tmp_path, trust=True) == 1
        assert len(web.asked) == 2
    found = {path.name: path.read_bytes() for path in (tmp_path / release.folder).rglob("*.png")}
    assert found == {Path(path).name: content for path, content in FILES.items()}


def test_download_damaged_twice_is_no_full_disk(tmp_path: Path) -> None:
    with served() as web:
        web.files["/hannover"] = CASES["wrong CRC of gzip"]
        release = make_release(web, "hannover", digest=None, size=30_000, most=10**6, strip=1, keep=["*"])
        with assert_refused(DamagedError, "damaged archive"):
            fetch_release(release, tmp_path, trust=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [[], None, {"a": {}}, {"a": 5}, {"a": {"digest": 1, "places": ["x"]}}])
def test_receipt_of_another_shape_is_named(tmp_path: Path, content: object) -> None:
    with served() as web:
        release = make_release(web, "hannover", digest=None)
        (tmp_path / release.folder).mkdir()
        (tmp_path / release.folder / RECEIPT).write_text(json.dumps(content))
        with assert_refused(ChestfedError, "damaged receipt", file=RECEIPT):
            fetch_release(release, tmp_path, trust=True)
