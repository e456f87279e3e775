"""Small files that would become large ones are refused before they do."""

from __future__ import annotations

import multiprocessing
import os
import re
import struct
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom.data import get_testdata_file
from pydicom.encaps import encapsulate, get_frame

from chestfed.core.errors import ImageError
from chestfed.data.dicom.files import meta_uids, refuse_bomb
from chestfed.data.images import decode as module
from chestfed.data.images.decode import decode
from chestfed.data.images.decoding.compressed import MAX_SCANNED_PIXELS, MAX_SCANS, read_size, refuse_scan_bomb
from tests.cases import assert_refused, each
from tests.data.checks.planted import FILES, jpeg_of_scans, picture, png_bomb, save
from tests.data.checks.planted import dicom as film

needs_proc = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="measures by /proc")


def read_peak() -> int:
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(kilobytes) * 1024


def decode_and_tell(path: Path, answer: Connection) -> None:
    """Sends how many bytes decoding needs at its peak, and why the file is refused.

    The highest mark of the process is reset before: the one that `getrusage` gives is never below its parent's.
    """
    Path("/proc/self/clear_refs").write_text("5")
    before, told = read_peak(), ""
    try:
        decode(path)
    except ImageError as error:
        told = str(error)
    answer.send((read_peak() - before, told))


