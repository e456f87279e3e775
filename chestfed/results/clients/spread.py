"""How unequal the hospitals are, and what their gates chose, in sentences below a table over hospitals."""

from __future__ import annotations

from typing import Any

from chestfed.results.collect import Results
from chestfed.results.frames import list_records
from chestfed.results.grid import number, signed


def describe_inequality(results: Results, view: str) -> str:
    """All of it that a view has."""
    gate = state_gate(results) if view == "alternatives" else ""
    return " ".join(filter(None, [state_spread(results, view), gate]))


def state_spread(results: Results, view: str) -> str:
    """How unequal the hospitals of a view are: the worst, the spread, and how many lose against the first model."""
    texts = []
    for model in dict.fromkeys(results.view(view)["model"]):
        rows = list_records(results.view(view, disease="mean", model=model, takes_part=True).dropna(subset="auc"))
        if len(rows) < 2:
            continue
        worst, best = (choose(rows, key=lambda row: row["auc"]) for choose in (min, max))
        interval = "" if worst["low"] is None else f" [{number(worst['low'])}, {number(worst['high'])}]"
        gains = list_records(results.gains(view, disease="mean", model=model).dropna(subset="difference"))
        lose = sum(row["difference"] < 0 for row in gains)
        losing = f", lower than with {gains[0]['reference']} at {lose} of {len(gains)}" if gains else ""
        spread = f"from {number(worst['auc'])}{interval} at {worst['hospital']} to {number(best['auc'])}"
        texts.append(f"{model} {spread} at {best['hospital']}, spread {number(best['auc'] - worst['auc'])}{losing}")
    return f"Worst and best hospital: {'; '.join(texts)}." if texts else ""


def state_gate(results: Results) -> str:
    """What the gate chose at each hospital, and what it costs against the other models; empty without a gate."""
    texts = []
    for hospital, counts in results.about.get("gate", {}).items():
        own = list_records(results.gains("alternatives", disease="mean", hospital=hospital, model="gate"))
        others = list_records(results.gains("gate", disease="mean", hospital=hospital))
        costs = [f"{_signed_interval(row)} minus {row['reference']}" for row in (*own, *others)]
        total = sum(counts.values())
        chosen = ", ".join(f"{name} ({count} of {total})" for name, count in counts.items())
        best = max((row for row in (*own, *others)), key=lambda row: row["auc_reference"] or 0, default=None)
        text = "" if best is None else f"; the best model there without a gate is {best['reference']}"
        texts.append(f"At {hospital} the gate chose {chosen}: {', '.join(costs)}{text}.")
    return " ".join(texts)


def _signed_interval(row: dict[str, Any]) -> str:
    interval = "" if row["low"] is None else f" [{signed(row['low'])}, {signed(row['high'])}]"
    return f"{signed(row['difference'])}{interval}"
