"""Names that leave a hospital: who can make them, where the key is, and what happens with another one."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import pandas as pd
import pytest
from rich.console import Console

from chestfed.app.commands.machine.key import count_common, write_names
from chestfed.core import pseudonyms as keys
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.pseudonyms import (
    PUBLISHED,
    VARIABLE,
    Purpose,
    SiteKey,
    default_file,
    key_for,
    make_key,
    read_key,
    refuse_key_within,
)
from chestfed.results.tables.differences import compare_with_first
from chestfed.results.tables.predictions import load_predictions
from tests.cases import assert_refused
from tests.data.sites.own_tables import config, save_rows, wide
from tests.results.tables.finished_runs import write_run

posix = pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")


def test_name_is_keyed_blake2b() -> None:
    key = SiteKey(bytes(range(32)))
    framed = (2).to_bytes(8, "big") + b"st" + (4).to_bytes(8, "big") + b"4711"
    expected = hashlib.blake2b(framed, key=bytes(range(32)), person=b"patient", digest_size=16).hexdigest()
    assert key.name("patient", "st", "4711") == key.name("patient", b"st", b"4711") == expected


def test_names_differ_by_key_and_purpose() -> None:
    key, other = SiteKey(bytes(32)), SiteKey(bytes([1, *bytes(31)]))
    names = [key.name(purpose, "a", "bc") for purpose in get_args(Purpose)]
    names += [other.name("patient", "a", "bc"), key.name("patient", "ab", "c"), key.name("patient", "abc")]
    assert len(set(names)) == len(names)
    assert all(len(purpose.encode()) <= 16 for purpose in get_args(Purpose))


def test_a_key_shows_its_fingerprint_only() -> None:
    key = SiteKey(b"secret of thirty-two bytes......")
    for shown in (repr(key), str(key), f"{key}"):
        assert "secret" not in shown
        assert key.secret.hex() not in shown
        assert key.fingerprint in shown
    assert not key.name("image", b"").startswith(key.fingerprint)


def test_synthetic_names_are_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/nowhere")
    assert key_for(public=True) == PUBLISHED
    assert PUBLISHED.name("image", b"\0" * 16) == "f7ec00b238484d39041af1f0a4216b5e"


def test_key_among_results_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "runs" / ".config" / "key"))
    make_key(tmp_path / "runs" / ".config" / "key")
    fingerprint = key_for(public=False).fingerprint
    with assert_refused(ChestfedError, "key among results"):
        refuse_key_within(tmp_path / "runs", fingerprint)
    refuse_key_within(tmp_path / "runs" / "evaluations", fingerprint)
    refuse_key_within(tmp_path / "runs", PUBLISHED.fingerprint)


def test_variable_names_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "trial.key"
    monkeypatch.setenv(VARIABLE, str(file))
    with assert_refused(ChestfedError, "no key file"):
        key_for(public=False)
    assert make_key(file)
    assert key_for(public=False) == read_key(file)
    assert not make_key(file)


@posix
def test_user_key_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    key = key_for(public=False)
    output = capsys.readouterr().err
    assert str(default_file()) in output
    assert key.secret.hex() not in output
    assert default_file().is_relative_to(tmp_path)
    assert stat.S_IMODE(default_file().stat().st_mode) == 0o600
    assert key_for(public=False) == key != PUBLISHED
    assert capsys.readouterr().err == ""


def test_concurrent_key_makers_agree(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "key"
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: make_key(file), range(8)))
    assert sum(made) == 1
    assert re.fullmatch(r"[0-9a-f]{64}\n", file.read_text())
    assert [name for name in os.listdir(file.parent) if not name.endswith(".lock")] == ["key"]  # noqa: PTH208


@posix
def test_readable_key_is_refused(tmp_path: Path) -> None:
    make_key(tmp_path / "key")
    (tmp_path / "key").chmod(0o644)
    with assert_refused(ChestfedError, "key readable by others"):
        read_key(tmp_path / "key")


@pytest.mark.parametrize("content", [b"", b"00" * 31, b"zz" * 32, b"\xff" * 64, b"00" * 32 + b"\n11"])
def test_damaged_key_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "key"
    file.write_bytes(content)
    file.chmod(0o600)
    with assert_refused(ChestfedError, "damaged key") as caught:
        read_key(file)
    assert content.decode("latin-1").strip() == "" or content.decode("latin-1") not in str(caught.value)


def test_unwritable_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with assert_refused(ChestfedError, "key cannot be written"):
        make_key(tmp_path / "file" / "key")


def test_command_keeps_an_existing_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chestfed: Callable[..., Any]
) -> None:
    file = tmp_path / "trial.key"
    made = chestfed("key", "--new", file)
    fingerprint = read_key(file).fingerprint
    again = chestfed("key", "--new", file)
    monkeypatch.setenv(VARIABLE, str(file))
    shown = chestfed("key")
    assert [called.code for called in (made, again, shown)] == [0, 1, 0]
    assert fingerprint in made.out
    assert fingerprint in shown.out
    assert read_key(file).fingerprint == fingerprint
    assert not any(file.read_text().strip() in called.out + called.err for called in (made, again, shown))


def test_shared_key_counts_shared_patients(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    console = Console(width=200)
    files = []
    for name, first in (("anne", 0), ("john", 7)):
        folder = tmp_path / name
        rows = [wide(number) for number in range(first, first + 10)]
        (folder / "site").mkdir(parents=True)
        config(folder, {})
        save_rows(folder / "site/labels.csv", rows)
        write_names(console, folder / "site.yaml", folder, folder / "names.json")
        files.append(folder / "names.json")
    assert "p7" not in files[0].read_text()
    count_common(console, files)
    assert "3 patients in common; st-example has 10, st-example 10" in capsys.readouterr().out
    make_key(tmp_path / "other")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "other"))
    write_names(console, tmp_path / "john/site.yaml", tmp_path / "john", files[1])
    with assert_refused(ConfigError, "different keys"):
        count_common(console, files)
    with assert_refused(ConfigError, "not a file of names"):
        count_common(console, [files[0], tmp_path / "john/site.yaml"])


def keyed(run: Path, key: str) -> Path:
    for file in run.glob("k*/predictions.parquet"):
        frame = pd.read_parquet(file)
        frame.attrs = {"key": key}
        frame.to_parquet(file, index=False)
    return run


@pytest.mark.usefixtures("unchecked")
def test_different_keys_are_not_compared(tmp_path: Path) -> None:
    first, second = (keyed(write_run(tmp_path / key, lr=lr), key) for key, lr in (("aa", 0.1), ("bb", 0.2)))
    with assert_refused(ConfigError, "different keys"):
        compare_with_first([load_predictions(first), load_predictions(second)], 20)
    same = compare_with_first([load_predictions(first), load_predictions(keyed(second, "aa"))], 20)
    assert set(same["images"]) == {120}


@pytest.mark.usefixtures("unchecked")
def test_renamed_patients_keep_intervals(tmp_path: Path) -> None:
    first, second = write_run(tmp_path / "one"), write_run(tmp_path / "two", lr=0.2, seed=2)
    plain = compare_with_first([load_predictions(first), load_predictions(second)], 50)
    for file in (*first.glob("k*/predictions.parquet"), *second.glob("k*/predictions.parquet")):
        frame = pd.read_parquet(file)
        frame["patient"] = [keys.PUBLISHED.name("patient", str(number)) for number in frame["patient"]]
        frame.to_parquet(file, index=False)
    named = compare_with_first([load_predictions(first), load_predictions(second)], 50)
    pd.testing.assert_frame_equal(named, plain)
