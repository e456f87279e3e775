"""The numbers of results that MLflow shows."""

from __future__ import annotations

from chestfed.results.collect import Results
from chestfed.results.frames import list_records
from chestfed.results.held_out import average_seen
from chestfed.results.sentences import group_rows


def list_metrics(results: Results) -> dict[str, float | None]:
    """The numbers for MLflow: mean AUC of each model, its gain over the first, and both at every hospital."""
    values: dict[str, float | None] = {}
    for row in list_records(results.view("study", disease="mean")):
        name = row["model"].replace("=", "")
        values |= {f"auc/{name}": row["auc"]} | ({f"auc_sd/{name}": row["sd"]} if len(results.seeds) > 1 else {})
    gains = list_records(results.gains("study"))
    for row in (row for row in gains if row["model"] == gains[-1]["model"]):
        if row["disease"] == "mean":
            values |= {f"gain/{name}": row[name] for name in ("low", "high", "p")} | {"gain/mean": row["difference"]}
        else:
            values[f"gain_per_disease/{row['disease']}"] = row["difference"]
    at = list_records(results.view("hospitals", disease="mean"))
    values |= {f"auc_at/{row['hospital']}": row["auc"] for row in at if row["model"] == at[-1]["model"]}
    for row in list_records(results.gains("hospitals", disease="mean")):
        values[f"gain_at/{row['hospital']}"] = row["difference"]
    for row in list_records(results.gains("alternatives", disease="mean")):
        values[f"over_own_data/{row['hospital']}/{row['model'].replace('=', '')}"] = row["difference"]
    return values


def list_held_out_metrics(results: Results) -> dict[str, float | None]:
    """The numbers for MLflow: mean AUC of each held-out site, and of its model on the sites that it was trained on."""
    values: dict[str, float | None] = {}
    for rows in group_rows(results.view("held_out"), "model"):
        own = next(row for row in rows if not row["takes_part"] and row["disease"] == "mean")
        values[f"held_out_auc_mean_{own['model']}"] = own["auc"]
        values[f"trained_on_auc_mean_{own['model']}"] = (average_seen(rows) or [None])[-1]
    return values
