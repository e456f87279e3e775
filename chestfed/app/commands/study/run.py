"""What `chestfed study` does: plans or runs the studies of a pipeline, and prints their tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import methodcaller
from pathlib import Path
from pkgutil import resolve_name

from rich.console import Console

from chestfed.app.commands.progress import Bars
from chestfed.app.commands.study.jobs import Job, refuse_failed, run_jobs, run_ks
from chestfed.app.commands.study.show import show_comparison, show_contributions, show_held_out, show_study
from chestfed.core.config import load_config
from chestfed.core.console import command, say, show_answer
from chestfed.core.disk import check_folder
from chestfed.core.errors import ConfigError, TrainingError
from chestfed.core.output import output
from chestfed.core.plugins import Options
from chestfed.data.collections.collection import find_collection
from chestfed.learning.engines.declaration import (
    ENGINES,
    IN_PROCESS,
    count_local_processes,
    engine_for,
    place_here,
    rank,
)
from chestfed.leaves.samples.command import hospitals_to_look_at, write_samples
from chestfed.studies.experiment.data import SiteEntry
from chestfed.studies.experiment.device import Machine, prepare_machine
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.rules import check_runs
from chestfed.studies.experiment.variants import Design, Variant, list_variants, put_target_first
from chestfed.studies.training.assemble import Deployment
from chestfed.studies.training.costs import duration, time_steps
from chestfed.studies.training.data.collection import load_collection
from chestfed.studies.training.data.experiment import Experiment, check_cache, load_images, make_experiment
from chestfed.studies.training.data.sites import StudySite, open_sites, resolve_data_root
from chestfed.studies.training.plan import StudyPlan, plan_study, render_held_out
from chestfed.studies.training.plan import render as render_plan
from chestfed.studies.training.reporting import Reporters, use
from chestfed.studies.training.run import StudyResult, run_study
from chestfed.studies.training.run_files import find_finished


@dataclass(frozen=True)
class Studies:
    """What is to be run: the studies of one pipeline, which is given with its first method.

    `root` is None for a collection that has no files.
    """

    console: Console
    pipeline: Pipeline
    file: Path
    variants: list[Variant]
    by_window: bool
    root: Path | None
    machine: Machine
    engine: Options
    jobs: int = 1  #: studies at a time
    cluster: Path | None = None  #: settings of the cluster that they are sent to
    design: Design | None = None  #: the sets of partners, where these are studied
    verbose: bool = False  #: whether all tables are printed


def prepare(
    console: Console,
    file: Path,
    overrides: Sequence[str],
    added: Sequence[Path],
    data: Path | None,
    *,
    jobs: int = 1,
    cluster: Path | None = None,
    verbose: bool = False,
) -> Studies:
    """Read the pipeline and check that all its studies can run."""
    loaded = load_pipeline(file, overrides, added)
    pipeline = loaded.resolve()
    entry = pipeline.collection
    collection = None if entry is None else find_collection(entry.name)
    root = resolve_data_root(pipeline, data) if collection is None or collection.has_files else None
    variants = list_variants(loaded, file)
    design = None if loaded.subsets is None else Design(pipeline, file, loaded.subsets)
    if design is not None:
        pipeline = design.pipeline
    elif loaded.target_images is not None:
        pipeline, _ = put_target_first(pipeline, file, loaded.target_images.target)
    check_runs([variant.pipeline for variant in variants])
    if cluster is not None:
        from chestfed.app.commands.study.cluster import Cluster

        load_config(cluster, Cluster)  # errors in it are reported before any image is read
    if jobs > 1 and len(variants) == 1 and len(pipeline.k) == 1 and cluster is None:
        raise ConfigError(
            f"--jobs {jobs}: this is a single run. --jobs needs several K, --seeds, --methods, --windows or "
            f"held-out sites"
        )
    engine = engine_for(pipeline.engine)
    if pipeline.alternatives is not None and engine.name != IN_PROCESS.name:
        raise ConfigError(f"alternatives: trained in one process, not with engine {engine.name}; set it to null")
    if (jobs > 1 or cluster is not None) and engine.name != IN_PROCESS.name:
        raise ConfigError(f"--jobs and --cluster train each study in one process: not with engine {engine.name}")
    at_once = (1 if cluster else jobs) * count_local_processes()
    machine = prepare_machine(pipeline.runtime, at_once=at_once).at(place_here())
    machine.take()
    by_window = bool(loaded.windows)
    return Studies(console, pipeline, file, variants, by_window, root, machine, engine, jobs, cluster, design, verbose)


def show_plan(studies: Studies, out: Path) -> None:
    """Print what would run, and what of it is finished in `out`; of a launcher's processes the first one prints."""
    if rank():
        return
    _show_plan(studies)
    for variant in studies.variants:
        name = studies.file.stem + variant.suffix
        for folder, ks in find_finished(out, name, variant.pipeline, studies.machine).items():
            done = f"K={', '.join(map(str, ks))} finished" if ks else "begun"
            say(studies.console, f"{variant.label}: {done} in {out / folder}, if no image has changed")


