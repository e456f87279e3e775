"""Nothing of a DICOM header but the allow-list gets anywhere: strings are planted everywhere and looked for everywhere.

The whole way is gone, with everything written to one folder: opening, cache, a study with MLflow, evaluation,
comparison, report, and the ways in which files can be broken.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from chestfed.app.cli import app
from chestfed.core.errors import ChestfedError
from chestfed.core.pseudonyms import VARIABLE, make_key, read_key
from chestfed.data.images.database import Database
from chestfed.data.sites import load_site_config, open_site
from chestfed.leaves.federation.hospital.local import OwnData
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.training.data.experiment import load_images
from chestfed.studies.training.reporting import Reporters, use
from tests.command_line import drawn_once, undrawn
from tests.privacy.canaries import DATE, MARK, NAME, NUMBER, UID, found_in, planted, save
from tests.studies.training.tiny_studies import read_rows

SITE = {
    "site": "st-canary",
    "title": "St. Canary",
    "reader": "table",
    "root": "site",
    "label_files": {"images": ["**/*.dcm"]},
    "views": "all",
    "diseases": ["edema"],
    "uncertain": "missing",
    "blank": "missing",
    "splits": {"valid_fraction": 0.4},
    "table": {
        "columns": {
            "patient": "PatientID",
            "study": "StudyInstanceUID",
            "view": "ViewPosition",
            "sex": "PatientSex",
            "age": "PatientAge",
            "findings": "ImageComments",
        },
        "codes": {"findings": {"Edema": "edema", "Normal": "normal"}},
    },
}
#: Where the hospital's files are: places that no result names.
DATA = "data/ward-of-QZPLACE"
YAML = f"{DATA}/QZYAML/site.yaml"
FIRST = "QZFOLDER0/QZFILE000.dcm"
#: In names of folders and files, in the header and the cells of a table. The screen may name files, and no cell.
PLACES, CELL = ["QZPLACE", "QZYAML", "QZFOLDER", "QZFILE", "QZTABLE"], "QZCELL"
#: A folder of the user above everything that is written.
USER = "QZUSER"
STUDY = {
    "title": "Canaries",
    "data_root": DATA,
    "sites": [{"config": YAML, "clients": 2}],
    "diseases": ["edema"],
    "k": [1, 2],
    "model": {"name": "small", "blocks": [1]},
    "preprocess": {"size": 64},
    "pretrain": {"epochs": 0.2, "batch_size": 4},
    "federated": {"batch_size": 2, "window": 2, "stages": 1, "stage_steps": 2},
    "evaluation": {"resamples": 20},
    "runtime": {"threads": 1},
}
IMAGES = 24


def write_site(folder: Path) -> Path:
    rng = np.random.default_rng(7)
    for number in range(IMAGES):
        pixels = rng.integers(0, 4095, (64, 64))
        comments = "Edema" if number % 2 else "Normal"
        file = folder / DATA / f"site/QZFOLDER{number // 12}/QZFILE{number:03d}.dcm"
        save(planted(pixels, number // 2 + (number % 2) * 100, comments), file)
    (folder / YAML).parent.mkdir()
    (folder / YAML).write_text(yaml.safe_dump(SITE), encoding="utf-8")
    (folder / "study.yaml").write_text(yaml.safe_dump(STUDY), encoding="utf-8")
    return folder


class Session:
    """Commands of one user in one folder, with all that they print and log."""

    def __init__(self, home: Path, capture: pytest.CaptureFixture[str], log: pytest.LogCaptureFixture) -> None:
        self.home, self._capture, self._log = home, capture, log
        self.texts: list[str] = []
        self.logs = ""

    def run(self, *words: str) -> str:
        """What a command says, its error message included."""
        error = ""
        try:
            app(list(words), standalone_mode=False)
        except ChestfedError as raised:
            error = str(raised)
        out, err = self._capture.readouterr()
        self.texts.append(out + err + error)
        self.logs = self._log.text
        return out + error

    @property
    def written(self) -> list[Path]:
        """Everything but the hospital's own files."""
        return [path for path in self.home.iterdir() if path.is_dir() and path.name != "data"]


