"""The list of studies as MLflow's page shows it by our address: columns of the answer, and three charts.

MLflow stores a shared view as a tag of the experiment, and opens it by the tag's name in the address. A version of
MLflow that does not know the form shows its own list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mlflow import MlflowClient

_KEY: Final = "chestfed"
_TAG: Final = f"mlflow.sharedViewState.{_KEY}"
#: MLflow sorts the columns by name, whatever the order here.
_GAIN: Final = ("gain", "gain_from", "gain_to")
_AUC: Final = "mean_auc/K"


def share_view(client: MlflowClient, experiment: str) -> str:
    """Store the view of this experiment; returns the page's path below MLflow's address."""
    runs = client.search_runs([experiment], "tags.kind = 'study'", max_results=100)
    metrics = {name for run in runs for name in run.data.metrics}
    client.set_experiment_tag(experiment, _TAG, json.dumps(_make_view(metrics)))
    return f"/#/experiments/{experiment}/runs?workflowType=machine_learning&viewStateShareKey={_KEY}"


def _make_view(metrics: Iterable[str]) -> dict[str, Any]:
    ks = sorted(int(name.removeprefix(_AUC)) for name in metrics if re.fullmatch(rf"{_AUC}\d+", name))
    ends = [f"{_AUC}{k}" for k in dict.fromkeys((ks[0], ks[-1]))] if ks else []
    columns = [*(f"metrics.`{name}`" for name in (*_GAIN, *ends)), "tags.`seed`", "tags.`data`"]
    charts = [
        _chart("LINE", "auc/mean", "mean AUC by K", selectedMetricKeys=["auc/mean"], xAxisKey="step", lineSmoothness=0),
        _chart("BAR", _GAIN[0], "gain: largest K minus smallest"),
        *(_chart("BAR", name, f"mean AUC, K={ks[-1]}") for name in ends[-1:]),
    ]
    section = {"uuid": "answer", "name": "Answer", "display": True, "isReordered": False}
    return {
        "searchFilter": "tags.kind != 'K'",
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "selectedColumns": columns,
        "compareRunCharts": charts,
        "compareRunSections": [section | {"deleted": False, "isGenerated": False}],
        "isAccordionReordered": True,
    }


def _chart(kind: str, metric: str, title: str, **more: Any) -> dict[str, Any]:
    about = {"type": kind, "uuid": f"{kind}-{metric}", "metricKey": metric, "displayName": title}
    return (
        about | {"metricSectionId": "answer", "deleted": False, "isGenerated": False, "runsCountToCompare": 10} | more
    )
