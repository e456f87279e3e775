"""Files of a model in the layout of the Hugging Face Hub.

`model.safetensors` is the file of the study, whose header describes it; `config.json` says the same for programs that
do not know chestfed; `README.md` is a model card with its metadata in front, and the results of the study that trained
the model.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import yaml

from chestfed._version import __version__
from chestfed.core.checkpoint import load_checkpoint, write_json, write_text
from chestfed.core.diseases import format_title
from chestfed.core.errors import ConfigError
from chestfed.core.provenance import Origin
from chestfed.data.images.batches import IMAGENET
from chestfed.learning.models import find_norms
from chestfed.results.tables.answer import answer_study
from chestfed.results.tables.collect import load_results
from chestfed.results.tables.frames import Results
from chestfed.results.tables.grid import markdown
from chestfed.results.tables.run_folder import MODEL_FILE, STUDY, RunFolder, find_run
from chestfed.results.tables.sentences import describe_quick
from chestfed.results.tables.views import describe_aucs, make_auc_grid
from chestfed.studies.experiment.device import machine_with
from chestfed.studies.scoring.batch_norm import describe_stored
from chestfed.studies.scoring.scorer import Declared
from chestfed.studies.scoring.scorers import find_model, open_scorer
from chestfed.studies.scoring.study_of_model import read_study

CONFIG, CARD = "config.json", "README.md"
#: Keys of the header of a model that say nothing of the hospitals but their images' origin.
_KEYS: Final = ("model", "diseases", "preprocess", "output", "input")


def write_layout(
    reference: str, folder: Path, k: int | None, license_: str, *, release: bool, network: str | None = None
) -> tuple[list[str], tuple[str, ...]]:
    """Write the three files into a new folder; returns their names, and what is to be known of the weights.

    Raises `ConfigError` if the folder holds something, the model is no model of chestfed, or was trained on patients
    and `release` is not given.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not empty: choose another --out", kind="exists", file=str(folder))
    file = find_model(Path(reference), k)
    scorer = open_scorer(reference, Declared(k, network=network), machine_with("cpu"))  # refuses what it cannot open
    if not scorer.kind.startswith("chestfed model"):
        text = f"{file}: {scorer.kind}; only models that chestfed has trained can be exported"
        raise ConfigError(text, kind="no model of chestfed", file=str(file))
    origin = scorer.origin or Origin.REAL
    if origin is not Origin.SYNTHETIC and not release:
        text = "the model was trained on patients, of whom weights may tell something: with --release you say that the "
        raise ConfigError(text + "hospitals have agreed that it is given away", kind="not released", origin=str(origin))
    _, values = load_checkpoint(file)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, folder / MODEL_FILE)
    about: dict[str, Any] = {key: values[key] for key in _KEYS if key in values}
    normalization = IMAGENET.model_dump(mode="json")
    config: dict[str, Any] = {"library_name": "chestfed", "chestfed_version": __version__}
    config["architectures"] = [values["model"]["name"]]
    config |= {**about, "normalization": normalization, **origin.keys()}
    config |= {"problem_type": "multi_label_classification"}
    config |= {"id2label": {str(place): name for place, name in enumerate(values["diseases"])}}
    write_json(folder / CONFIG, config)
    notes: tuple[str, ...] = ()
    if scorer.network is not None and find_norms(scorer.network):
        run = find_run(str(file))
        notes = (describe_stored(None if run is None else read_study(run), file.name),)
    write_text(folder / CARD, _make_card(file, values, origin, license_, notes))
    return [MODEL_FILE, CONFIG, CARD], notes


def _make_card(file: Path, values: dict[str, Any], origin: Origin, license_: str, notes: tuple[str, ...]) -> str:
    size = values["preprocess"]["size"]
    diseases = [str(name) for name in values["diseases"]]
    study = file.parent.parent if (file.parent.parent / STUDY).is_file() else None
    head: dict[str, Any] = {"license": license_, "library_name": "chestfed", "pipeline_tag": "image-classification"}
    head["tags"] = ["chest-x-ray", "medical-imaging", "federated-learning", "pytorch", f"data-{origin}"]
    parts = [f"# Chest X-ray classifier: {', '.join(map(format_title, diseases))}"]
    parts += [f"**{origin.sentence}**"] if origin.any_synthetic else []
    parts += ["Research only: not a medical device, not for decisions on patients."]
    if study is not None:
        run, number = RunFolder.open(study), int(file.parent.name.removeprefix("k"))
        results, row = load_results(run), run.row(number)
        head["model-index"] = [_index(run, number, results)]
        parts += [text] if (text := describe_quick(results)) else []
        parts += ["## Results", str(answer_study(results)), "\n".join(markdown(make_auc_grid(results), ("added",)))]
        parts += [
            f"{results.title}. {describe_aucs(results)} The weights here are of K={number}: {', '.join(row.clients)}."
        ]
    parts += [
        "## Use",
        f"Input: float32 `[n, 3, {size}, {size}]`, normalized as ImageNet's; `config.json` says how an image becomes "
        f"this square. Output: logits `[n, {len(diseases)}]` of {', '.join(diseases)}, in this order.",
        "```\nchestfed evaluate FOLDER --site SITE --data DIR\n```",
        *notes,
    ]
    return f"---\n{yaml.safe_dump(head, sort_keys=False, allow_unicode=True)}---\n\n" + "\n\n".join(parts) + "\n"


def _index(run: RunFolder, k: int, results: Results) -> dict[str, Any]:
    """The AUCs of this K as the Hub's metadata of results, where a data set is listed by its name alone."""
    row, scored = run.row(k), run.about["scored"]
    values = {auc.disease: auc.value for auc in row.diseases} | {"mean": row.mean.value}
    metrics = [
        {"type": "roc_auc", "name": f"AUC, {name}", "value": round(value, 4)}
        for name, value in values.items()
        if value is not None
    ]
    of = f"{results.origin} {row.clients[0]}" if results.origin.any_synthetic else row.clients[0]
    quick = ", quick study" if results.about.get("quick") else ""
    data = {"name": f"{of} ({scored['protocol']}{quick})", "type": of.replace(" ", "-")}
    task = {"type": "image-classification", "name": "multi-label classification of chest X-rays"}
    return {"name": run.pipeline_name, "results": [{"task": task, "dataset": data, "metrics": metrics}]}
