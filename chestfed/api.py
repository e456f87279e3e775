"""chestfed in Python: run a study, open a hospital, score a model, compare; for notebooks and scripts.

The functions do what the commands of the same names do, write the same files, and resume as these do.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from chestfed.core.bundled import pipeline_file, site_file
from chestfed.core.config import listed
from chestfed.core.errors import ConfigError
from chestfed.core.plugins import Catalogue
from chestfed.evaluation.intervals import DEFAULT

if TYPE_CHECKING:
    import pandas as pd

    from chestfed.evaluation.intervals import MethodName
    from chestfed.report.study import Study
    from chestfed.scoring.evaluate import Evaluation
    from chestfed.sites.dataset import Site

#: A part of an experiment: its name or reference, a mapping of `name` and options, or a declaration.
Part = str | Mapping[str, Any] | object


def run(
    pipeline: str | Path = "source_addition_samples",
    *,
    algorithm: Part | None = None,
    objective: Part | None = None,
    model: Part | None = None,
    k: int | Sequence[int] | None = None,
    seed: int | None = None,
    seeds: int | Sequence[int] | None = None,
    device: str | None = None,
    data: str | Path | None = None,
    out: str | Path = "runs",
    cache: str | Path = "cache",
    overrides: Sequence[str] = (),
    add_sites: Sequence[str | Path] = (),
    skip_unreadable: bool = False,
    tracking: bool = False,
    quiet: bool = False,
) -> Study:
    """Run a study, with one training seed or several, or what is left of it, and return it.

    Parameters
    ----------
    pipeline
        A YAML, or the name of a bundled one. Of several methods the first selected one is run.
    algorithm, objective, model
        What to train with: the name of a method of it, `"mylab.methods:FedDyn"`, `{"name": "fedprox", "prox": 0.1}`, or
        a declaration, also one that was made in a notebook.
    k, seeds
        Numbers of clients; several training seeds, or how many from the pipeline's on, which are read together.
    data
        Folder that contains the sites' folders.
    overrides
        Any keys, as after `--set`: `["federated.window=8"]`.
    tracking, quiet
        Record the study in the MLflow store of `out`; print nothing.

    Raises
    ------
    ConfigError
        If the configuration is invalid. Nothing was started then.
    ChestfedError
        If data are missing or damaged, or training fails. What is finished is kept, and resumed by the same call.
    """
    from chestfed.commands.study import run as study_run
    from chestfed.core.console import open_console
    from chestfed.engines.declaration import refuse_several
    from chestfed.report.study import Study

    added = [*map(site_file, listed(add_sites, "add_sites"))]
    console, root, file = open_console(quiet=quiet), None if data is None else Path(data), pipeline_file(pipeline)
    settings = [*(given := listed(overrides, "overrides")), *_select(file, given, algorithm), *_parts(objective, model)]
    settings += ["windows=[]", f"seeds={_several(seeds) or 1}", *_plain(k, seed, device)]
    refuse_several("chestfed.run()")
    studies = study_run.prepare(console, file, settings, added, root)
    if studies.pipeline.held_out is not None:
        raise ConfigError(f"{file}: a pipeline with held_out is several studies; use `chestfed study {file}`")
    done = study_run.run(studies, Path(out), Path(cache), None, tracking=tracking, skip_unreadable=skip_unreadable)
    return Study.of([study.folder for study in done])


def evaluate(
    model: str | Path | Study,
    site: str | Path | Site,
    *,
    data: str | Path | None = None,
    split: str = "valid",
    protocol: str = "frontal-image",
    k: int | None = None,
    output_names: Sequence[str] | None = None,
    output_type: str | None = None,
    model_config: str | Path | None = None,
    batch_norm: Literal["own", "stored"] | None = None,
    device: str = "auto",
    out: str | Path | None = None,
    cache: str | Path = "cache",
    resamples: int = 2000,
    interval: MethodName = DEFAULT,
) -> Evaluation:
    """Score a model on a site; what `chestfed evaluate` writes goes to `out`, or to a folder in `runs/evaluations`.

    Parameters
    ----------
    model
        A study, its run folder or one of its `kN` folders, or a model file.
    site
        A `Site`, or the YAML of one with its `data`.
    split
        train, valid, test, or held-out: the patients that the model's own study held out.
    k
        Which model of a study; the largest by default.
    output_names, output_type, model_config
        What a model from elsewhere puts out, see docs/evaluation.md.
    batch_norm
        Statistics to score with: of the site's own training images, or as stored; by default as the model's study did.
    interval
        obuchowski, bca or percentile.

    Raises
    ------
    ConfigError
        If the model or the site cannot be opened.
    """
    from chestfed.core.disk import check_folder
    from chestfed.evaluation.intervals.methods import Intervals
    from chestfed.experiment.device import machine_with
    from chestfed.scoring.evaluate import evaluate_split
    from chestfed.scoring.evaluation_output import write
    from chestfed.scoring.scorers import Declared, open_scorer
    from chestfed.sites.dataset import load_site

    _check_evaluation(site, data, output_type, batch_norm, interval, resamples)
    reference, machine = str(getattr(model, "folder", model)), machine_with(device)
    names, described = listed(output_names or (), "output_names"), None if model_config is None else Path(model_config)
    scorer = open_scorer(reference, Declared(k, tuple(names) or None, described, None, output_type), machine)  # type: ignore[arg-type]
    opened = load_site(site, data, cache=cache) if isinstance(site, str | Path) else site
    settings = {"how": Intervals(interval, resamples), "batch_norm": batch_norm}
    check_folder(Path(out or "runs/evaluations"), "out")
    done = evaluate_split(reference, scorer, opened.site_table, split, protocol, opened.cache, machine, **settings)  # type: ignore[arg-type]
    write(done, Path(out or f"runs/evaluations/{done.name}"))
    return done


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
        Treat runs that differ only in their seed as one model.
    interval
        As in `evaluate`; the p values are of the same test.

    Returns
    -------
    pandas.DataFrame
        One row per model and disease, and the mean: difference, interval, p and p after Holm's correction. Of models
        that were trained, p values need two or more seeds, the same of both, and `group_seeds`.
    """
    from chestfed.results import predictions
    from chestfed.results.differences import check_choices, compare_with_first
    from chestfed.results.frames import select

    check_choices(interval, resamples)
    loaded = [predictions.load_predictions(Path(getattr(model, "folder", model)), k) for model in models]  # type: ignore[arg-type]
    loaded = predictions.group_seeds(loaded) if group_seeds else loaded
    return select(compare_with_first(loaded, resamples, interval), "study")


