"""Work of `chestfed tune`: plans or runs the search, writes the chosen settings, and tests them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from chestfed.app.commands.progress import Bars
from chestfed.app.commands.tune.counts import COUNTS
from chestfed.app.studies import Session
from chestfed.core.config import Document
from chestfed.core.console import command, say, show_warning, text_table
from chestfed.core.disk import check_folder
from chestfed.core.errors import ConfigError
from chestfed.learning.engines.declaration import refuse_several
from chestfed.studies.designs.design import Finished
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.methods import Method, PipelineFile
from chestfed.studies.experiment.providers import provide, provide_labels
from chestfed.studies.experiment.ranges import Grid
from chestfed.studies.running import Studies, check, check_skipping
from chestfed.studies.training.costs import estimated, time_steps
from chestfed.studies.training.data.collection import load_collection
from chestfed.studies.training.data.experiment import Experiment, load_images, make_selection, with_label_clients
from chestfed.studies.training.data.sites import open_sites, with_validation
from chestfed.studies.training.plan import StudyPlan, plan_study
from chestfed.studies.training.reporting import Reporters, use
from chestfed.studies.tuning.outcome import render, write_tuned
from chestfed.studies.tuning.search import FINALISTS, SEEDS_FROM, Search, collect_ranges, list_grid
from chestfed.studies.tuning.subjects import list_subjects

#: Share of the target's training patients, or of a collection's training images, that settings are chosen on.
_VALIDATION = 0.25


@dataclass(frozen=True)
class Tuning:
    """Plan of a search; `studies` are the runs of the pipeline as it is, which have been checked."""

    studies: Studies
    source: Path | Document
    pipeline: PipelineFile  #: with validation patients set aside
    overrides: Sequence[str]
    data: Path | None
    trials: int
    seeds: int
    confirm: int = 0  #: further seeds of the best settings
    every_k: bool = False


def prepare(
    source: Path | Document,
    overrides: Sequence[str],
    data: Path | None,
    given: Mapping[str, int | None],
    *,
    every_k: bool = False,
    planned: bool = False,
) -> Tuning:
    """Read the pipeline and check that all trials can run; what of `COUNTS` is None has its default, that of a quick
    search if the pipeline is quick. What is only `planned` may need a device that this machine does not have.
    """
    refuse_several("chestfed tune")
    loaded, file = load_pipeline(source, overrides), source.path if isinstance(source, Document) else source
    if loaded.held_out is not None:
        raise ConfigError(f"{file}: a pipeline with held_out is several studies; use one without it")
    studies = check(loaded, file, data, planned=planned)
    pipeline = with_validation(_list_windows(loaded), _VALIDATION, everywhere=every_k)
    collect_ranges(pipeline)
    list_subjects(pipeline, (), every_k=every_k)
    counts = {name: COUNTS[name][loaded.quick] if count is None else count for name, count in given.items()}
    return Tuning(studies, source, pipeline, overrides, data, **counts, every_k=every_k)


def _list_windows(pipeline: PipelineFile) -> PipelineFile:
    """The pipeline with a method for each window, where windows are compared: each is tuned by itself."""
    if not pipeline.windows:
        return pipeline
    methods = [
        Method.model_validate(
            method.model_dump(exclude_unset=True) | {"name": f"{method.name}:I={window}", "window": window}
        )
        for method in pipeline.selected_methods
        for window in pipeline.windows
    ]
    return pipeline.model_copy(update={"windows": [], "methods": methods, "selected": None})


def show_plan(console: Console, tuning: Tuning) -> None:
    """Print ranges, runs and time; nothing is written."""
    studies, pipeline = tuning.studies, tuning.pipeline.resolve()
    machine = studies.machine.or_processor()
    if pipeline.collection is not None or studies.root is None:
        _show(console, tuning, load_collection(pipeline, studies.root, machine, validation=_VALIDATION))
        return
    with provide_labels(pipeline, studies.root) as place:
        sites = open_sites(pipeline, studies.file, place)
        _show(console, tuning, make_selection(pipeline, sites, machine, alone=tuning.every_k))


def _show(console: Console, tuning: Tuning, source: Experiment) -> None:
    pipeline, subjects = tuning.pipeline, list_subjects(tuning.pipeline, source.sites, every_k=tuning.every_k)
    rows, seconds, total, plans = [], 0.0, 0, dict[str, StudyPlan]()
    scaled = list[str]()
    further, labeled = FINALISTS * tuning.confirm, with_label_clients(source)
    for subject in subjects:
        resolved = pipeline.resolve(subject.method)
        ranges = subject.list_ranges(labeled, resolved, pipeline.search)
        scaled += [subject.method] if subject.list_scaled(resolved, pipeline.search, ranges) else []
        for key, values in ranges.items():
            scale = "grid" if isinstance(values, Grid) else "log" if values.log else "linear"
            rows.append([subject.name, key, values.description, scale])
        trials = tuning.trials * len(ranges)
        trials = len(list_grid(ranges, trials, pipeline.seed)) or trials
        total += trials
        if subject.method not in plans:
            variant = resolved.model_copy(update={"k": pipeline.k if tuning.every_k else pipeline.k[-1:]})
            steps = time_steps(variant, tuning.studies.machine)
            plans[subject.method] = plan_study(subject.method, replace(source, pipeline=variant), steps)
        plan = plans[subject.method]
        runs = tuning.seeds * (trials + 1) + further
        seconds += plan.stage_2_seconds(subject.k) * runs
    seconds += plan.stage_1_seconds * (2 * tuning.seeds + tuning.confirm)  # of the search, and of the tested runs
    heads = ("method", "setting", "values", "scale")
    console.print(text_table(f"{pipeline.title}: what would be searched", heads, (), rows))
    each, test = total * tuning.seeds + len(subjects) * further, len(subjects) * tuning.seeds
    ks = ",".join(dict.fromkeys(str(subject.k) for subject in subjects))
    names = ", ".join(dict.fromkeys(scaled))
    divided = f"Ranges of step sizes of {names} are divided by the size of the loss' gradients. " if names else ""
    text = (
        f"{len(subjects)} searches, {total:,} trials together, {tuning.seeds} seeds per trial, {tuning.confirm} "
        f"further ones for the best {FINALISTS}: {each:,} runs of stage 2 with K={ks}, chosen on "
        f"{plan.test.images:,} validation images, and one trial more for each best value at an edge; then {test:,} "
        f"test runs with the selected settings. {divided}{estimated(seconds, plan.timings)}. Nothing was written."
    )
    say(console, text)


def run(session: Session, tuning: Tuning) -> tuple[Path, Finished | None]:
    """Search, or go on searching, write `tuned.yaml`, and run what it describes: its path, and the finished runs."""
    started, studies, pipeline = time.monotonic(), tuning.studies, tuning.pipeline
    console, out = session.console, session.out
    check_skipping(studies.pipeline, skip_unreadable=session.skip_unreadable)
    say(console, f"{pipeline.title}: search for settings\n{studies.file} on {studies.machine.name}")
    check_folder(out, "--out")
    with Bars(console) as bars:
        warn = partial(show_warning, console)
        with use(Reporters([bars], warn)):
            data = _load(tuning, session.cache, bars, skip_unreadable=session.skip_unreadable)
        seeds = [pipeline.seed + SEEDS_FROM + number for number in range(tuning.seeds + tuning.confirm)]
        search = Search(
            pipeline,
            studies.file.stem,
            tuple(subjects := list_subjects(pipeline, data.sites, every_k=tuning.every_k)),
            tuning.trials,
            tuple(seeds[: tuning.seeds]),
            tuple(seeds[tuning.seeds :]),
            data,
            out,
            Reporters(session.open_records(), warn),
            lambda what, done, total: bars.show(what, done, total, unit="round"),
            lambda text: say(console, text),
        )
        trials = search.run()
    console.print(render(trials))
    about = (search.folder, tuning.source, tuning.overrides, pipeline, subjects, trials, tuning.seeds)
    tuned = write_tuned(*about, every_k=tuning.every_k)
    say(console, f"all trials: {search.folder}/trials.csv and trials.json")
    say(console, f"selected settings: {tuned}; the test set is used now, only for these")
    finished = session.run(check(load_pipeline(tuned), tuned, tuning.data), started)
    say(console, f"to run them again: {command('study', tuned, '--out', out)}")
    return tuned, finished


def _load(tuning: Tuning, cache: Path, bars: Bars, *, skip_unreadable: bool) -> Experiment:
    """Training and validation images; no test image is read."""
    studies, pipeline = tuning.studies, tuning.pipeline.resolve()
    if pipeline.collection is not None or studies.root is None:
        return load_collection(pipeline, studies.root, studies.machine, validation=_VALIDATION)
    provide(pipeline, studies.root)
    sites = open_sites(pipeline, studies.file, studies.root)
    rows = make_selection(pipeline, sites, studies.machine, alone=tuning.every_k)
    (data,) = load_images([rows], cache, skip_unreadable=skip_unreadable)
    bars.data_read([data])
    return data
