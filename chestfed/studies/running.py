"""A study from a checked pipeline to its tables: `check` refuses what cannot run, `run` runs the rest.

Command line and Python are two callers of these. Neither prints: progress and notes go to the current reporters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name

from chestfed.core.diseases import format_title
from chestfed.core.disk import check_folder
from chestfed.core.errors import ChestfedError, ConfigError, TrainingError
from chestfed.core.plugins import Options
from chestfed.data.collections.collection import find_collection
from chestfed.learning.engines.declaration import ENGINES, IN_PROCESS, count_local_processes, engine_for, place_here
from chestfed.learning.models import FeatureOptions, fetch_weights, without_absent_weights
from chestfed.studies.designs.design import Design, Done, Finished, Variant, finish, make_design
from chestfed.studies.experiment.data import SiteEntry
from chestfed.studies.experiment.device import Machine, prepare_machine
from chestfed.studies.experiment.earlier import name_earlier_commands
from chestfed.studies.experiment.methods import PipelineFile
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.providers import estimate_unwritten, provide, provide_labels
from chestfed.studies.experiment.rules import check_runs
from chestfed.studies.training.assemble import Deployment
from chestfed.studies.training.costs import time_steps
from chestfed.studies.training.data.collection import load_collection
from chestfed.studies.training.data.experiment import Experiment, check_cache, load_images, make_experiment
from chestfed.studies.training.data.sites import StudySite, open_splits, resolve_data_root
from chestfed.studies.training.plan import StudyPlan, plan_study
from chestfed.studies.training.reporting import current, warn
from chestfed.studies.training.run import StudyResult, name_folder, run_study
from chestfed.studies.training.versions import refuse_other_versions


@dataclass(frozen=True)
class Job:
    """One study, or one K of it, or a hospital's own data: `name` is its run folder's without the digest.

    `label` is for people.
    """

    label: str
    name: str
    experiment: Experiment
    out: Path
    k: int | None = None
    hospital: str | None = None


class Executor:
    """Where the studies of a command are trained: here, one after the other."""

    at_once = 1  #: studies at a time on this machine
    elsewhere = False  #: whether other machines train, which check their devices themselves

    def check(self, studies: Studies) -> None:
        """Raise `ConfigError` if it cannot train them."""

    def __call__(self, jobs: Sequence[Job], deployment: Deployment) -> list[StudyResult]:
        """The results of all jobs, in their order.

        Raises `ChestfedError` after all have ended, if some failed.
        """
        return train(jobs, jobs, deployment)


@dataclass(frozen=True)
class Studies:
    """Studies to be run, which have been checked. `root` is None for a collection that has no files."""

    design: Design
    root: Path | None
    machine: Machine
    engine: Options
    executor: Executor

    @property
    def file(self) -> Path:
        return self.design.path

    @property
    def pipeline(self) -> Pipeline:
        return self.design.pipeline

    @property
    def variants(self) -> list[Variant]:
        return self.design.variants


def check(
    file: PipelineFile,
    path: Path,
    data: Path | None = None,
    executor: Executor | None = None,
    *,
    planned: bool = False,
) -> Studies:
    """The studies of a pipeline, whose file is `path`, if all of them can run; nothing is started.

    Those that are only `planned` may need a device that this machine does not have.

    Raises
    ------
    ConfigError
        All mistakes of a kind, each with its place.
    """
    design, executor = make_design(file, path), executor or Executor()
    pipeline = file.resolve()
    collection = None if pipeline.collection is None else find_collection(pipeline.collection.name)
    root = resolve_data_root(pipeline, data) if collection is None or collection.has_files else None
    runs = [variant.pipeline for variant in design.variants]
    name_earlier_commands(partial(check_runs, runs), path, quick=pipeline.quick)
    engine = engine_for(pipeline.engine)
    if pipeline.alternatives is not None and engine.name != IN_PROCESS.name:
        raise ConfigError(f"alternatives: trained in one process, not with engine {engine.name}; set it to null")
    at_once = executor.at_once * count_local_processes()
    takes_features = isinstance(pipeline.model, FeatureOptions)  # here, before other machines train
    elsewhere = planned or (executor.elsewhere and not takes_features)
    machine = prepare_machine(pipeline.runtime, at_once, elsewhere=elsewhere).at(place_here())
    studies = Studies(design, root, machine, engine, executor)
    executor.check(studies)
    machine.take()
    return studies


def run(
    studies: Studies, out: Path, cache: Path, *, skip_unreadable: bool = False, strict: bool = False
) -> Finished | None:
    """Run all studies, or resume them, and write their tables; None in a process that another leads.

    With `strict`, a study is refused of which some K were trained with other versions, or on another processor.

    Raises
    ------
    ChestfedError
        If data are missing or damaged, or training fails. What is finished is kept, and resumed by the same call.
    """
    check_skipping(studies.pipeline, skip_unreadable=skip_unreadable)
    load = partial(load_experiments, studies, cache, skip_unreadable=skip_unreadable)
    with resolve_name(ENGINES.find(studies.engine.name).deployment)(studies.engine, studies.machine) as deployment:
        deployment.agree({variant.label: variant.pipeline for variant in studies.variants})
        if not deployment.leads:
            deployment.serve(load)
            return None
        check_folder(out, "--out")
        _check_rows(studies)
        provide(studies.pipeline, studies.root)
        experiments = load()
        deployment.begin(experiments)
        current().tell(lambda reporter: reporter.data_read(experiments))
        jobs = [
            Job(variant.label, studies.file.stem + variant.suffix, experiment, out)
            for variant, experiment in zip(studies.variants, experiments, strict=True)
        ]
        for job in jobs if strict else ():
            folder = name_folder(job.experiment, job.name, out)
            refuse_other_versions(folder, job.experiment.pipeline.k, studies.machine)
        results = studies.executor(jobs, deployment)
    done = [Done(*parts) for parts in zip(studies.variants, experiments, results, strict=True)]
    finished = finish(studies.design, done, out)
    if (summary := finished.summary) is not None:
        current().tell(lambda reporter: reporter.summary_done(summary))
    return finished


def train(
    jobs: Sequence[Job],
    ready: Iterable[Job],
    deployment: Deployment,
    ahead: Callable[[Sequence[int], Sequence[str]], object] | None = None,
) -> list[StudyResult]:
    """Train the jobs as they become ready; their results are in the order of `jobs`. `ahead` is that of `run_study`.

    Raises `ChestfedError` after all have ended, if training of some diverged.
    """
    results, diverged = {}, dict[str, str]()
    for number, job in enumerate(ready, start=1):
        if len(jobs) > 1:
            note(f"{number}/{len(jobs)}: {job.label}")
        try:
            run = run_study(job.experiment, job.name, job.out, deployment=deployment, ahead=ahead)
            results[job.name, job.label] = run
        except TrainingError as error:
            if len(jobs) == 1 or error.kind != "not finite":
                raise
            diverged[job.label] = str(error)
            warn(f"{job.label} failed: {error}")
    refuse_failed(diverged, len(jobs))
    return [results[job.name, job.label] for job in jobs]


def note(text: str) -> None:
    """Have the reporters print a line."""
    current().tell(lambda reporter: reporter.noted(text))


def refuse_failed(failed: Mapping[str, str], count: int) -> None:
    """Raise `ChestfedError` with the reasons, if some of `count` runs failed; the others are finished."""
    if failed:
        text = "\n".join(f"{label}: {why}" for label, why in failed.items())
        raise ChestfedError(
            f"{len(failed)} of {count} runs failed; the others are finished:\n{text}\n"
            "The same command runs what is missing",
            kind="failed runs",
            reasons=dict(failed),
        )


def check_skipping(pipeline: Pipeline, *, skip_unreadable: bool) -> None:
    """Refuse to skip images of a collection, which are decoded as training reads them: too late to leave one out."""
    if skip_unreadable and pipeline.collection is not None:
        text = "images of a collection are read during training and cannot be skipped: replace the damaged file"
        text = f"--skip-unreadable has no effect on {pipeline.collection.name}: {text}"
        raise ConfigError(text, kind="no effect", option="skip-unreadable")


def load_experiments(studies: Studies, cache: Path, *, skip_unreadable: bool) -> list[Experiment]:
    """Experiment of each study, with its images."""
    if studies.pipeline.collection is not None or studies.root is None:
        experiment = load_collection(studies.pipeline, studies.root, studies.machine)
        experiments = [replace(experiment, pipeline=variant.pipeline) for variant in studies.variants]
        _fetch_weights(experiments)
        return experiments
    experiments = _select_rows(studies, studies.variants, studies.root)
    _note_sites(experiments)
    _fetch_weights(experiments)  # after what is refused at once, and before hours of decoding
    check_cache(experiments, cache)
    return load_images(experiments, cache, skip_unreadable=skip_unreadable)


def _fetch_weights(experiments: Sequence[Experiment]) -> None:
    for experiment in experiments:
        fetch_weights(experiment.pipeline.model)


def make_plans(studies: Studies) -> list[StudyPlan]:
    """Plans of the studies that a dry run shows; label files are read, nothing is written or downloaded."""
    pipeline, shown = studies.pipeline, [_without_absent_weights(part) for part in studies.design.list_planned()]
    if pipeline.collection is not None or studies.root is None:
        experiment = load_collection(pipeline, studies.root, studies.machine)
        timings = time_steps(shown[0].pipeline, studies.machine)
        return [plan_study(shown[0].label, replace(experiment, pipeline=shown[0].pipeline), timings)]
    with provide_labels(pipeline, studies.root) as place:
        experiments = _select_rows(studies, shown, place)
        _note_sites(experiments)  # before a step is timed: a wrong folder is found at once
        timings = time_steps(shown[0].pipeline, studies.machine)
        unwritten = estimate_unwritten(pipeline, studies.root)
        both = zip(shown, experiments, strict=True)
        return [plan_study(variant.label, opened, timings, unwritten) for variant, opened in both]


def _without_absent_weights(variant: Variant) -> Variant:
    model = without_absent_weights(variant.pipeline.model)
    return replace(variant, pipeline=variant.pipeline.model_copy(update={"model": model}))


def _select_rows(studies: Studies, variants: Sequence[Variant], root: Path) -> list[Experiment]:
    """The rows of these variants, all cut from the same sites, which are cut anew for each split."""
    splits = open_splits(studies.pipeline, studies.file, root, (variant.pipeline.split for variant in variants))
    made: dict[str, Experiment] = {}
    for pipeline in (variant.pipeline for variant in variants):
        if (rows := _name_rows(pipeline)) not in made:
            made[rows] = make_experiment(pipeline, _select_sites(splits[pipeline.split], pipeline), studies.machine)
    return [replace(made[_name_rows(variant.pipeline)], pipeline=variant.pipeline) for variant in variants]


def _check_rows(studies: Studies) -> None:
    """Refuse what the label files show before minutes are spent on drawing hospitals."""
    if studies.root is None or not estimate_unwritten(studies.pipeline, studies.root).seconds:
        return
    with provide_labels(studies.pipeline, studies.root) as place:
        _select_rows(studies, studies.variants, place)


def _note_sites(experiments: Sequence[Experiment]) -> None:
    """Note real hospitals among synthetic ones, and diseases that a site labels and the study does not train."""
    sites = {site.name: site for experiment in experiments for site in experiment.sites}
    real = [site.name for site in sites.values() if not site.table.synthetic]
    drawn = [site.name for site in sites.values() if site.table.synthetic]
    if real and drawn:  # the results are data of patients, though they mean nothing
        warn(
            f"note: real: {', '.join(real)}; synthetic: {', '.join(drawn)}. The results say PARTLY SYNTHETIC. The "
            "models were trained on real patients: protect them like other patient data."
        )
    unused = {
        site.name: [format_title(disease) for disease in site.labeled if disease not in experiments[0].diseases]
        for site in sites.values()
    }
    if named := "; ".join(f"{name}: {', '.join(diseases)}" for name, diseases in unused.items() if diseases):
        warn(f"note: labeled, but not among the study's diseases, so not used: {named}. `diseases` adds them.")


def _select_sites(sites: Sequence[StudySite], pipeline: Pipeline) -> list[StudySite]:
    """The sites of one variant; they are opened once, whatever number of their images it trains on."""
    by_entry: dict[str, list[StudySite]] = {}
    for site in sites:
        by_entry.setdefault(_name_entry(site.entry), []).append(site)  # several where an entry has a partition
    return [replace(site, entry=entry) for entry in pipeline.sites for site in by_entry[_name_entry(entry)]]


def _name_entry(entry: SiteEntry) -> str:
    """A site without the number of its images."""
    return entry.model_copy(update={"training_images": None}).model_dump_json()


def _name_rows(pipeline: Pipeline) -> str:
    """The rows of a variant: those that differ in method or seed alone have the same."""
    drawn = any(entry.training_images or entry.positives for entry in pipeline.sites) or pipeline.quick  # by the seed
    return repr((pipeline.sites, pipeline.k, pipeline.held_out, pipeline.split, pipeline.seed if drawn else None))