def _show_plan(studies: Studies) -> None:
    plans, variants = _plans(studies), studies.variants
    if studies.pipeline.held_out is not None:
        studies.console.print(render_held_out(plans, studies.pipeline.title, studies.machine))
        return
    studies.console.print(render_plan(plans[0], studies.machine))
    if len(variants) > 1:
        names = "\n".join(variant.label for variant in variants)
        runs = sum(len(variant.pipeline.k) for variant in variants)
        stages_1 = {variant.pipeline.seed for variant in variants}
        stage_2 = sum(plans[0].stage_2_seconds(k) for variant in variants for k in variant.pipeline.k)
        seconds = plans[0].decode_seconds + plans[0].stage_1_seconds * len(stages_1) + stage_2
        which = "first" if studies.design is None else "largest"
        text = f"That is the {which} of {len(variants)} studies with {runs} runs of stage 2, {duration(seconds)}:"
        studies.console.print(f"{text}\n{names}", highlight=False)


def run(
    studies: Studies, out: Path, cache: Path, tracking_uri: str | None, *, tracking: bool, skip_unreadable: bool
) -> list[StudyResult]:
    """Run all studies, or resume them, and print their table; nothing, in a process that another leads."""
    check_skipping(studies.pipeline, skip_unreadable=skip_unreadable)
    make = resolve_name(ENGINES.find(studies.engine.name).deployment)
    with make(studies.engine, studies.machine) as deployment:
        load = partial(_load, studies, cache, skip_unreadable=skip_unreadable)
        if deployment.leads:
            return _lead(studies, deployment, load, out, tracking_uri, tracking=tracking)
        deployment.serve(load)
        return []


def check_skipping(pipeline: Pipeline, *, skip_unreadable: bool) -> None:
    """Refuse to skip images of a collection, which are decoded as training reads them: too late to leave one out."""
    if skip_unreadable and pipeline.collection is not None:
        text = "images of a collection are read during training and cannot be skipped: replace the damaged file"
        text = f"--skip-unreadable has no effect on {pipeline.collection.name}: {text}"
        raise ConfigError(text, kind="no effect", option="skip-unreadable")


def _lead(
    studies: Studies,
    deployment: Deployment,
    load: Callable[[], list[Experiment]],
    out: Path,
    tracking_uri: str | None,
    *,
    tracking: bool,
) -> list[StudyResult]:
    from chestfed.reports.tracking.recording import MlflowRecord
    from chestfed.reports.tracking.store import local_store

    started, console, pipeline = time.monotonic(), studies.console, studies.pipeline
    say(console, f"{pipeline.title}: {studies.file.name} on {studies.machine.name}")
    check_folder(out, "--out")
    bars = Bars(console)
    reporters = Reporters([bars], partial(say, console, style="yellow"))
    with bars, use(reporters):
        if pipeline.samples is not None and studies.root is not None:
            write_samples(console, studies.root, pipeline.samples.seed, pipeline.samples.size, bars)
        experiments = load()
        deployment.begin(experiments)
        describe_data(experiments, console)
        pages = len(experiments) == 1
        record = MlflowRecord(tracking_uri or local_store(out), out / "mlflow-artifacts", pages=pages)
        if studies.cluster is not None and tracking and tracking_uri is None:
            say(console, "not recorded in MLflow: jobs of a cluster need --tracking-uri with the address of a server")
            tracking = False
        if tracking:
            reporters.add(record)
        results = _run_all(studies, experiments, out, bars, deployment, tracking_uri if tracking else None)
    if pipeline.held_out is not None:
        reporters.tell(methodcaller("summary_done", show_held_out(studies, experiments, results, out)))
    elif studies.design is not None:
        reporters.tell(methodcaller("summary_done", show_contributions(studies, studies.design, results, out)))
    elif studies.by_window or len(results) > 1:
        reporters.tell(methodcaller("summary_done", show_comparison(studies, results, out)))
    else:
        show_study(console, *results, verbose=studies.verbose)
    is_recorded = record in reporters and tracking_uri is None
    seen = f"; all studies in MLflow: {command('ui', '--out', out)}" if is_recorded else ""
    say(console, f"took {time.monotonic() - started:.0f} s{seen}")
    show_answer(console, str(output().result["answer"]))
    return results


def describe_data(experiments: Sequence[Experiment], console: Console) -> None:
    """Print what is unusual about the images that were read."""
    for site, problems in experiments[0].quarantined.items():
        say(console, f"{site}: skipped {len(problems)} unreadable images", "yellow")
    for site, notes in experiments[0].notes.items():
        say(console, "\n".join(f"{site}: {note}" for note in notes), "yellow")
    for pair in {pair: None for experiment in experiments for pair in experiment.shared}:
        text = f"{pair.pictures:,} images, {pair.patients:,} patients; {pair.rows_left_out:,} rows left out"
        say(console, f"{' and '.join(pair.sites)} share {text}", "yellow")


