"""A small site with a reader of its own that does everything right, to be broken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.testing.packages import offer

READER = """
import numpy as np
from chestfed.data.sites.reader import SiteReader, join_rows, raw_rows, column_findings

def read(source, options):
    path = source.find("labels")
    frame = None if path is None else source.read(path, ["file", "patient", "edema", "heart"], ["ward"])
    if frame is None:
        return join_rows([], source)
    columns = {
        "image": "pictures/" + frame["file"],
        "patient": frame["patient"],
        "study": frame["patient"] + "/1",
        "view": "pa",
        "split": np.where(frame["patient"] == "patient-5", "test", "train"),
        "row": frame["row"].to_numpy(),
        "file": source.name(path),
    }
    return raw_rows(columns, column_findings(source, path, frame), len(frame))

READER = SiteReader("plain", read)
"""
CONFIG = """
site: plain
title: Plain
reader: plain
root: plain
label_files: {labels: [labels.csv]}
views: all
diseases: [edema, cardiomegaly]
labels: {edema: [edema], cardiomegaly: [heart]}
uncertain: missing
blank: missing
"""


def write_site(folder: Path) -> Path:
    """Six images of five patients; returns the YAML's path. The data root is `folder`."""
    (folder / "plain/pictures").mkdir(parents=True)
    generator = np.random.default_rng(1)
    lines = ["file,patient,edema,heart,ward"]
    for number in range(6):
        gray = generator.integers(0, 255, (40, 32), dtype=np.uint8)
        Image.fromarray(gray).save(folder / f"plain/pictures/picture-{number}.png")
        heart = ("1", "0", "-1", "", "0", "1")[number]
        lines.append(f"picture-{number}.png,patient-{min(number, 4) + 1},{number % 2},{heart},Schönau")
    (folder / "plain/labels.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    config = folder / "plain.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    return config


def write_reader(folder: Path, monkeypatch: pytest.MonkeyPatch, old: str = "", new: str = "") -> None:
    """Offer the reader, with one piece of its source replaced."""
    assert old in READER
    source = READER.replace(old, new) if old else READER
    offer(folder / "site-packages", monkeypatch, "plain_reader", {"plain": "plain_reader:READER"}, source)
