"""What `chestfed federation init` refuses before it writes anything, and what it makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from chestfed.core.errors import ConfigError
from chestfed.federation.founding import found
from chestfed.federation.settings import read_federation, read_hospital


@pytest.mark.parametrize(
    ("hospitals", "address", "why"),
    [
        (["anne", "anne"], "localhost:9443", "names a hospital twice"),
        (["St. Anne"], "localhost:9443", "'St. Anne': .*pattern"),
        (["../anne"], "localhost:9443", "pattern"),
        (["anne"], "localhost", "expected host:port"),
    ],
)
def test_names_and_addresses_are_checked_before_anything_is_written(
    tmp_path: Path, hospitals: list[str], address: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        found(tmp_path / "trial", "federation", address, hospitals, "1")
    assert not (tmp_path / "trial").exists()


def test_both_files_can_be_read_and_keys_in_use_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "trial"
    found(folder, "federation", "localhost:9443", ["anne", "bert"], "1")
    assert [member.name for member in read_federation(folder).file.hospitals] == ["anne", "bert"]
    assert read_hospital(folder / "hospitals" / "bert").file.server == "localhost:9443"
    for left in ("federation.yaml", "private"):
        with pytest.raises(ConfigError, match=rf"{left}: exists, and is kept"):
            found(folder, "federation", "localhost:9443", ["anne"], "1")
        (folder / "federation.yaml").unlink(missing_ok=True)


def test_a_folder_of_samples_that_is_not_there_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nosuch: no such folder"):
        found(tmp_path / "f", "f", "localhost:9000", ["chexpert"], "0", tmp_path / "nosuch")
    assert not (tmp_path / "f").exists()