@pytest.fixture
def session(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> Session:
    caplog.set_level(logging.DEBUG)
    home = write_site(tmp_path / USER / "study")
    monkeypatch.chdir(home)
    make_key(home / "own.key")
    monkeypatch.setenv(VARIABLE, str(home / "own.key"))
    return Session(home, capfd, caplog)


def test_header_is_in_no_output(session: Session) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with undrawn():  # MLflow's copy: the same page, and its figures, are drawn by `report`
            assert "page: " in session.run("study", "study.yaml", "--out", "runs", "--cache", "cache")
        (run,) = (session.home / "runs").glob("study-*")
        assert "written to" in session.run(
            *("evaluate", str(run / "k1" / "model.safetensors"), "--site", YAML, "--data", str(session.home / DATA)),
            *("--out", "runs/one", "--resamples", "20"),
        )
        shutil.copy(run / "k1" / "model.safetensors", "runs/elsewhere.safetensors")
        assert "written to" in session.run(
            *("evaluate", str(session.home / "runs/elsewhere.safetensors"), "--site", YAML, "--data", DATA),
            *("--out", "runs/two", "--resamples", "20"),
        )
        with drawn_once():
            assert "written to" in session.run("report", str(run), "--figures", "--pictures")
        assert "differences" in session.run("compare", str(run), str(run / "k1"), "--out", "paired")
        assert "written to" in session.run(
            "site", "card", YAML, "--data", str(session.home / DATA), "--out", "card/card.html", "--pictures"
        )
    files = [path for folder in session.written for path in folder.rglob("*") if path.is_file()]
    assert {
        "mlflow.db",
        "images.sqlite",
        "predictions.parquet",
        "report.html",
        "sites.json",
        "card.md",
    } <= {f.name for f in files}
    assert found_in(session.written, session.texts) == []
    assert found_in(session.written, [session.logs, told_to_others(session.home)], PLACES) == []
    named = found_in(session.written, [told_to_others(session.home)], [USER])
    assert {Path(place.partition(" ")[0]).name for place in named} <= {"mlflow.db"}, named
    check_names(session.home, run)


def told_to_others(home: Path) -> str:
    """All that the hospital would tell the server of a federation in words."""
    pipeline = load_pipeline(home / "study.yaml").resolve()
    with use(Reporters()):
        (study,) = load_images([read_rows(pipeline, home / "study.yaml", home / DATA)], home / "cache")
    assert study.test is not None
    data = OwnData(study.clients[0], study.test, study)
    of_test = [data.disclose_test(study.test, 5, scores_stay=stay)[0] for stay in (False, True)]
    text = json.dumps([data.disclose(5, 1)[0], *of_test])
    assert "edema" in text
    return text


def check_names(home: Path, run: Path) -> None:
    """The stored names are those of the key, and no plain digest of a picture or a patient has left."""
    key = read_key(home / "own.key")
    table = open_site(load_site_config(home / YAML), home / DATA).select(split="valid")
    frame = pd.read_parquet(run / "k2" / "predictions.parquet")
    patients = [key.name("patient", "st-canary", name) for name in table.frame["patient"]]
    assert sorted(frame["patient"]) == sorted(patients)
    assert frame["patient"].tolist() != patients  # the order of the table would say who is who
    assert frame["image"].is_monotonic_increasing
    assert frame.attrs["key"] == key.fingerprint
    alone = pd.read_parquet(home / "runs" / "one" / "predictions.parquet")
    assert alone[["image", "patient"]].equals(frame[["image", "patient"]])

    (file,) = (home / "cache").glob("*/images.sqlite")
    with closing(sqlite3.connect(file)) as cache:
        (kind,) = (name for name in Database(file).kinds() if name.startswith("pixels-"))
        rows = list(cache.execute(f'SELECT c0, c1 FROM "{kind}"'))
    assert {key.name("image", source) for _, source in rows} >= set(frame["image"])
    pixels = [digest.hex() for row in rows for digest in row]
    patients = [hashlib.blake2b(name.encode(), digest_size=16).hexdigest() for name in table.frame["patient"]]
    secret = (home / "own.key").read_text().strip()
    assert found_in([home / "runs", home / "paired"], [], [*pixels, *patients, secret]) == []


def break_files(folder: Path) -> int:
    """Replace files by broken ones; how many."""
    data = (folder / FIRST).read_bytes()
    syntax = b"1.2.840.10008.1.2.1\0"
    window, age = b"2048", b"063Y"
    bad = {
        "cut-in-header": data[: len(data) // 2],
        "cut-in-pixels": data[:-3000],
        "cut-in-meta": data[:300],
        "unknown-syntax": data.replace(syntax, b"1.2.98761234567.1.20"),
        "jpeg-that-is-none": data.replace(syntax, b"1.2.840.10008.1.2.4.50"[:20]),
        "no-number": data.replace(window, MARK[:4].encode()),
        "bad-age": data.replace(age, b"ZQXK"),
        "unknown-term": data.replace(b"Normal", MARK[:6].encode()),
        "not-dicom": data[400:],
    }
    for name, content in bad.items():
        (folder / f"{name}.dcm").write_bytes(content)
    rng = np.random.default_rng(3)
    for number in range(20):  # bits that flip anywhere
        damaged = bytearray(data)
        for place in rng.integers(132, len(data) - 8200, 40):
            damaged[place] = rng.integers(256)
        (folder / f"flipped-{number:02d}.dcm").write_bytes(bytes(damaged))
    return len(bad) + 20


@pytest.mark.usefixtures("undrawn")
def test_broken_file_quotes_no_header(session: Session) -> None:
    """Figures are of what could be read: the other test looks at them."""
    count = break_files(session.home / DATA / "site")
    output = session.run("study", "study.yaml", "--out", "runs", "--cache", "cache")
    assert "problems" in output
    # What headers can't tell, a spreadsheet may: now the pictures are opened, and fail.
    root = session.home / DATA / "site"
    names = sorted(str(path.relative_to(root)) for path in root.rglob("*.dcm"))
    rows = "".join(f"{name},{CELL}{number},{number % 2},{CELL} remark\n" for number, name in enumerate(names))
    (root / "QZTABLE.csv").write_text(f"File,Patient,Edema,{CELL} column\n" + rows)
    columns = {"image": "File", "patient": "Patient"}
    table = {"columns": columns, "default_view": "frontal"}
    labels = {"edema": ["Edema"]}
    site = {**SITE, "label_files": {"table": ["QZTABLE.csv"]}, "labels": labels, "table": table}
    (session.home / YAML).write_text(yaml.safe_dump(site), encoding="utf-8")
    output = session.run("study", "study.yaml", "--out", "runs", "--cache", "cache")
    assert "unreadable image" in output
    output = session.run("study", "study.yaml", "--out", "runs", "--cache", "cache", "--skip-unreadable")
    assert "unreadable images" in output
    output = session.run(
        "site", "card", YAML, "--data", str(session.home / DATA), "--out", "card/card.html", "--pictures"
    )
    assert "FAILED" in output
    assert len(names) == IMAGES + count
    assert found_in(session.written, session.texts, [CELL]) == []
    assert found_in(session.written, [session.logs], [*PLACES, CELL]) == []
    assert "ZQXK" not in "".join([*session.texts, session.logs])


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    import base64

    samples = [MARK.lower().encode(), MARK.encode("utf-16-le"), MARK.encode().hex().upper().encode(), UID.encode()]
    samples += [DATE.encode(), NUMBER.encode(), NAME.encode("latin-1"), NAME.encode()]
    samples += [base64.b64encode(b"x" * shift + MARK.encode() + b"tail") for shift in range(6)]
    for number, sample in enumerate(samples):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "file").write_bytes(b"before " + sample + b" after")
    pd.DataFrame({"a": [f"{MARK}00100010"] * 500}).to_parquet(tmp_path / "p.parquet", compression="gzip")
    assert all(found_in([tmp_path / str(number)], []) for number in range(len(samples)))
    assert any("cells" in place for place in found_in([tmp_path], []))
    assert found_in([], [f"... {MARK} ..."])
    source = save(planted(np.zeros((64, 64)), 1, "Normal"), tmp_path / "dcm" / "a.dcm")
    assert source.read_bytes().count(MARK.encode()) > 1500
    assert found_in([source.parent], [])
