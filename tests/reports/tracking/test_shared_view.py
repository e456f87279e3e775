"""The view of studies that our address of MLflow's page opens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chestfed.reports.tracking.shared_view import share_view
from chestfed.reports.tracking.store import Store, connect, find_page, local_store


@pytest.mark.slow
def test_view_has_columns_and_three_charts(tmp_path: Path) -> None:
    uri = local_store(tmp_path)
    store = Store(uri, tmp_path / "mlflow-artifacts")
    for kind, metrics in (
        ("study", {"mean_auc/K1": 0.7, "mean_auc/K10": 0.8, "gain": 0.1}),
        ("K", {"mean_auc/K77": 0.5}),
    ):
        run = store.start_run(kind, {"kind": kind})
        store.log_metrics(run, [(0, metrics)])
    assert find_page(uri).endswith("/runs?workflowType=machine_learning&viewStateShareKey=chestfed")
    experiment = connect(uri).get_experiment_by_name("chestfed")
    assert experiment is not None
    view = json.loads(experiment.tags["mlflow.sharedViewState.chestfed"])
    columns = ["gain", "gain_from", "gain_to", "mean_auc/K1", "mean_auc/K10"]
    assert columns == sorted(columns)  # as MLflow shows them
    assert view["selectedColumns"][:5] == [f"metrics.`{name}`" for name in columns]
    assert [chart["metricKey"] for chart in view["compareRunCharts"]] == ["auc/mean", "gain", "mean_auc/K10"]
    assert {chart["metricSectionId"] for chart in view["compareRunCharts"]} == {view["compareRunSections"][0]["uuid"]}
    share_view(connect(uri), experiment.experiment_id)  # a second time


@pytest.mark.slow
def test_store_without_studies_has_a_page(tmp_path: Path) -> None:
    uri = local_store(tmp_path)
    Store(uri, tmp_path / "mlflow-artifacts")
    assert "viewStateShareKey" in find_page(uri)
