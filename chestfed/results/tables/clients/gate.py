"""Alternatives of hospitals to the common model, by name, and the choices of their gates."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, TypedDict

from chestfed.results.evaluation.joining.gate_price import GAIN
from chestfed.results.tables.columns import GATE, OWN_DATA, DifferenceRow
from chestfed.results.tables.files import expected, read_json_file
from chestfed.results.tables.frames import get_interval
from chestfed.results.tables.grid import pair, signed
from chestfed.results.tables.run_folder import ALTERNATIVES, CHOICE, RunFolder
from chestfed.results.tables.titles import ALTERNATIVE_TITLES

if TYPE_CHECKING:
    from chestfed.results.tables.frames import Results


class GatePriceFacts(TypedDict):
    """`gate_price.GatePrice` as plain data."""

    caution: float
    worst: float
    seen: float
    positives: float
    negatives: float


def count_choices(runs: Sequence[RunFolder], k: int) -> dict[str, dict[str, int]]:
    """Hospital -> what its gate chose, and in how many runs."""
    counts: dict[str, dict[str, int]] = {}
    for run in runs:
        for file in sorted((run.path / f"k{k}" / ALTERNATIVES / GATE).glob(f"*/{CHOICE}")):
            choice = read_json_file(file)
            with expected(file):
                title = ALTERNATIVE_TITLES.get(choice["name"], f"K={k}")
                title += f" mixed with {ALTERNATIVE_TITLES[OWN_DATA]}" * choice["mixed"]
            chosen = counts.setdefault(file.parent.name, {})
            chosen[title] = chosen.get(title, 0) + 1
    return counts


def count_reasons(runs: Sequence[RunFolder], k: int) -> dict[str, dict[str, int]]:
    """Hospital -> why its gate could compare nothing and kept own data, and in how many runs."""
    counts: dict[str, dict[str, int]] = {}
    for run in runs:
        for file in sorted((run.path / f"k{k}" / ALTERNATIVES / GATE).glob(f"*/{CHOICE}")):
            if reason := read_json_file(file).get("reason"):
                given = counts.setdefault(file.parent.name, {})
                given[reason] = given.get(reason, 0) + 1
    return counts


def read_prices(runs: Sequence[RunFolder], k: int) -> dict[str, GatePriceFacts]:
    """Hospital -> what its gate may cost, as it was simulated, in the mean over the runs; of those that know it."""
    known: dict[str, list[GatePriceFacts]] = {}
    for run in runs:
        for file in sorted((run.path / f"k{k}" / ALTERNATIVES / GATE).glob(f"*/{CHOICE}")):
            price = read_json_file(file).get("price")
            if price is not None:
                known.setdefault(file.parent.name, []).append(price)
    return {
        hospital: {
            "caution": fmean(price["caution"] for price in prices),
            "worst": fmean(price["worst"] for price in prices),
            "seen": fmean(price["seen"] for price in prices),
            "positives": fmean(price["positives"] for price in prices),
            "negatives": fmean(price["negatives"] for price in prices),
        }
        for hospital, prices in known.items()
    }


def state_reasons(results: Results) -> str:
    """State at which hospitals the gate could compare nothing, and why; empty without any."""
    texts = []
    for place, counts in results.about.get("gate_reasons", {}).items():
        total = sum(results.about["gate"][place].values())
        reasons = "; ".join(f"{reason} ({count} of {total})" for reason, count in counts.items())
        texts.append(f"The gate at {place} compared nothing and keeps own data: {reasons}.")
    return " ".join(texts)


def state_gate(results: Results) -> str:
    """State the gate's choice at each hospital, and its cost against the other models; empty without a gate."""
    reasons = state_reasons(results)
    texts = [reasons] if reasons else []
    for place, counts in results.about.get("gate", {}).items():
        gates = results.list_differences("alternatives", disease="mean", place=place, kind=GATE)
        others = results.list_differences("gate", disease="mean", place=place)
        costs = [_state_cost(row) for row in (*gates, *others)]
        total = sum(counts.values())
        chosen = ", ".join(f"{name} ({count} of {total})" for name, count in counts.items())
        best = max((row for row in (*gates, *others)), key=lambda row: row["auc_reference"] or 0, default=None)
        text = "" if best is None else f"; the best model there without a gate is {best['reference']}"
        choice = f"At {place} the gate, a choice on validation patients, took {chosen}"
        texts.append(f"{choice}: {', '.join(costs)}{text}.{_state_price(results, place)}")
    return " ".join(texts)


def _state_price(results: Results, place: str) -> str:
    """Sentence on the price of a gate by simulation; empty where it is not known."""
    price = results.about.get("gate_price", {}).get(place)
    if price is None:
        return ""
    patients = f"{price['positives']:.0f} validation patients with the rarest disease, {price['negatives']:.0f} without"
    worst = f"{signed(price['worst'])} against own data in the worst 5%"
    seen = f"a gain of {GAIN:g} is taken by {price['seen']:.0%}"
    return f" Simulated for {patients}, caution {price['caution']:.2g}: {worst}; {seen}."


def _state_cost(row: DifferenceRow) -> str:
    interval = pair(get_interval(row), 3, signed)
    return f"{signed(row['difference'] or 0.0)} {interval}".rstrip() + f" minus {row['reference']}"
