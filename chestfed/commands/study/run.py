"""What `chestfed study` does: plans or runs the studies of a pipeline, and prints their tables."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from pathlib import Path
from pkgutil import resolve_name

from rich.console import Console

from chestfed.commands.progress import Bars
from chestfed.commands.samples import hospitals_to_look_at, write_samples
from chestfed.commands.study.jobs import Job, run_jobs, several_k
from chestfed.core.config import load_config
from chestfed.core.console import command, say
from chestfed.core.disk import check_folder
from chestfed.core.errors import ConfigError
from chestfed.core.plugins import Options
from chestfed.core.provenance import Origin
from chestfed.engines.declaration import ENGINES, IN_PROCESS, engine_for, place_here, processes_here, rank
from chestfed.experiment.device import Machine, prepare_machine
from chestfed.experiment.loading import load_pipeline
from chestfed.experiment.pipeline import Pipeline
from chestfed.experiment.rules import check_runs
from chestfed.experiment.variants import Variant, list_variants
from chestfed.models import title_of
from chestfed.public_datasets.collection import DIGITS
from chestfed.results.collect import Fold, collect, collect_folds, write_comparison, write_folds
from chestfed.results.run_folder import RunFolder
from chestfed.results.sentences import state_verdict
from chestfed.results.views import list_held_out_metrics, list_metrics
from chestfed.results.views import render as render_results
from chestfed.training.assemble import Deployment
from chestfed.training.clients import Setup, StudyData, check_cache, load_images
from chestfed.training.plan import Span, StudyPlan, plan_study, render_held_out, time_steps
from chestfed.training.plan import render as render_plan
from chestfed.training.public_clients import load_collection
from chestfed.training.reporting import Reporters, Summary
from chestfed.training.run import StudyResult, run_study
from chestfed.training.run_files import finished_in
from chestfed.training.study_tables import StudyTables, open_sites, resolve_data_root, study_tables


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


def prepare(
    console: Console,
    file: Path,
    overrides: Sequence[str],
    added: Sequence[Path],
    data: Path | None,
    *,
    jobs: int = 1,
    cluster: Path | None = None,
) -> Studies:
    """Read the pipeline and check that all its studies can run."""
    loaded = load_pipeline(file, overrides, added)
    pipeline, variants = loaded.resolve(), list_variants(loaded, file)
    check_runs([variant.pipeline for variant in variants])
    if cluster is not None:
        from chestfed.commands.study.cluster import Cluster

        load_config(cluster, Cluster)  # what is wrong in it is told before any image is read
    if jobs > 1 and len(variants) == 1 and len(pipeline.k) == 1 and cluster is None:
        raise ConfigError(
            f"--jobs {jobs}: this is a single run. --jobs needs several K, --seeds, --methods, --windows or "
            f"held-out sites"
        )
    entry = pipeline.collection
    root = resolve_data_root(pipeline, data) if entry is None or entry.name != DIGITS else None
    engine = engine_for(pipeline.engine)
    if pipeline.alternatives is not None and engine.name != IN_PROCESS.name:
        raise ConfigError(f"alternatives: trained in one process, not with engine {engine.name}; set it to null")
    if (jobs > 1 or cluster is not None) and engine.name != IN_PROCESS.name:
        raise ConfigError(f"--jobs and --cluster train each study in one process: not with engine {engine.name}")
    at_once = (1 if cluster else jobs) * processes_here()
    machine = prepare_machine(pipeline.runtime, at_once=at_once).at(place_here())
    machine.take()
    return Studies(console, pipeline, file, variants, bool(loaded.windows), root, machine, engine, jobs, cluster)


def show_plan(studies: Studies, out: Path) -> None:
    """Print what would run, and what of it is finished in `out`; of a launcher's processes the first one prints."""
    if rank():
        return
    _show_plan(studies)
    for variant in studies.variants:
        name = studies.file.stem + variant.suffix
        for folder, ks in finished_in(out, name, variant.pipeline, studies.machine).items():
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
        runs, stages_1 = sum(len(variant.pipeline.k) for variant in variants), {one.pipeline.seed for one in variants}
        stage_2 = sum((plans[0].stage_2_seconds(k) for one in variants for k in one.pipeline.k), Span())
        seconds = plans[0].decode_seconds + plans[0].stage_1_seconds * len(stages_1) + stage_2
        text = f"That is the first of {len(variants)} studies with {runs} runs of stage 2, {seconds}:"
        studies.console.print(f"{text}\n{names}", highlight=False)


