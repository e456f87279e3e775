"""Small files that would come to more than memory holds are refused before they do."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chestfed.sites.label_files import parquet, source
from chestfed.sites.label_files.parquet import ParquetColumns
from chestfed.sites.label_files.source import UnreadableError, unpacked
from tests.cases import each

LARGEST = 1_000_000


@pytest.fixture(autouse=True)
def _small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "LARGEST", LARGEST)
    monkeypatch.setattr(parquet, "LARGEST", LARGEST)


def repeated(word: str, rows: int) -> pa.Array:
    return pa.array([word]).take(pa.array(np.zeros(rows, np.int32)))


BOMBS = {
    "words": repeated("x" * 206, 50_000),
    "categories": pa.DictionaryArray.from_arrays(np.zeros(50_000, np.int32), ["x" * 206]),
    "lists": pa.ListArray.from_arrays([0, 25_000, 50_000], repeated("x" * 206, 50_000)),
    "numbers": pa.array(np.zeros(500_000)),
    "empty words": pa.nulls(500_000, pa.string()),
}


@each("name", BOMBS)
def test_a_parquet_bomb_is_refused_unexpanded(tmp_path: Path, name: str) -> None:
    pq.write_table(pa.table({"a": [1] * len(BOMBS[name]), "b": BOMBS[name]}), tmp_path / "t.parquet")
    assert (tmp_path / "t.parquet").stat().st_size < LARGEST / 10
    before = pa.total_allocated_bytes()
    with pytest.raises(UnreadableError, match="larger than"):
        ParquetColumns(tmp_path / "t.parquet").read(["b"])
    assert pa.total_allocated_bytes() - before < LARGEST


def test_a_parquet_is_read_as_it_was_written(tmp_path: Path) -> None:
    table = pa.table(
        {
            "text": ["a", None, "", "a"],
            "lists": [["x", "y"], [], None, ["x"]],
            "numbers": [1, None, 3, 4],
            "large": pa.array(["q", "q", "r", None], pa.large_string()),
            "bytes": [b"1", b"2", None, b"1"],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=3)
    file = ParquetColumns(tmp_path / "t.parquet")
    assert file.names == table.column_names
    assert file.read(["large", "lists"]) == table.select(["large", "lists"])
    assert file.read(file.names) == table


@each("members", [1, 4])
def test_a_gzip_bomb_is_refused_in_little_memory(tmp_path: Path, members: int) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(bytes(40 * LARGEST // members)) * members)
    tracemalloc.start()
    with pytest.raises(UnreadableError, match="larger than"):
        unpacked(tmp_path / "t.csv.gz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * LARGEST


def test_a_large_plain_file_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(bytes(LARGEST + 1))
    with pytest.raises(UnreadableError, match="larger than"):
        unpacked(tmp_path / "t.csv")
