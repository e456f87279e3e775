"""What `chestfed federation init` refuses before it writes anything, and what it makes."""

from __future__ import annotations

import re
import shutil
import stat
from pathlib import Path

import pytest

from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.pseudonyms import make_key
from chestfed.federation.founding import found
from chestfed.federation.parcels import Refused
from chestfed.federation.settings import Hospital, read_federation, read_hospital
from chestfed.federation.study import Events
from chestfed.federation.taking_part import check_hospital, locked, open_log
from tests.federation.straight_line import sample_hospital


@pytest.mark.parametrize(
    ("hospitals", "address", "why"),
    [
        (["anne", "anne"], "localhost:9443", "names a hospital twice"),
        (["St. Anne"], "localhost:9443", "'St. Anne': .*pattern"),
        (["../anne"], "localhost:9443", "pattern"),
        (["anne"], "localhost", "expected host:port"),
    ],
)
def test_names_are_checked_before_writing(tmp_path: Path, hospitals: list[str], address: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        found(tmp_path / "trial", "federation", address, hospitals, "1")
    assert not (tmp_path / "trial").exists()


def test_both_files_are_readable_keys_stay(tmp_path: Path) -> None:
    folder = tmp_path / "trial"
    found(folder, "federation", "localhost:9443", ["anne", "bert"], "1")
    assert [member.name for member in read_federation(folder).file.hospitals] == ["anne", "bert"]
    assert read_hospital(folder / "hospitals" / "bert").file.server == "localhost:9443"
    for left in ("federation.yaml", "private"):
        with pytest.raises(ConfigError, match=rf"{left}: exists, and is kept"):
            found(folder, "federation", "localhost:9443", ["anne"], "1")
        (folder / "federation.yaml").unlink(missing_ok=True)


def test_hospital_has_one_process_at_a_time(tmp_path: Path) -> None:
    found(tmp_path / "trial", "federation", "localhost:9443", ["anne"], "1")
    hospital = read_hospital(tmp_path / "trial" / "hospitals" / "anne")
    hospital.path("state").mkdir()
    first = locked(hospital)
    with pytest.raises(ChestfedError, match="another process takes part"):
        locked(hospital)
    first.release()
    locked(hospital).release()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
def test_a_full_disk_is_told_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found(tmp_path / "trial", "federation", "localhost:9443", ["anne"], "1")
    hospital = read_hospital(tmp_path / "trial" / "hospitals" / "anne")
    hospital.path("state").mkdir()
    for file in (hospital.path("state") / "hospital.log", tmp_path / "federation.jsonl"):
        file.symlink_to("/dev/full")
    open_log(hospital).info("ready")
    assert re.fullmatch(r".*hospital.log: cannot be written: .*No space left.*\n", capsys.readouterr().err)
    with pytest.raises(ChestfedError, match=r"federation.jsonl: cannot be written: No space left"):
        Events(tmp_path, lambda text: None)("anne", "late", "")


def test_check_makes_secret_key_at_hospital(tmp_path: Path, tiny_hospitals: Path) -> None:
    found(tmp_path / "trial", "federation", "localhost:9443", ["padchest"], "1")
    folder = tmp_path / "trial" / "hospitals" / "padchest"
    real = sample_hospital("padchest", tmp_path, copied(tiny_hospitals, tmp_path), synthetic=False)
    settings = {"site": str(tmp_path / "padchest" / "site.yaml"), "data_root": real.file.data_root}
    hospital = Hospital(folder, read_hospital(folder).file.model_copy(update=settings))
    lines = list[str]()
    check_hospital(hospital, lines.append)
    key = folder / "names.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    secret, (line,) = key.read_text(), [line for line in lines if "secret key in" in line]
    assert str(key) in line
    assert "new: keep a backup" in line
    check_hospital(hospital, lines.append)
    assert key.read_text() == secret
    assert secret.strip() not in "".join(lines)
    make_key(folder / "other.key")
    for name, error in (("other.key", Refused), ("state/names.key", ConfigError), ("cache/k/names.key", ConfigError)):
        moved = Hospital(folder, hospital.file.model_copy(update={"names_key": name}))
        with pytest.raises(error, match="names_key"):
            check_hospital(moved, lines.append)


def copied(data: Path, folder: Path) -> Path:
    """The label files and images of a hospital in a folder of its own."""
    return Path(shutil.copytree(data / "synthetic-padchest", folder / "data" / "synthetic-padchest")).parent


def test_missing_samples_are_refused_first(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nosuch: no such folder"):
        found(tmp_path / "f", "f", "localhost:9000", ["chexpert"], "0", tmp_path / "nosuch")
    assert not (tmp_path / "f").exists()
