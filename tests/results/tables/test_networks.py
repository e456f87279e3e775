"""Methods that are compared with networks of their own, or whose clients have models of their own."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from chestfed.app.commands.study.summary import render_summary
from chestfed.reports.pages.page import make_page
from chestfed.results.tables.answer import answer_study
from chestfed.results.tables.collect import collect, read_comparison, write_comparison
from chestfed.results.tables.frames import Results
from chestfed.results.tables.predictions import load_predictions
from chestfed.results.tables.run_folder import RunFolder
from chestfed.results.tables.settings import state_settings
from chestfed.results.tables.views import render_tables
from tests.results.tables.finished_runs import seal_run, write_run

NETS = {
    "dense": {"model": {"name": "small", "growth_rate": 8, "initial_weights": None}},
    "cnn": {"model": {"name": "nets:CNN", "width": 8, "initial_weights": None}},
    "start": {"model": {"name": "nets:CNN", "width": 8, "initial_weights": "cnn.safetensors"}},
}
AVERAGED = "the average of the clients' models, personal parts averaged too"


def write_methods(folder: Path, methods: dict[str, dict[str, Any]], **scored: str) -> Results:
    """A comparison of methods with these parts of the configuration; `scored` is for the last one."""
    runs = []
    for method, changes in methods.items():
        run = write_run(folder / method, method=method, ks=(2,))
        about = json.loads((run / "study.json").read_text())
        about["configuration"] |= changes
        about["scored"] |= {"model": changes.get("model", {}).get("name", "small")}
        about["scored"] |= scored if method == list(methods)[-1] else {}
        (run / "study.json").write_text(json.dumps(about))
        seal_run(run)
        runs.append(RunFolder.open(run))
    return collect(runs)


def print_all(results: Results) -> tuple[str, str]:
    """Tables and the first screen as text."""
    texts = []
    for part in (render_tables(results), render_summary(results, answer_study(results))):
        console = Console(width=200, file=io.StringIO(), record=True)
        console.print(part)
        texts.append(" ".join(console.export_text().split()))
    return texts[0], texts[1]


def test_networks_of_rows_are_named(tmp_path: Path, undrawn: None) -> None:
    results = write_methods(tmp_path, NETS)
    rows = results.view("study", disease="mean")
    networks = ["small, growth_rate 8", "nets:CNN, width 8", "nets:CNN, width 8, initial_weights cnn.safetensors"]
    assert rows["network"].tolist() == networks
    tables, first = print_all(results)
    page = make_page(read_comparison(write_comparison(results, tmp_path))).html
    for text in (tables, page):
        assert "networks: see the settings of each method" in text
        assert "nets:CNN, initial_weights cnn.safetensors" in text
    assert "Settings differ in network, model.initial_weights;" in first


def test_one_network_stays_in_the_caption(tmp_path: Path) -> None:
    results = write_methods(tmp_path, {"a": NETS["dense"], "b": NETS["dense"]})
    assert results.about["model"] == "small"
    assert "network" not in state_settings(results.about["methods"])


def test_averaged_models_are_named(tmp_path: Path, undrawn: None) -> None:
    results = write_methods(tmp_path, {"fedavg": {}, "own": {}}, scored_with=AVERAGED)
    assert results.view("study", disease="mean")["scored_with"].tolist() == ["", AVERAGED]
    sentence = f"own: scored with {AVERAGED}, because the test images belong to no client."
    page = make_page(read_comparison(write_comparison(results, tmp_path))).html
    for text in (*print_all(results), page.replace("&#39;", "'")):
        assert sentence in text


@pytest.mark.parametrize("method", ["own-pair", ""])
def test_compared_model_has_its_method(tmp_path: Path, method: str) -> None:
    name = load_predictions(write_run(tmp_path / "a", method=method)).name
    assert name == f"{method or 'codasca'}, I=4, K=2, seed 1"
