"""A study's tables and texts as MLflow's page shows them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from chestfed.core.diseases import TITLES
from chestfed.evaluation.comparison import DiseaseDifference, MeanDifference
from chestfed.evaluation.intervals.interval import Interval
from chestfed.results.significance import Significance
from chestfed.results.table import Row, StudyTable

if TYPE_CHECKING:
    import pandas as pd


def of_study(table: StudyTable) -> pd.DataFrame:
    """One row per K: the mean AUC and each disease's, then their intervals, and n+ / n-."""
    import pandas as pd

    rows = []
    for row in table.rows:
        named = [
            (_title(result.disease), result, interval)
            for result, interval in zip(row.diseases, row.intervals, strict=True)
        ]
        cells: dict[str, Any] = {"K": row.k, "added": row.clients[-1], "mean": _rounded(row.mean)}
        cells |= {name: _rounded(result.auc) for name, result, _ in named}
        cells |= {"mean 95%": _pair(row.mean_interval)} | {
            f"{name} 95%": _pair(interval) for name, _, interval in named
        }
        cells |= {f"{name} n": f"{result.positives}+ / {result.negatives}-" for name, result, _ in named}
        rows.append({**cells, "data": str(table.origin)})
    return pd.DataFrame(rows)


def of_k(row: Row) -> pd.DataFrame:
    """One row per disease and one for the mean: AUC, ends of the interval, n+, n-, missing."""
    import pandas as pd

    names = ["disease", "AUC", "95% low", "95% high", "positive", "negative", "missing", "note"]
    lines: list[list[Any]] = [
        [
            _title(result.disease),
            _rounded(result.auc),
            *_ends(interval),
            result.positives,
            result.negatives,
            result.missing,
            result.reason or "",
        ]
        for result, interval in zip(row.diseases, row.intervals, strict=True)
    ]
    over = f"over {sum(result.auc is not None for result in row.diseases)} of {len(row.diseases)} diseases"
    lines.append(["mean", _rounded(row.mean), *_ends(row.mean_interval), None, None, None, over])
    return pd.DataFrame(lines, columns=names).astype({"positive": "Int64", "negative": "Int64", "missing": "Int64"})


def of_significance(found: Significance) -> pd.DataFrame:
    """One row per K and disease (and the mean): the difference to the smallest K, its interval, corrected p values."""
    import pandas as pd

    lines: list[dict[str, Any]] = []
    for name, comparison in zip(found.others, found.comparisons, strict=True):
        parts: list[MeanDifference | DiseaseDifference] = [comparison.mean, *comparison.diseases]
        for one in parts:
            disease = one if isinstance(one, DiseaseDifference) else None
            low, high = _ends(one.interval)
            lines.append(
                {
                    "data": found.data,
                    "model": name,
                    "less": found.reference,
                    "disease": "mean" if disease is None else _title(disease.disease),
                    "difference": _rounded(one.difference),
                    "95% low": low,
                    "95% high": high,
                    "p (Holm)": _rounded(one.p_holm),
                    "p DeLong (Holm)": _rounded(one.delong_p_holm),
                }
            )
    return pd.DataFrame(lines)


def note_of_study(table: StudyTable, significance: Significance | None, folder: Path) -> str:
    """Description of a study's run, in Markdown: the K table and where to read on."""
    first = table.rows[0]
    heads = [f"{_title(result.disease)}<br>{result.positives}+ / {result.negatives}-" for result in first.diseases]
    lines = [f"| K | added | **mean** | {' | '.join(heads)} |", f"|{'---|' * (len(heads) + 3)}"]
    for row in table.rows:
        aucs = [_cell(result.auc, interval) for result, interval in zip(row.diseases, row.intervals, strict=True)]
        mean = _cell(row.mean, row.mean_interval)
        lines.append(f"| {row.k} | {row.clients[-1]} | {mean} | {' | '.join(aucs)} |")
    parts = [
        f"{_warning(table)}{_verdict(significance)}".strip(),  # the page shows the first lines only
        "\n".join(lines),
        f"{table.title}. AUC on {table.images:,} images of {table.patients:,} patients ({table.protocol}), "
        f"{table.model}; in brackets 95% intervals of a patient-clustered bootstrap.",
        f"More: the tables and figures among the artifacts; the models are outputs of the child runs; `chestfed report "
        f"{folder.name}` (in the output folder) makes the page about this study.",
    ]
    return "\n\n".join(part for part in parts if part)


def note_of_k(row: Row, table: StudyTable, how: str) -> str:
    """Description of the run of one K, in Markdown."""
    lines = ["| disease | AUC | n+ | n- |", "|---|---|---|---|"]
    for result, interval in zip(row.diseases, row.intervals, strict=True):
        cells = [_title(result.disease), _cell(result.auc, interval), str(result.positives), str(result.negatives)]
        lines.append(f"| {' | '.join(cells)} |")
    lines.append(f"| **mean** | {_cell(row.mean, row.mean_interval)} | | |")
    head = f"{_warning(table)}**K={row.k}**: trained at {', '.join(row.clients)}."
    about = f"AUC on {table.images:,} images of {table.patients:,} patients ({table.protocol}), {table.model}."
    return "\n\n".join(part for part in (head, "\n".join(lines), about, how) if part)


def about_model(table: StudyTable, k: int, name: str) -> str:
    """Description of a name in the registry, in Markdown."""
    version = "Each version is one study of this pipeline; its tags say algorithm, seed, digest and mean AUC."
    return f"{_warning(table)}{table.title}: the model of K={k}, {table.model}. {version}\n\n{how_to_load(name)}"


def how_to_load(name: str) -> str:
    """Markdown that says how a registered model is used."""
    return (
        "Where chestfed is installed (`VERSION`: a number, or `latest`):\n\n"
        f'```python\nmodel = mlflow.pyfunc.load_model("models:/{name}/VERSION")\n'
        'model.predict(["a.png", "b.dcm"])  # a frame: probability per disease\n```\n\n'
        f"`chestfed evaluate models:/{name}/VERSION --site SITE.yaml --data DIR` scores it on a site."
    )


def _verdict(found: Significance | None) -> str:
    """The largest K against the smallest, in a sentence."""
    if found is None or found.comparisons[-1].mean.difference is None:
        return ""
    mean = found.comparisons[-1].mean
    low_high = "" if mean.interval is None else f" [{mean.interval.low:+.3f}, {mean.interval.high:+.3f}]"
    p = "" if mean.p_holm is None else f", corrected p {'< 0.001' if mean.p_holm < 0.001 else f'{mean.p_holm:.3f}'}"
    return f"**{found.others[-1]} less {found.reference}**: mean AUC {mean.difference:+.3f}{low_high}{p}."


def _warning(table: StudyTable) -> str:
    if not table.origin.any_synthetic:
        return ""
    return table.origin.sentence.replace(table.origin.tag, f"**{table.origin.tag}**", 1) + " "


def _title(disease: str) -> str:
    return TITLES.get(disease, disease)


def _rounded(value: float | None) -> float | None:
    """To four decimals: for reading; `table.csv` has all."""
    return None if value is None else round(float(value), 4)


def _cell(value: float | None, interval: Interval | None) -> str:
    return "-" if value is None else f"{value:.3f} {_pair(interval)}".strip()


def _pair(interval: Interval | None) -> str:
    return "" if interval is None else f"[{interval.low:.3f}, {interval.high:.3f}]"


def _ends(interval: Interval | None) -> tuple[float | None, float | None]:
    return (None, None) if interval is None else (_rounded(interval.low), _rounded(interval.high))