def run(
    studies: Studies, out: Path, cache: Path, tracking_uri: str | None, *, tracking: bool, skip_unreadable: bool
) -> list[StudyResult]:
    """Run all studies, or resume them, and print their table; nothing, in a process that another leads."""
    check_skipping(studies.pipeline, skip_unreadable=skip_unreadable)
    make = resolve_name(ENGINES.find(studies.engine.name).deployment)
    with make(studies.engine, studies.machine) as deployment:
        if deployment.leads:
            where = (out, cache, tracking_uri)
            return _lead(studies, deployment, *where, tracking=tracking, skip_unreadable=skip_unreadable)
        deployment.serve(lambda: _load(studies, cache, Bars(studies.console), skip_unreadable=skip_unreadable))
        return []


def check_skipping(pipeline: Pipeline, *, skip_unreadable: bool) -> None:
    """Refuse to skip images of a collection, which are decoded as training reads them: too late to leave one out."""
    if skip_unreadable and pipeline.collection is not None:
        text = "images of a collection are read during training and cannot be skipped: replace the damaged file"
        raise ConfigError(f"--skip-unreadable has no effect on {pipeline.collection.name}: {text}")


def _lead(
    studies: Studies,
    deployment: Deployment,
    out: Path,
    cache: Path,
    tracking_uri: str | None,
    *,
    tracking: bool,
    skip_unreadable: bool,
) -> list[StudyResult]:
    from chestfed.tracking.recording import MlflowRecord
    from chestfed.tracking.store import local_store

    started, console, pipeline = time.monotonic(), studies.console, studies.pipeline
    say(console, f"{pipeline.title}\n{studies.file} on {studies.machine.name}")
    check_folder(out, "--out")
    with Bars(console) as bars:
        if pipeline.samples is not None and studies.root is not None:
            write_samples(console, studies.root, pipeline.samples.seed, pipeline.samples.size, bars)
        setups = _load(studies, cache, bars, skip_unreadable=skip_unreadable)
        deployment.begin(setups)
        data = [setup.data for setup in setups]
        tell_of(data, console)
        record = MlflowRecord(tracking_uri or local_store(out), out / "mlflow-artifacts")
        if studies.cluster is not None and tracking and tracking_uri is None:
            say(console, "not recorded in MLflow: jobs of a cluster need --tracking-uri with the address of a server")
            tracking = False
        reporters = Reporters([bars, record] if tracking else [bars], lambda text: say(console, text, "yellow"))
        where = tracking_uri if tracking else None
        results = _run_all(studies, setups, out, reporters, bars, deployment, where)
    if pipeline.held_out is not None:
        reporters.tell(methodcaller("summary_done", _show_held_out(studies, data, results, out)))
    elif studies.by_window or len(results) > 1:
        reporters.tell(methodcaller("summary_done", _show_comparison(studies, results, out)))
    else:
        show_study(console, *results)
    if record in reporters and tracking_uri is None:
        say(console, f"see it in MLflow: {command('ui', '--out', out)}")
    say(console, f"took {time.monotonic() - started:.0f} s")
    return results


def tell_of(data: Sequence[StudyData], console: Console) -> None:
    """What is worth knowing of the images that were read."""
    for site, problems in data[0].quarantined.items():
        say(console, f"{site}: skipped {len(problems)} unreadable images", "yellow")
    for site, notes in data[0].notes.items():
        say(console, "\n".join(f"{site}: {note}" for note in notes), "yellow")
    for pair in {pair: None for its in data for pair in its.shared}:
        text = f"{pair.pictures:,} images, {pair.patients:,} patients; {pair.rows_left_out:,} rows left out"
        say(console, f"{' and '.join(pair.sites)} share {text}", "yellow")


def _run_all(
    studies: Studies,
    setups: Sequence[Setup],
    out: Path,
    reporters: Reporters,
    bars: Bars,
    deployment: Deployment,
    tracking_uri: str | None,
) -> list[StudyResult]:
    """Every study, one after the other or several at a time; results in the order of the variants."""
    console = studies.console
    jobs = [
        Job(variant.label, studies.file.stem + variant.suffix, setup, out)
        for variant, setup in zip(studies.variants, setups, strict=True)
    ]
    if studies.cluster is not None:
        from chestfed.commands.study.cluster import run_on_cluster

        return run_on_cluster(jobs, studies.jobs, studies.cluster, tracking_uri, partial(say, console))
    done: Iterable[Job] = jobs
    ahead = None
    if studies.jobs > 1:
        several = f"{len(jobs)} studies" if len(jobs) > 1 else f"{len(jobs[0].setup.pipeline.k)} K"
        say(console, f"{several}, {studies.jobs} at a time")
        bars.tells_reused = False  # every job is found finished here
        warn = partial(say, console, style="yellow")
        if len(jobs) > 1:
            done = run_jobs(jobs, studies.jobs, bars, warn)
        else:
            ahead = several_k(jobs[0], studies.jobs, bars, warn)
    results = {}
    for number, job in enumerate(done, start=1):
        if len(jobs) > 1:
            say(console, f"{number}/{len(jobs)}: {job.label}")
        done_study = run_study(job.setup, job.name, out, reporters, deployment, ahead)
        results[job.name, job.label] = done_study
    return [results[job.name, job.label] for job in jobs]


