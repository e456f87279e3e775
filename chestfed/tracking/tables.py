"""A study's tables and texts as MLflow's page shows them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from chestfed.results.grid import Cell, Grid, Line, auc_cell, markdown, p_value, pair, title_of
from chestfed.results.significance import Significance, frame
from chestfed.results.table import Row, StudyTable, auc_grid

if TYPE_CHECKING:
    import pandas as pd

#: Decimals of numbers to read; `table.csv` has all.
_DIGITS = 4


def of_study(table: StudyTable) -> pd.DataFrame:
    """One row per K: the mean AUC and each disease's, then their intervals, and n+ / n-."""
    import pandas as pd

    rows = []
    for row in table.rows:
        parts = [("mean", row.mean, row.mean_interval)]
        parts += [(title_of(one.disease), one.auc, interval) for one, interval in row.entries()]
        counts = {f"{title_of(one.disease)} n": f"{one.positives}+ / {one.negatives}-" for one in row.diseases}
        aucs = {name: None if auc is None else round(auc, _DIGITS) for name, auc, _ in parts}
        intervals = {f"{name} 95%": pair(interval) for name, _, interval in parts}
        rows.append({"K": row.k, "added": row.clients[-1], **aucs, **intervals, **counts, "data": str(table.origin)})
    return pd.DataFrame(rows)


def of_k(row: Row) -> pd.DataFrame:
    """One row per disease and one for the mean: AUC, ends of the interval, n+, n-, missing."""
    import pandas as pd

    found = pd.DataFrame(row.records()).assign(disease=[*(title_of(one.disease) for one in row.diseases), "mean"])
    over = f"over {sum(one.auc is not None for one in row.diseases)} of {len(row.diseases)} diseases"
    found["reason"] = [*(one.reason for one in row.diseases), over]
    counts = {"positives": "positive", "negatives": "negative", "missing": "missing"}
    found = found.astype(dict.fromkeys(counts, "Int64") | dict.fromkeys(("auc", "low", "high"), float)).round(_DIGITS)
    return found.rename(columns={"auc": "AUC", "low": "95% low", "high": "95% high", "reason": "note", **counts})


def of_significance(found: Significance) -> pd.DataFrame:
    """One row per K and disease (and the mean): the difference to the smallest K, its interval, corrected p values."""
    names = {"data": "data", "model": "model", "reference": "minus", "disease": "disease", "difference": "difference"}
    names |= {"low": "95% low", "high": "95% high", "p_holm": "p (Holm)", "delong_p_holm": "p DeLong (Holm)"}
    table = frame(found)
    table["disease"] = table["disease"].map(title_of)
    return table[list(names)].rename(columns=names).round(_DIGITS)


def note_of_study(table: StudyTable, significance: Significance | None, folder: Path) -> str:
    """Description of a study's run, in Markdown: the K table and where to read on."""
    parts = [
        f"{_warning(table)}{_verdict(significance)}".strip(),  # the page shows the first lines only
        "\n".join(markdown(auc_grid(table), ("added",), below=" {}")),
        f"{table.title}. AUC on {table.images:,} images of {table.patients:,} patients ({table.protocol}), "
        f"{table.model}; in brackets 95% intervals of a patient-clustered bootstrap.",
        f"More: the tables and figures among the artifacts; the models are outputs of the child runs; `chestfed report "
        f"{folder.name}` (in the output folder) writes a page about this study.",
    ]
    return "\n\n".join(part for part in parts if part)


def note_of_k(row: Row, table: StudyTable, how: str) -> str:
    """Description of the run of one K, in Markdown."""
    lines = [
        Line(title_of(one.disease), (auc_cell(one.auc, interval), Cell(str(one.positives)), Cell(str(one.negatives))))
        for one, interval in row.entries()
    ]
    lines.append(Line("**mean**", (auc_cell(row.mean, row.mean_interval), Cell(""), Cell(""))))
    grid = Grid("aucs", "", tuple(map(Cell, ("disease", "AUC", "n+", "n-"))), tuple(lines))
    head = f"{_warning(table)}**K={row.k}**: trained at {', '.join(row.clients)}."
    about = f"AUC on {table.images:,} images of {table.patients:,} patients ({table.protocol}), {table.model}."
    aucs = "\n".join(markdown(grid, below=" {}"))
    return "\n\n".join(part for part in (head, aucs, about, how) if part)


def about_model(table: StudyTable, k: int, name: str) -> str:
    """Description of a name in the registry, in Markdown."""
    version = "Each version is one study of this pipeline; its tags give algorithm, seed, digest and mean AUC."
    return f"{_warning(table)}{table.title}: the model of K={k}, {table.model}. {version}\n\n{how_to_load(name)}"


def how_to_load(name: str) -> str:
    """Markdown that says how to use a registered model."""
    return (
        "With chestfed installed (`VERSION`: a number, or `latest`):\n\n"
        f'```python\nmodel = mlflow.pyfunc.load_model("models:/{name}/VERSION")\n'
        'model.predict(["a.png", "b.dcm"])  # a frame: probability per disease\n```\n\n'
        f"`chestfed evaluate models:/{name}/VERSION --on SITE.yaml --data DIR` scores it on a site."
    )


def _verdict(found: Significance | None) -> str:
    """The largest K against the smallest, in a sentence."""
    if found is None or found.comparisons[-1].mean.difference is None:
        return ""
    mean = found.comparisons[-1].mean
    low_high = "" if mean.interval is None else f" [{mean.interval.low:+.3f}, {mean.interval.high:+.3f}]"
    p = "" if mean.p_holm is None else f", corrected p {p_value(mean.p_holm)}"
    return f"**{found.others[-1]} minus {found.reference}**: mean AUC {mean.difference:+.3f}{low_high}{p}."


def _warning(table: StudyTable) -> str:
    if not table.origin.any_synthetic:
        return ""
    return table.origin.sentence.replace(table.origin.tag, f"**{table.origin.tag}**", 1) + " "
