"""The files of an evaluation."""

from __future__ import annotations

from pathlib import Path

from chestfed.core.checkpoint import write_atomically, write_json, write_text
from chestfed.evaluation.protocols import unit_of
from chestfed.evaluation.summary_files import as_json, metrics_csv, reliability_csv, subgroups_csv
from chestfed.scoring.evaluate import Evaluation
from chestfed.training.identity import software_versions


def write(evaluation: Evaluation, folder: Path) -> None:
    """Write `evaluation.json`, three CSV files and `predictions.parquet`."""
    folder.mkdir(parents=True, exist_ok=True)
    summary, scorer = evaluation.summary, evaluation.scorer
    head = {"data": str(evaluation.origin), "site": evaluation.site, "split": evaluation.split}
    for name, content in (
        ("metrics", metrics_csv(summary, head)),
        ("subgroups", subgroups_csv(summary, head)),
        ("reliability", reliability_csv(summary, head)),
    ):
        write_text(folder / f"{name}.csv", content)
    predictions = evaluation.predictions
    path = folder / "predictions.parquet"
    write_atomically(path, lambda temporary: predictions.to_parquet(temporary, index=False))
    value = {
        "title": evaluation.headline,
        **evaluation.origin.keys(),
        "notes": list(evaluation.notes),
        "model": {
            "name": scorer.name,
            "kind": scorer.kind,
            "digest": scorer.digest,
            "outputs": list(scorer.outputs),
            "output": scorer.output,
            "input": scorer.input.model_dump(mode="json"),
            "preprocess": scorer.preprocess.model_dump(mode="json"),
            "trained_on": None if scorer.origin is None else str(scorer.origin),
        },
        "site": evaluation.site,
        "split": evaluation.split,
        "key": predictions.attrs["key"],
        "unit": unit_of(summary.protocol),
        "images": evaluation.images,
        "images_left_out": evaluation.left_out,
        **as_json(summary),
        "versions": software_versions(),
    }
    write_json(folder / "evaluation.json", value)