def _load(studies: Studies, cache: Path, bars: Bars, *, skip_unreadable: bool) -> list[Setup]:
    pipeline = studies.pipeline
    if pipeline.collection is not None or studies.root is None:
        data = [load_collection(pipeline, studies.root)] * len(studies.variants)
    else:
        tables = _tables(studies, studies.variants, studies.root)
        check_cache(tables, pipeline, cache)
        data = load_images(tables, pipeline, cache, skip_unreadable=skip_unreadable, progress=bars.decoding)
    variants = zip(studies.variants, data, strict=True)
    return [Setup(variant.pipeline, its, studies.machine) for variant, its in variants]


def _tables(studies: Studies, variants: Sequence[Variant], root: Path) -> list[StudyTables]:
    """The rows of these variants, all cut from the same sites."""
    sites = open_sites(studies.pipeline, studies.file, root)
    real = [site.name for site in sites if not site.whole.synthetic]
    if real and len(real) < len(sites):  # what comes out is data of patients, though it means nothing
        text = (
            f"note: {', '.join(real)} is not synthetic, other sites are: the results say PARTLY SYNTHETIC. The "
            f"models were trained on real patients: protect them like other patient data."
        )
        say(studies.console, text, "yellow")
    return [study_tables(variant.pipeline, sites) for variant in variants]


def _plans(studies: Studies) -> list[StudyPlan]:
    """What every variant would do; of variants that are compared, which read the same, the first."""
    pipeline, variants = studies.pipeline, studies.variants
    shown = variants if pipeline.held_out is not None else variants[:1]
    timings = time_steps(variants[0].pipeline, studies.machine)

    def planned(sources: Sequence[StudyTables | StudyData]) -> list[StudyPlan]:
        return [plan_study(one.label, one.pipeline, its, timings) for one, its in zip(shown, sources, strict=True)]

    if pipeline.collection is not None or studies.root is None:
        return planned([load_collection(pipeline, studies.root)])
    with hospitals_to_look_at(studies.console, pipeline, studies.root) as place:
        return planned(_tables(studies, shown, place))


def show_study(console: Console, study: StudyResult) -> None:
    console.print(render_results(study.results))
    say(console, f"written to {study.folder}/table.csv")
    say(console, f"as a page with figures: {command('report', study.folder)}")


def _show_comparison(studies: Studies, results: Sequence[StudyResult], out: Path) -> Summary:
    from chestfed.report.run_figures import draw_curves

    runs = [RunFolder(study.folder) for study in results]
    together = collect(runs, studies.pipeline.title, by_window=studies.by_window)
    folder = write_comparison(together, out, state_verdict(together.gains("study")))
    draw_curves(together).save(folder)
    studies.console.print(render_results(together))
    say(studies.console, f"written to {folder}: table.csv, results.csv, curves.csv, curves.png, comparison.json")
    say(studies.console, f"as a page with figures: {command('report', folder)}")
    name = f"{studies.file.stem}, {len(results)} studies together"
    folders = {str(number): run.path.name for number, run in enumerate(runs, start=1)}
    return Summary(name, together.origin, folder, list_metrics(together), folders)


def _show_held_out(studies: Studies, data: Sequence[StudyData], results: Sequence[StudyResult], out: Path) -> Summary:
    pipeline, console, folds = studies.pipeline, studies.console, []
    for part, study in zip(data, results, strict=True):
        row = RunFolder(study.folder).row().with_reasons(part.reasons)
        images = study.results.about["images"]
        folds.append(Fold(str(part.held_out), images, study.folder.name, row, study.seen))
    statistics = None if results[-1].results.about["batch_norm"] is None else pipeline.evaluation.batch_norm
    about = {"model": title_of(pipeline.model), "protocol": pipeline.evaluation.protocol, "batch_norm": statistics}
    table = collect_folds(folds, pipeline.title, Origin.together(part.origin for part in data), about)
    folder = write_folds(table, folds, out)
    console.print(render_results(table))
    say(console, f"written to {folder}: held_out.csv")
    for study, fold in zip(results, folds, strict=True):
        say(console, f"{fold.site} as a page with figures: {command('report', study.folder)}")
    name, runs = f"{studies.file.stem}, all held-out sites", {fold.site: fold.folder for fold in folds}
    return Summary(name, table.origin, folder, list_held_out_metrics(table), runs)
