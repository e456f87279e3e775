"""`chestfed.evaluate` and `chestfed.compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from chestfed.app.api.arguments import optional_path
from chestfed.core.config import as_path, listed
from chestfed.core.disk import making_folder
from chestfed.core.errors import ConfigError
from chestfed.core.python_words import speak_python
from chestfed.results.evaluation.intervals import DEFAULT

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    from chestfed.data.sites.dataset import Site
    from chestfed.reports.pages.study import Study
    from chestfed.results.evaluation.intervals import MethodName
    from chestfed.studies.experiment.device import Machine
    from chestfed.studies.scoring.evaluate import Evaluation
    from chestfed.studies.scoring.scorer import Declared, Scorer


@speak_python
def evaluate(
    model: str | Path | Study | nn.Module,
    site: str | Path | Site,
    *,
    data: str | Path | None = None,
    split: str = "valid",
    protocol: str = "frontal-image",
    k: int | None = None,
    diseases: Sequence[str] | None = None,
    size: int | None = None,
    input: Mapping[str, Any] | None = None,
    output_type: str | None = None,
    model_config: str | Path | None = None,
    network: str | None = None,
    batch_norm: Literal["own", "stored"] | None = None,
    allow_trained: bool = False,
    device: str = "auto",
    out: str | Path | None = None,
    cache: str | Path = "auto",
    resamples: int = 2000,
    interval: MethodName = DEFAULT,
    thresholds: float | Mapping[str, float] | None = None,
) -> Evaluation:
    """Score a model on a site; what `chestfed evaluate` writes goes to `out`, or to a folder in `runs/evaluations`.

    Parameters
    ----------
    model
        A study, its run folder or one of its `kN` folders, a model file, or a torch module: images float32
        `[n, 3, size, size]` to outputs `[n, len(diseases)]`, of which a copy is scored in evaluation mode.
    site, split
        A `Site`, or the YAML of one with its `data`; train, valid, test, or held-out: patients that its study held out.
    k, diseases
        Which model of a study, by default the largest; of a model from elsewhere one name per output (`-`: ignored).
    size, input, output_type, model_config, network
        Side of its images, by default 320; for a module also `channels`, `range`, `mean` and `std`, by default
        ImageNet's; logits (default), probabilities or scores; a file's description; its network: docs/evaluation.md.
    batch_norm, thresholds, allow_trained
        own: statistics of the site's training images; stored: the model's; by default as its study did. Probability
        from which an image is positive, one or by disease: gives `decisions`. Whether patients trained on are scored.

    Raises `ConfigError` if model or site cannot be opened, or the model was trained on patients to be scored.
    """
    from chestfed.results.evaluation.intervals.methods import Intervals
    from chestfed.studies.experiment.device import machine_with
    from chestfed.studies.scoring.evaluate import evaluate_split
    from chestfed.studies.scoring.evaluation_output import write
    from chestfed.studies.scoring.scorer import Declared

    _check_evaluation(site, data, output_type, batch_norm, interval, resamples)
    description = optional_path(model_config, "model_config")
    declared = Declared(k, _list_names(diseases), description, size, output_type, network)  # type: ignore[arg-type]
    machine, opened = machine_with(device), _open_site(site, data, cache)
    reference, scorer = _open_model(model, declared, input, machine, opened.name)
    how, at = Intervals(interval, resamples), _list(thresholds)
    settings: dict[str, Any] = {"how": how, "thresholds": at, "batch_norm": batch_norm, "allow_trained": allow_trained}
    with making_folder(as_path(out or "runs/evaluations", "out"), "out"):
        done = evaluate_split(reference, scorer, opened.site_table, split, protocol, opened.cache, machine, **settings)  # type: ignore[arg-type]
        write(done, Path(out or f"runs/evaluations/{done.name}"))
    return done


def _list_names(diseases: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if diseases is None else tuple(listed(diseases, "diseases", str)) or None


def _list(thresholds: float | Mapping[str, float] | None) -> list[str]:
    """Thresholds as the command line writes them."""
    if thresholds is None:
        return []
    named = thresholds.items() if isinstance(thresholds, Mapping) else [("", thresholds)]
    return [f"{name}={value}".removeprefix("=") for name, value in named]


@speak_python
def compare(
    *models: str | Path | Study,
    k: int | None = None,
    group_seeds: bool = False,
    resamples: int = 2000,
    interval: MethodName = DEFAULT,
) -> pd.DataFrame:
    """Paired differences in AUC of each model to the first one, on the same test images.

    Parameters
    ----------
    models
        Studies, run folders, `kN` folders, or folders of evaluations.
    group_seeds
        Treat runs that differ only in their seed or split as one model.
    interval
        As in `evaluate`; the p values are of the same test.

    Returns
    -------
    pandas.DataFrame
        One row per model and disease, and the mean: difference, interval, p and p after Holm's correction. Of models
        that were trained, p values need two or more seeds, the same of both, and `group_seeds`.
    """
    from chestfed.results.tables import predictions
    from chestfed.results.tables.differences import check_choices, compare_with_first
    from chestfed.results.tables.frames import select

    check_choices(interval, resamples)
    folders = [_locate(model) for model in models]
    if len(folders) < 2:
        text = "give two or more studies, run folders, kN folders or folders of evaluations"
        raise ConfigError(f"compare{models!r}: {text}", kind="not models")
    loaded = [predictions.load_predictions(folder, k) for folder in folders]
    loaded = predictions.group_seeds(loaded) if group_seeds else loaded
    return select(compare_with_first(loaded, resamples, interval), "study")


def _check_evaluation(
    site: object, data: object, output_type: str | None, batch_norm: str | None, interval: str, resamples: int
) -> None:
    """Refuse what the command refuses, and a site of a wrong kind."""
    from chestfed.data.sites.dataset import Site
    from chestfed.results.tables.differences import check_choice, check_choices

    check_choices(interval, resamples)
    check_choice(output_type, (None, "logits", "probabilities", "scores"), "output_type")
    check_choice(batch_norm, (None, "own", "stored"), "batch_norm")
    if not isinstance(site, str | Path | Site) or (isinstance(site, Site) and data is not None):
        raise ConfigError(
            f"site={site!r}, data={data!r}: give the YAML of a site and its data, or a Site alone", kind="not a site"
        )


def _open_site(site: str | Path | Site, data: str | Path | None, cache: str | Path) -> Site:
    from chestfed.data.sites.dataset import load_site

    return load_site(site, data, cache=cache) if isinstance(site, str | Path) else site


def _open_model(
    model: object, declared: Declared, described: Mapping[str, Any] | None, machine: Machine, site: str
) -> tuple[str | None, Scorer]:
    """Where a model lies, None for a module, and the model ready to score images of this site."""
    from torch import nn

    from chestfed.studies.scoring.scorers import open_module, open_scorer

    if isinstance(model, nn.Module):
        if any(value is not None for value in (declared.k, declared.config, declared.network)):
            text = "k, model_config and network are for files; a module takes diseases, size and input"
            raise ConfigError(text, kind="module")
        return None, open_module(model, declared, described, machine)
    if described is not None:
        raise ConfigError("input is for modules; describe a file in model_config", kind="not a module")
    reference = str(_locate(model))
    return reference, open_scorer(reference, declared, machine, site=site)


def _locate(model: object) -> Path:
    """The folder or file of a model."""
    reference: object = getattr(model, "folder", model)
    if not isinstance(reference, str | Path):
        text = (
            "give a study, a run folder, the folder of an evaluation, or a model file; `evaluate` takes torch modules"
        )
        raise ConfigError(f"model={model!r}: {text}", kind="not a model")
    return Path(reference)