def measure_peak(path: Path) -> tuple[int, str]:
    """`decode_and_tell` in a fork, which has all imports."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    process = fork.Process(target=decode_and_tell, args=(path, theirs))
    process.start()
    theirs.close()
    needed, message = ours.recv()
    process.join(60)
    return needed, message


@needs_proc
@each("name", ["PNG bomb", "huge rows", "deflated bomb", "larger than it says"])
def test_a_bomb_is_refused_in_little_memory(tmp_path: Path, name: str) -> None:
    Image.fromarray(picture(0)).save(tmp_path / "bomb", "PNG")
    FILES[name][0](tmp_path / "bomb")
    needed, message = measure_peak(tmp_path / "bomb")
    assert "refused without" in message
    assert needed < 20_000_000


@pytest.mark.parametrize("side", [6_500, 10_000, 50_000])
def test_a_png_of_too_many_pixels_is_refused(tmp_path: Path, side: int) -> None:
    png_bomb(tmp_path / "a.png", side)
    with assert_refused(ImageError, "too large"):
        decode(tmp_path / "a.png")


def test_a_deflated_file_inflates_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    dataset = film(picture(0))
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.DeflatedExplicitVRLittleEndian
    save(dataset, path)
    size = 2 * picture(0).size
    refuse_bomb(path, size + 2000)
    with assert_refused(ImageError, "too large"):
        refuse_bomb(path, size - 1)
    (length,) = struct.unpack_from("<I", path.read_bytes(), 140)
    path.write_bytes(path.read_bytes()[: 144 + length] + b"\xff" * 300)
    with assert_refused(ImageError, "damaged"):
        refuse_bomb(path, size)


@each(
    ("name", "syntax"),
    [
        ("CT_small.dcm", "1.2.840.10008.1.2.1"),
        ("JPEG2000.dcm", "1.2.840.10008.1.2.4.91"),
        ("image_dfl.dcm", "1.2.840.10008.1.2.1.99"),
        ("no_meta.dcm", None),
    ],
)
def test_the_syntax_is_in_the_file_meta(name: str, syntax: str | None) -> None:
    path = get_testdata_file(name, download=False)
    assert isinstance(path, str)
    assert meta_uids(Path(path))[0] == syntax


@each(
    "name",
    [
        "JPEG2000.dcm",
        "MR_small_jp2klossless.dcm",
        "MR_small_jpeg_ls_lossless.dcm",
        "JPEG-lossy.dcm",
        "SC_rgb_jpeg_dcmtk.dcm",
    ],
)
def test_a_compressed_image_states_its_size(name: str) -> None:
    path = get_testdata_file(name, download=False)
    if path is None:
        pytest.skip(f"pydicom brings no {name}")
    data = pydicom.dcmread(str(path))
    stream = get_frame(data.PixelData, 0, number_of_frames=1)
    assert read_size(stream) == (data.Columns, data.Rows, data.SamplesPerPixel)


@each("stream", [b"", b"\xff\xd8", b"\xff\xd8\xff\xc0", b"\xff\x4f\xff\x51\x00", b"RLE" * 30])
def test_a_stream_that_states_none_has_none(stream: bytes) -> None:
    assert read_size(stream) is None


def test_markers_inside_a_stream_are_ignored() -> None:
    """RLE data may hold any bytes."""
    assert read_size(bytes([2, 0, 0, 0]) + bytes(200) + b"\xff\x4f\xff\x51" + bytes(range(100))) is None


def test_jpeg_2000_boxes_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = film(picture(0))
    data.compress(pydicom.uid.JPEG2000Lossless, encoding_plugin="pylibjpeg")
    save(data, tmp_path / "bare")
    stream = get_frame(data.PixelData, 0, number_of_frames=1)
    boxes = b"\0\0\0\x0cjP  \r\n\x87\n" + b"\0\0\0\x14ftypjp2 \0\0\0\0jp2 "
    given: list[bytes] = []
    decoder = pydicom.pixels.decoders.pylibjpeg._DECODERS[pydicom.uid.JPEG2000Lossless]
    (name,) = decoder
    plain = decoder[name]
    monkeypatch.setitem(decoder, name, lambda src, **more: given.append(bytes(src[:4])) or plain(src, **more))
    for boxed in (stream, boxes + b"\0\0\0\0jp2c" + stream):
        data.PixelData = encapsulate([boxed])
        save(data, tmp_path / "a")
        np.testing.assert_array_equal(decode(tmp_path / "a"), decode(tmp_path / "bare"))
    assert set(given) == {b"\xff\x4f\xff\x51"}
    for cut in (boxes, boxes + b"\0\0\0\0jp2c" + stream[:30], boxes[8:] + stream, b"no such stream"):
        data.PixelData = encapsulate([cut])
        save(data, tmp_path / "a")
        given.clear()
        with assert_refused(ImageError, "damaged"):
            decode(tmp_path / "a")
        assert given == []


def test_a_file_of_too_many_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.fromarray(np.zeros((64, 64), np.uint8)).save(tmp_path / "a.png")
    monkeypatch.setattr(module, "MAX_BYTES", 10)
    with assert_refused(ImageError, "too large"):
        decode(tmp_path / "a.png")


@each("wrapped", [False, True])
def test_a_jpeg_of_too_many_scans_is_refused(tmp_path: Path, wrapped: bool) -> None:
    for scans in (MAX_SCANS, MAX_SCANS + 1, 4000):
        jpeg_of_scans(tmp_path / "a", scans)
        if wrapped:
            side = 4 * picture(0).shape[0]
            data = film(np.zeros((side, side), np.uint8), BitsAllocated=8, BitsStored=8, HighBit=7)
            data.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2.4.51"
            data.PixelData = encapsulate([(tmp_path / "a").read_bytes()])
            save(data, tmp_path / "a")
        if scans > MAX_SCANS:
            with assert_refused(ImageError, "too large"):
                decode(tmp_path / "a")
        elif not wrapped:  # decoded, it is refused as damaged: no encoder repeats a scan
            refuse_scan_bomb((tmp_path / "a").read_bytes(), 1)


def test_a_large_jpeg_may_have_fewer_scans() -> None:
    stream = b"\xff\xd8" + b"\xff\xda\0\2" * 12
    refuse_scan_bomb(stream, MAX_SCANNED_PIXELS // 12)
    with assert_refused(ImageError, "too large"):
        refuse_scan_bomb(stream, MAX_SCANNED_PIXELS // 12 + 1)


@pytest.mark.slow
@needs_proc
@each(("kind", "bytes_per_pixel"), [("16-bit PNG", 5), ("gray PNG", 3), ("color PNG", 6), ("progressive JPEG", 5)])
def test_a_picture_needs_little_memory(tmp_path: Path, kind: str, bytes_per_pixel: int) -> None:
    side = 5000
    flat = {"16-bit PNG": np.full((side, side), 65_000, np.uint16), "gray PNG": np.full((side, side), 7, np.uint8)}
    image = Image.fromarray(flat[kind]) if kind in flat else Image.new("RGB", (side, side), (9, 200, 9))
    image.save(tmp_path / "a", "JPEG" if "JPEG" in kind else "PNG", **({"progressive": True} if "JPEG" in kind else {}))
    needed, message = measure_peak(tmp_path / "a")
    assert not message.strip()
    assert 1 < needed / side**2 < bytes_per_pixel


def test_an_rle_panic_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    packed = film(picture(0))
    packed.compress(pydicom.uid.RLELossless, encoding_plugin="pylibjpeg")
    save(packed, tmp_path / "a")
    data = bytearray((tmp_path / "a").read_bytes())
    data[data.index(b"\x02\x00\x00\x00\x40\x00\x00\x00") + 8] = 0xFF
    (tmp_path / "a").write_bytes(bytes(data))
    with assert_refused(ImageError, "damaged"):
        decode(tmp_path / "a")
    os.write(2, b"still there")
    assert capfd.readouterr().err == "still there"
