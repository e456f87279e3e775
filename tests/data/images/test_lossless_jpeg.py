"""A JPEG Lossless is decoded once, and is refused whenever its pixels depend on what follows its data."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from unittest.mock import Mock

import imagecodecs
import numpy as np
import pytest

from chestfed.core.errors import ImageError
from chestfed.data.images.decoding.compressed import decode_deep_jpeg
from tests.cases import each

END = b"\xff\xd9"
BEHIND = (b"", bytes(range(1, 255)) * 8, b"\x5a" * 4000)


def film(bits: int, seed: int = 0) -> np.ndarray:
    """A picture as smooth and as noisy as a film."""
    rows, columns = np.mgrid[0:40, 0:36] / 40
    noise = np.random.default_rng(seed).normal(0, 0.012, rows.shape)
    return ((0.5 + 0.3 * np.sin(5 * rows * columns) + noise).clip(0, 1) * ((1 << bits) - 1)).astype(np.uint16)


def encode(pixels: np.ndarray, bits: int, predictor: int) -> bytes:
    stream: bytes = imagecodecs.jpeg8_encode(pixels, lossless=True, predictor=predictor, bitspersample=bits)
    return stream


def list_damaged(stream: bytes) -> Iterator[bytes]:
    """Cut at every place near the end and at many others; bytes lost and added, bits flipped, anywhere and near it."""
    rng, last = np.random.default_rng(1), len(stream) - len(END)
    scan = stream.index(b"\xff\xda") + 10
    for cut in (*range(last - 40, last), *rng.integers(scan, last, 60)):
        yield stream[:cut] + END
        yield stream[:cut] + b"\xff" + END
        yield stream[:cut] + b"\xff\x55" + stream[cut:]
        yield stream[:cut] + stream[cut + 1 :]
        yield stream[:cut] + b"\x5a" + stream[cut:]
    for place in (*rng.integers(2, 8 * last, 200), *range(8 * (last - 6), 8 * last)):
        flipped = bytearray(stream)
        flipped[place // 8] ^= 1 << place % 8
        yield bytes(flipped)


def decode_plainly(stream: bytes) -> list[np.ndarray] | None:
    """As libjpeg decodes it with this and that behind the data; None if it does not."""
    end = len(stream[: stream.rfind(END)].rstrip(b"\xff"))
    try:
        return [imagecodecs.jpeg8_decode(stream[:end] + behind + stream[end:]) for behind in BEHIND]
    except imagecodecs.Jpeg8Error:
        return None


@each("bits", [10, 12, 16])
@each("predictor", range(1, 8))
def test_a_whole_lossless_jpeg_is_decoded_once(bits: int, predictor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = encode(film(bits), bits, predictor)
    decoder = Mock(side_effect=imagecodecs.jpeg8_decode)
    monkeypatch.setattr(imagecodecs, "jpeg8_decode", decoder)
    np.testing.assert_array_equal(decode_deep_jpeg(stream), film(bits))
    assert decoder.call_count == 1


@each("predictor", [1, 4, 6])
def test_data_that_end_early_are_refused(predictor: int) -> None:
    refused = 0
    for damaged in list_damaged(encode(film(12), 12, predictor)):
        try:
            values = decode_deep_jpeg(damaged)
        except Exception:  # any error of a header is that of a damaged file
            refused += 1
            continue
        plain = decode_plainly(damaged)
        assert plain is not None
        for other in plain:
            np.testing.assert_array_equal(values, other)
    assert refused > 100


@each("inserted", [b"\xff", b"\xff\x55", b"\xff\xd0"])
@each("noise", [0, 1])
def test_a_marker_does_not_hide_lost_data(inserted: bytes, noise: int) -> None:
    stream = encode(film(12) if noise else film(12) // 1024 * 3, 12, 1)
    place = len(stream) - 40
    for following in (END, stream[place:] if inserted != b"\xff" else END):
        with pytest.raises(ImageError):
            decode_deep_jpeg(stream[:place] + inserted + following)


@each("pixels", [np.full((40, 36), 700, np.uint16), np.mgrid[0:40, 0:36][0].astype(np.uint16) * 9])
def test_a_table_of_few_codes_is_decoded(pixels: np.ndarray) -> None:
    """Its extra row may have been read from many places, so it is decoded twice."""
    stream = encode(pixels, 12, 1)
    np.testing.assert_array_equal(decode_deep_jpeg(stream), pixels)
    with pytest.raises(ImageError):
        decode_deep_jpeg(encode(film(12), 12, 1)[:-300] + END)


def encode_with_restarts(pixels: np.ndarray, rows: int) -> list[bytes]:
    """Header and intervals of so many rows, 12 bits, predictor 1, codes of five bits; without restarts and end.

    ITU-T T.81, Annex H: after a restart the first row is predicted from the left, its first value by 2048.
    """
    height, width = pixels.shape
    table = b"\xff\xc4" + struct.pack(">HB", 19 + 17, 0) + bytes([0, 0, 0, 0, 17, *[0] * 11]) + bytes(range(17))
    frame = b"\xff\xc3" + struct.pack(">HBHHB", 11, 12, height, width, 1) + b"\1\x11\0"
    interval = b"\xff\xdd" + struct.pack(">HH", 4, rows * width)
    parts = [b"\xff\xd8" + table + frame + interval + b"\xff\xda\0\x08\1\1\0\1\0\0"]
    for begin in range(0, height, rows):
        block = pixels[begin : begin + rows].astype(int)
        above = np.concatenate([[2048], block[:-1, 0]])
        differences = np.column_stack([block[:, 0] - above, np.diff(block)]).ravel()
        bits = ""
        for value in differences.tolist():
            size = abs(value).bit_length()
            bits += f"{size:05b}" + (f"{value if value > 0 else value + (1 << size) - 1:0{size}b}" if size else "")
        bits += "1" * (-len(bits) % 8)
        parts.append(int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0"))
    return parts


def join(parts: list[bytes], numbers: Sequence[int] = range(7)) -> bytes:
    marks = [bytes((0xFF, 0xD0 + number)) for number in numbers]
    return parts[0] + b"".join(part + mark for part, mark in zip(parts[1:], [*marks, END], strict=False))


def test_whole_restart_intervals_are_decoded() -> None:
    np.testing.assert_array_equal(decode_deep_jpeg(join(encode_with_restarts(film(12), 5))), film(12))


def test_lost_restart_intervals_are_refused() -> None:
    parts = encode_with_restarts(film(12), 5)
    whole, head = join(parts), len(parts[0])
    damaged = {
        "last lost": join(parts[:8], range(6))[:-2] + END,
        "all but the first lost": parts[0] + parts[1] + END,
        "one lost": join([*parts[:4], *parts[5:]]),
        "one emptied": join([*parts[:4], b"", *parts[5:]]),
        "one halved": join([*parts[:4], parts[4][: len(parts[4]) // 2], *parts[5:]]),
        "a restart lost": whole.replace(b"\xff\xd3", b"", 1),
        "a restart renumbered": whole[:head] + whole[head:].replace(b"\xff\xd3", b"\xff\xd5", 1),
        "a restart doubled": whole[:head] + whole[head:].replace(b"\xff\xd3", b"\xff\xd3\xff\xd3", 1),
        "more rows": whole.replace(struct.pack(">HH", 40, 36), struct.pack(">HH", 4000, 36), 1),
    }
    for name, stream in damaged.items():
        assert stream != whole, name
        with pytest.raises(ImageError):
            decode_deep_jpeg(stream)


def test_restarts_without_a_marker_are_refused() -> None:
    stream = encode(film(12), 12, 1)
    scan = stream.index(b"\xff\xda")
    with pytest.raises(ImageError):
        decode_deep_jpeg(stream[:scan] + b"\xff\xdd\0\4" + struct.pack(">H", 36) + stream[scan:])


def test_an_end_that_stands_twice_is_one() -> None:
    np.testing.assert_array_equal(decode_deep_jpeg(encode(film(12), 12, 1) + END), film(12))