def _check_evaluation(
    site: object, data: object, output_type: str | None, batch_norm: str | None, interval: str, resamples: int
) -> None:
    """Refuse what the command refuses, and a site of a wrong kind."""
    from chestfed.results.differences import check_choices
    from chestfed.sites.dataset import Site

    check_choices(interval, resamples)
    if output_type not in (None, "logits", "probabilities", "scores"):
        raise ConfigError(f"output_type={output_type!r}: choose logits, probabilities or scores")
    if batch_norm not in (None, "own", "stored"):
        raise ConfigError(f"batch_norm={batch_norm!r}: choose own or stored")
    if not isinstance(site, str | Path | Site) or (isinstance(site, Site) and data is not None):
        raise ConfigError(f"site={site!r}, data={data!r}: give the YAML of a site and its data, or a Site alone")


def _whole(numbers: int | Sequence[int], key: str) -> list[int]:
    """One or several whole numbers, of any library, as a list."""
    try:
        return [operator.index(number) for number in (numbers if isinstance(numbers, Iterable) else [numbers])]
    except TypeError:
        raise ConfigError(f"{key}={numbers!r}: give whole numbers") from None


def _several(seeds: int | Sequence[int] | None) -> int | Sequence[int] | None:
    """Several seeds, or how many."""
    if seeds is None:
        return None
    named = _whole(seeds, "seeds")
    count = len(set(named)) if isinstance(seeds, Iterable) else named[0]
    if count < max(2, len(named)) or min(named) < 0:
        raise ConfigError(f"seeds={seeds!r}: name two or more different seeds from 0 up, or one as seed=3")
    return named if isinstance(seeds, Iterable) else count


def _select(file: Path, overrides: Sequence[str], algorithm: Part | None) -> list[str]:
    """The selection of one method, as `--set` takes it: of this algorithm, else the pipeline's first."""
    from chestfed.algorithms import ALGORITHMS
    from chestfed.experiment.loading import load_pipeline

    if algorithm is None:
        if any(override.startswith("selected=") for override in overrides):
            return []
        return [f"selected={json.dumps([load_pipeline(file).selected_methods[0].name])}"]
    text = _named("algorithm", ALGORITHMS, algorithm)
    part = json.loads(text)
    if isinstance(part, str):
        return [f"selected={json.dumps([part])}"]
    if not isinstance(part.get("name"), str):
        raise ConfigError(f"algorithm: {part!r} has no 'name'")
    return [f"selected={json.dumps([part['name']])}", f"methods.*.algorithm={text}"]


def _parts(objective: Part | None, model: Part | None) -> list[str]:
    """The parts that have an argument of their own, as `--set` takes them."""
    from chestfed.models import MODELS
    from chestfed.objectives import OBJECTIVES

    given: list[tuple[str, Catalogue[Any], Part | None]] = [
        ("methods.*.objective", OBJECTIVES, objective),
        ("model", MODELS, model),
    ]
    return [f"{key}={_named(key, catalogue, part)}" for key, catalogue, part in given if part is not None]


def _named(key: str, catalogue: Catalogue[Any], part: Part) -> str:
    """A part as JSON; options may be numbers and arrays of NumPy, and paths."""
    if not isinstance(part, str | Mapping):
        if not hasattr(part, "options"):
            text = "is not a name, a mapping or a declaration; name a class or function as 'package.module:Name'"
            raise ConfigError(f"{key}: {part!r} {text}")
        part = catalogue.register(part)
    plain = dict(part) if isinstance(part, Mapping) else part
    return json.dumps(plain, default=lambda value: value.tolist() if hasattr(value, "tolist") else str(value))


def _plain(k: int | Sequence[int] | None, seed: int | None, device: str | None) -> list[str]:
    """The keys that have an argument of their own, as `--set` takes them."""
    numbers = None if k is None else _whole(k, "k")
    given = {"k": numbers, "seed": seed, "runtime.device": device}
    return [f"{key}={value}" for key, value in given.items() if value is not None]