def _run_all(
    studies: Studies,
    experiments: Sequence[Experiment],
    out: Path,
    bars: Bars,
    deployment: Deployment,
    tracking_uri: str | None,
) -> list[StudyResult]:
    """Every study, one after the other or several at a time; results in the order of the variants.

    Raises `ChestfedError` after all have ended, if training of some diverged.
    """
    console = studies.console
    jobs = [
        Job(variant.label, studies.file.stem + variant.suffix, experiment, out)
        for variant, experiment in zip(studies.variants, experiments, strict=True)
    ]
    if studies.cluster is not None:
        from chestfed.app.commands.study.cluster import run_on_cluster

        return run_on_cluster(jobs, studies.jobs, studies.cluster, tracking_uri, partial(say, console))
    finished: Iterable[Job] = jobs
    ahead = None
    if studies.jobs > 1:
        several = f"{len(jobs)} studies" if len(jobs) > 1 else f"{len(jobs[0].experiment.pipeline.k)} K"
        say(console, f"{several}, {studies.jobs} at a time")
        bars.tells_reused = False  # every job is found finished here
        if len(jobs) > 1:
            finished = run_jobs(jobs, studies.jobs, bars)
        else:
            ahead = partial(run_ks, jobs[0], studies.jobs, bars)
    results, diverged = {}, dict[str, str]()
    for number, job in enumerate(finished, start=1):
        if len(jobs) > 1:
            say(console, f"{number}/{len(jobs)}: {job.label}")
        try:
            results[job.name, job.label] = run_study(job.experiment, job.name, out, deployment=deployment, ahead=ahead)
        except TrainingError as error:
            if len(jobs) == 1 or error.kind != "not finite":
                raise
            diverged[job.label] = str(error)
            say(console, f"{job.label} failed: {error}", "yellow")
    refuse_failed(diverged, len(jobs))
    return [results[job.name, job.label] for job in jobs]


def _load(studies: Studies, cache: Path, *, skip_unreadable: bool) -> list[Experiment]:
    if studies.pipeline.collection is not None or studies.root is None:
        experiment = load_collection(studies.pipeline, studies.root, studies.machine)
        return [replace(experiment, pipeline=variant.pipeline) for variant in studies.variants]
    experiments = _experiments(studies, studies.variants, studies.root)
    check_cache(experiments, cache)
    return load_images(experiments, cache, skip_unreadable=skip_unreadable)


def _experiments(studies: Studies, variants: Sequence[Variant], root: Path) -> list[Experiment]:
    """The rows of these variants, all cut from the same sites."""
    sites = open_sites(studies.pipeline, studies.file, root)
    real = [site.name for site in sites if not site.table.synthetic]
    if real and len(real) < len(sites):  # the results are data of patients, though they mean nothing
        text = (
            f"note: {', '.join(real)} is not synthetic, other sites are: the results say PARTLY SYNTHETIC. The "
            f"models were trained on real patients: protect them like other patient data."
        )
        say(studies.console, text, "yellow")
    made: dict[str, Experiment] = {}
    for pipeline in (variant.pipeline for variant in variants):
        if (rows := _name_rows(pipeline)) not in made:
            made[rows] = make_experiment(pipeline, _select_sites(sites, pipeline), studies.machine)
    return [replace(made[_name_rows(variant.pipeline)], pipeline=variant.pipeline) for variant in variants]


def _select_sites(sites: Sequence[StudySite], pipeline: Pipeline) -> list[StudySite]:
    """The sites of one variant; they are opened once, whatever number of their images it trains on."""
    by_entry = {_without_limit(site.entry): site for site in sites}
    return [replace(by_entry[_without_limit(entry)], entry=entry) for entry in pipeline.sites]


def _without_limit(entry: SiteEntry) -> str:
    return entry.model_copy(update={"training_images": None}).model_dump_json()


def _name_rows(pipeline: Pipeline) -> str:
    """The same for variants that differ in method or seed alone: they have the same rows."""
    limited = any(entry.training_images is not None for entry in pipeline.sites)  # drawn by the seed
    return repr((pipeline.sites, pipeline.k, pipeline.held_out, pipeline.seed if limited else None))


def _plans(studies: Studies) -> list[StudyPlan]:
    """One plan per variant; of variants that are compared, which read the same, the first."""
    pipeline, variants = studies.pipeline, studies.variants
    largest = max(variants, key=lambda variant: len(variant.pipeline.sites))
    shown = variants if pipeline.held_out is not None else [largest]
    if pipeline.collection is not None or studies.root is None:
        experiment = load_collection(pipeline, studies.root, studies.machine)
        timings = time_steps(shown[0].pipeline, studies.machine)
        return [plan_study(shown[0].label, replace(experiment, pipeline=shown[0].pipeline), timings)]
    with hospitals_to_look_at(pipeline, studies.root) as place:
        experiments = _experiments(studies, shown, place)  # before a step is timed: a wrong folder is found at once
        timings = time_steps(shown[0].pipeline, studies.machine)
        return [plan_study(variant.label, opened, timings) for variant, opened in zip(shown, experiments, strict=True)]
