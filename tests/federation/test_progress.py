"""Where the running study stands is in a file that ends with it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from chestfed.commands.federation.server import describe_progress
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.federation.server.progress import FILE, Progress, read_progress, stop_study
from tests.cases import assert_refused
from tests.federation.test_study import pipeline


def test_file_says_whom_the_study_waits_for(tmp_path: Path) -> None:
    with Progress(tmp_path, pipeline()) as progress:
        assert describe_progress(read_progress(tmp_path))[0].count("beginning") == 1
        progress.k_started(3)
        progress.event("padchest", "away", "")
        progress.event("vindr", "waits", "for an approval")
        progress.event("padchest", "back", "")
        about = read_progress(tmp_path)
        assert about is not None
        assert (about["k"], list(about["waits_for"])) == (3, ["vindr"])
        assert "vindr: waits (for an approval)" in "\n".join(describe_progress(about))
        history = [{"loss": 0.5, "bytes_up": 1, "bytes_down": 2}]
        progress.round_done(3, history, 4)
        about = read_progress(tmp_path)
        assert about is not None
        assert (about["round"], about["rounds"], about["waits_for"]) == (1, 4, {})
    assert read_progress(tmp_path) is None
    assert describe_progress(None) == ["no study is running"]


def test_killed_study_is_not_running(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps({"process": 2**22 + 1}))  # above the largest number of a process
    assert read_progress(tmp_path) is None
    with assert_refused(ChestfedError, kind="no study"):
        stop_study(tmp_path)


@pytest.mark.skipif(importlib.util.find_spec("prometheus_client") is not None, reason="prometheus_client is there")
def test_metrics_need_their_library(tmp_path: Path) -> None:
    with assert_refused(ConfigError, kind="no prometheus_client"):
        Progress(tmp_path, pipeline(), 0)
