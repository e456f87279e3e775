"""What MLflow's page of the experiment shows first: a description, and a list of runs with the columns that matter.

The list is a saved view of MLflow ("Views" on the page), kept as a tag of the experiment. Its form is the page's own
and not documented; an MLflow that does not know it shows its usual columns.
"""

from __future__ import annotations

import json
from typing import Any

#: Key of the saved view, as in the page's address: `?viewStateShareKey=chestfed`.
VIEW = "chestfed"

_ABOUT = (
    "A **parent run** is one study: open it for the table of K (number of clients) against AUC and the comparison "
    "with the smallest K. Its **children** (+) are one model per K.\n\n"
    "`auc/mean` is the mean AUC over the diseases on the test images; in a study's run its step is K, so its chart "
    "under *Model metrics* shows K against AUC. To compare the K of a study, select its children and press *Compare*. "
    "Runs tagged `data: synthetic` are about phantoms, `data: mixed` in part."
)
_NAME = "attributes.`Run Name`"
_COLUMNS = ("attributes.`Created`", "attributes.`Duration`", "params.`k`", "metrics.`auc/mean`", "tags.`data`")


def experiment_tags() -> dict[str, str]:
    """Tags of the experiment: its description and the saved view."""
    state: dict[str, Any] = {
        "selectedColumns": list(_COLUMNS),
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
    }
    state |= {"columnOrder": [_NAME], "columnWidths": {_NAME: 420}}
    view = {"name": "Studies: K and mean AUC", "createdAt": 0, "updatedAt": 0, "state": json.dumps(state)}
    return {
        "mlflow.experimentKind": "custom_model_development",
        "mlflow.note.content": _ABOUT,
        f"mlflow.sharedViewState.{VIEW}": json.dumps(view),
    }


def page_of(experiment: str) -> str:
    """Path of the list of runs below MLflow's address."""
    return f"/#/experiments/{experiment}/runs?workflowType=machine_learning&viewStateShareKey={VIEW}"
