"""Where the running study stands is in a file that ends with it."""

from __future__ import annotations

import importlib.util
import json
import re
import urllib.request
from pathlib import Path

import pytest

from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.leaves.federation.commands.server import describe_progress
from chestfed.leaves.federation.server.progress import FILE, Progress, Running, read_progress, stop_study
from tests.cases import assert_refused
from tests.leaves.federation.test_study import pipeline

ROOT = Path(__file__).parents[3]


def test_file_says_whom_the_study_waits_for(tmp_path: Path) -> None:
    with Progress(tmp_path, pipeline()) as progress:
        assert describe_progress(read_progress(tmp_path))[0].count("beginning") == 1
        progress.pretraining(25, 60, 0.7)
        assert "stage 1, 25 of 60 steps" in describe_progress(read_progress(tmp_path))[0]
        progress.k_started(3)
        progress.event("padchest", "away", "")
        progress.event("vindr", "waits", "for an approval")
        progress.event("padchest", "back", "")
        about = read_progress(tmp_path)
        assert about is not None
        assert (about.k, list(about.waits_for)) == (3, ["vindr"])
        assert "vindr: waits (for an approval)" in "\n".join(describe_progress(about))
        history = [{"loss": 0.5, "bytes_up": 1, "bytes_down": 2}]
        progress.round_done(3, history, 4)
        about = read_progress(tmp_path)
        assert about is not None
        assert (about.round, about.rounds, about.waits_for) == (1, 4, {})
    assert read_progress(tmp_path) is None
    assert describe_progress(None) == ["no study is running"]


def test_killed_study_is_not_running(tmp_path: Path) -> None:
    running = Running(title="", process=2**22 + 1, since="", rounds=1)  # above the largest number of a process
    (tmp_path / FILE).write_text(running.model_dump_json())
    assert read_progress(tmp_path) is None
    with assert_refused(ChestfedError, kind="no study"):
        stop_study(tmp_path)
    (tmp_path / FILE).write_text("{")
    with assert_refused(ConfigError, kind="damaged file"):
        read_progress(tmp_path)


@pytest.mark.skipif(importlib.util.find_spec("prometheus_client") is not None, reason="prometheus_client is there")
def test_metrics_need_their_library(tmp_path: Path) -> None:
    with assert_refused(ConfigError, kind="no prometheus_client"):
        Progress(tmp_path, pipeline(), 0)


def test_dashboard_queries_served_metrics(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client", reason="needs chestfed[metrics]")
    with Progress(tmp_path, pipeline(), 0) as progress:
        assert progress.port is not None
        progress.event("padchest", "away", "")
        progress.round_done(3, [{"loss": 0.5, "bytes_up": 7, "bytes_down": 2}], 4)
        progress.event("vindr", "late", "")
        with urllib.request.urlopen(f"http://127.0.0.1:{progress.port}/metrics") as page:
            text = page.read().decode()
    served = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    board = json.loads((ROOT / "containers" / "grafana.json").read_text(encoding="utf-8"))
    queried = {name for panel in board["panels"] for name in re.findall(r"chestfed_\w+", panel["targets"][0]["expr"])}
    assert queried <= {name.partition("{")[0] for name in served}
    assert served["chestfed_k"] == "3.0"
    assert served["chestfed_bytes_up_total"] == "7.0"
    assert served['chestfed_events_total{event="away",hospital="padchest"}'] == "1.0"
    assert [name for name, value in served.items() if "waits_for" in name and value == "1.0"] == [
        'chestfed_waits_for{hospital="vindr"}'
    ]
