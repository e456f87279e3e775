"""What makes a federation and its members: keys stay where they are made, files are kept, certificates are renewed."""

from __future__ import annotations

import re
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.pseudonyms import make_key
from chestfed.leaves.federation import keys
from chestfed.leaves.federation.hospital.log import open_log
from chestfed.leaves.federation.hospital.taking_part import check_hospital, locked
from chestfed.leaves.federation.parcels import Refused
from chestfed.leaves.federation.server.founding import add, create, join, rekey, remove, renew
from chestfed.leaves.federation.server.study import Events
from chestfed.leaves.federation.settings import Hospital, read_federation, read_hospital
from tests.cases import assert_refused
from tests.leaves.federation.straight_line import sample_hospital


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A federation with the hospital anne, whose folder is beside it."""
    create(tmp_path / "chest", "chest", "localhost:9443")
    public, _ = join(tmp_path / "anne", "anne", "localhost:9443", tmp_path / "chest" / "authority.crt")
    add(tmp_path / "chest", "anne", public)
    return tmp_path / "chest"


def test_hospital_makes_its_key(folder: Path) -> None:
    home = folder.parent / "anne"
    assert read_federation(folder).members == ("anne",)
    assert read_hospital(home).file.policy.approval == "required"
    assert stat.S_IMODE((home / "node.key").stat().st_mode) == 0o600
    private = keys.read_key(home / "node.key")
    assert keys.read_public_key(folder / "keys" / "anne.pub") == private.public_key()
    assert not list(folder.rglob("node.key"))  # only the public half left


def test_commands_name_the_folder(folder: Path) -> None:
    join(folder.parent / "h_a", "chexpert", "localhost:9443", folder / "authority.crt")
    for name in ("hospital.yaml", "README.md"):
        text = (folder.parent / "h_a" / name).read_text(encoding="utf-8")
        assert set(re.findall(r"chestfed federation hospital (\w+)", text)) == {"h_a"}, name


def test_new_key_replaces_the_old(folder: Path) -> None:
    home = folder.parent / "anne"
    before = (folder / "keys" / "anne.pub").read_bytes()
    public, fingerprint = rekey(home)
    assert (home / "node.key.old").exists()
    with assert_refused(ConfigError, kind="another key"):  # a slip would put the hospital out
        add(folder, "anne", public)
    assert add(folder, "anne", public, replace=True) == (True, fingerprint)
    assert add(folder, "anne", public) == (False, fingerprint)
    assert (folder / "keys" / "anne.pub").read_bytes() != before
    with assert_refused(ConfigError, kind="key in use"):
        add(folder, "bert", public)
    remove(folder, "anne")
    assert read_federation(folder).members == ()
    with assert_refused(ConfigError, kind="no member"):
        remove(folder, "anne")


def test_accepted_key_is_not_overwritten(folder: Path) -> None:
    home = folder.parent / "anne"
    accepted = (home / "node.key").read_bytes()
    rekey(home)
    before = {file: file.read_bytes() for file in home.iterdir()}
    with assert_refused(ConfigError, kind="old key"):
        rekey(home)
    assert {file: file.read_bytes() for file in home.iterdir()} == before
    assert (home / "node.key.old").read_bytes() == accepted


def test_new_key_is_where_the_old_was(folder: Path) -> None:
    home = folder.parent / "anne"
    (home / "node.key").rename(home / "secret.key")
    with (home / "hospital.yaml").open("a", encoding="utf-8") as file:
        file.write("key: secret.key\n")
    rekey(home)
    assert {file.name for file in home.glob("*.key*")} == {"secret.key", "secret.key.old"}


def test_certificate_is_renewed(folder: Path) -> None:
    before = keys.read_certificate(folder / "server.crt")
    assert renew(folder) in (keys.SERVER_DAYS - 1, keys.SERVER_DAYS)
    after, authority = keys.read_certificate(folder / "server.crt"), keys.read_certificate(folder / "authority.crt")
    assert after.serial_number != before.serial_number
    after.verify_directly_issued_by(authority)
    assert keys.days_left(folder / "authority.crt") > 3600
    moved = folder / "private" / "authority.key"
    moved.rename(folder / "safe")
    with assert_refused(ConfigError, kind="no file"):
        renew(folder)
    keys.save_key(moved, keys.new_key(), tls=True)
    with assert_refused(ConfigError, kind="another key"):
        renew(folder)
    assert keys.read_certificate(folder / "server.crt") == after


@pytest.mark.parametrize(
    ("act", "kind"),
    [
        (lambda home: create(home / "new", "St. Anne", "localhost:9443"), "name or address"),
        (lambda home: create(home / "new", "chest", "localhost"), "name or address"),
        (lambda home: create(home / "new", "chest", "localhost:1", home / "nosuch"), "no folder"),
        (lambda home: create(home / "chest", "chest", "localhost:9443"), "exists"),
        (
            lambda home: join(home / "new", "../anne", "localhost:1", home / "chest" / "authority.crt"),
            "name or address",
        ),
        (lambda home: join(home / "new", "bert", "localhost", home / "chest" / "authority.crt"), "address"),
        (lambda home: join(home / "new", "bert", "localhost:1", home / "anne" / "node.key"), "not a certificate"),
        (lambda home: join(home / "anne", "anne", "localhost:1", home / "chest" / "authority.crt"), "exists"),
        (lambda home: add(home / "chest", "bert", home / "chest" / "authority.crt"), "not a key"),
        (lambda home: add(home / "chest", "a b", home / "anne" / "anne.pub"), "name or address"),
    ],
)
def test_refusals_write_nothing(folder: Path, act: Callable[[Path], object], kind: str) -> None:
    home = folder.parent
    before = {file: file.read_bytes() for file in home.rglob("*") if file.is_file()}
    with assert_refused(ConfigError, kind=kind):
        act(home)
    assert {file: file.read_bytes() for file in home.rglob("*") if file.is_file()} == before


def test_hospital_has_one_process_at_a_time(folder: Path) -> None:
    hospital = read_hospital(folder.parent / "anne")
    hospital.path("state").mkdir()
    first = locked(hospital)
    with assert_refused(ChestfedError, "in use", folder=hospital.path("state")):
        locked(hospital)
    first.release()
    locked(hospital).release()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
def test_full_disk_is_a_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hospital = read_hospital(folder.parent / "anne")
    hospital.path("state").mkdir()
    for file in (hospital.path("state") / "hospital.log", folder / "federation.jsonl"):
        file.symlink_to("/dev/full")
    open_log(hospital).info("ready")
    assert re.fullmatch(r".*hospital.log: cannot be written: .*No space left.*\n", capsys.readouterr().err)
    with assert_refused(ChestfedError, "cannot be written", file=folder / "federation.jsonl"):
        Events(folder, lambda text: None)("anne", "late", "")


def test_check_makes_secret_key_at_hospital(tmp_path: Path, tiny_hospitals: Path) -> None:
    create(tmp_path / "trial", "federation", "localhost:9443")
    folder = tmp_path / "trial" / "padchest"
    join(folder, "padchest", "localhost:9443", tmp_path / "trial" / "authority.crt")
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
    for name, error, kind in (
        ("other.key", Refused, "another key"),
        ("state/names.key", ConfigError, "misplaced key"),
        ("cache/k/names.key", ConfigError, "misplaced key"),
    ):
        moved = Hospital(folder, hospital.file.model_copy(update={"names_key": name}))
        with assert_refused(error, kind):
            check_hospital(moved, lines.append)


def copied(data: Path, folder: Path) -> Path:
    """The label files and images of a hospital in a folder of its own."""
    return Path(shutil.copytree(data / "synthetic-padchest", folder / "data" / "synthetic-padchest")).parent
