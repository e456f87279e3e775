"""The site probe of a pipeline: no image may be at two of its hospitals."""

from __future__ import annotations

from pathlib import Path

import pytest

from chestfed.core.errors import ConfigError
from chestfed.data.images.preprocess import Preprocess
from chestfed.leaves.site_probe import probe
from chestfed.studies.experiment.data import Overlap
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.training.data.sites import TEST, TRAIN, StudySite
from tests.cases import assert_refused
from tests.studies.training.test_overlap import ENTRY, PIPELINE, copy, site


def probe_sites(folder: Path, monkeypatch: pytest.MonkeyPatch, found: str) -> probe.StudyProbe:
    """Two hospitals of twelve images of six patients; two images of a patient of one are at the other too."""
    tables = [site(folder, name, count=12) for name in ("one", "two")]
    for row in (0, 1):
        copy(tables[0], row, tables[1], row)
    sites = []
    for table in tables:
        columns = {"role": [TEST] * 4 + [TRAIN] * 8, "client": [""] * 4 + [table.name] * 8, "reason": ""}
        frame = table.frame.assign(**columns, edema=[0.0, 0, 1, 1] * 3)
        sites.append(StudySite(ENTRY, table.with_frame(frame), 1, table.diseases, (table.name,), {}))
    monkeypatch.setattr(probe, "open_sites", lambda *_: tuple(sites))
    changes = {"overlap": Overlap(found=found), "preprocess": Preprocess(size=32), "diseases": ["edema"]}
    pipeline = load_pipeline(PIPELINE).resolve().model_copy(update=changes)
    return probe.probe_study(pipeline, PIPELINE, folder, folder / "cache")


def test_shared_images_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with assert_refused(ConfigError, "shared patients"):
        probe_sites(tmp_path, monkeypatch, "refuse")


def test_shared_images_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probed = probe_sites(tmp_path, monkeypatch, "drop")
    assert dict(probed.sites.images) == {"one": 12, "two": 10}
    assert probed.numbers["left_out"] == {"one and two": 2}
    assert len(probed.describe_shared()) == 1
