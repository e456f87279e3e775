"""`chestfed.run` and `chestfed.tune`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chestfed.app.api import arguments
from chestfed.app.api.arguments import Declarations, Part, PipelineSource
from chestfed.core.bundled import site_file
from chestfed.core.config import Document, as_path, listed
from chestfed.core.errors import ConfigError
from chestfed.core.python_words import speak_python

if TYPE_CHECKING:
    import pandas as pd

    from chestfed.data.collections.memory import Samples
    from chestfed.reports.pages.comparison import Comparison
    from chestfed.reports.pages.study import Study
    from chestfed.studies.designs.design import Finished
    from chestfed.studies.experiment.methods import PipelineFile as Pipeline

#: The pipeline that runs where none is named.
_DEFAULT = "source_addition_samples"


@speak_python
def run(
    pipeline: PipelineSource | None = None,
    *,
    methods: Sequence[Part] | None = None,
    windows: Sequence[int] | None = None,
    algorithm: Part | None = None,
    objective: Part | None = None,
    model: Part | None = None,
    clients: Sequence[Samples] | None = None,
    test: Samples | None = None,
    tasks: Sequence[str] | None = None,
    k: int | Sequence[int] | None = None,
    seed: int | None = None,
    seeds: int | Sequence[int] | None = None,
    splits: int | None = None,
    jobs: int = 1,
    device: str | None = None,
    data: str | Path | None = None,
    out: str | Path = "runs",
    cache: str | Path = "auto",
    overrides: Sequence[str] = (),
    add_sites: Sequence[str | Path] = (),
    skip_unreadable: bool = False,
    strict: bool = False,
    tracking: bool = False,
    quiet: bool = False,
) -> Study | Comparison | Finished:
    """Run a study, with one training seed and split or several, or what is left of it, and return it.

    Parameters
    ----------
    pipeline
        A YAML, the name of a bundled one, a mapping of its keys, or a `Pipeline`. Default: the study on the samples.
    methods, windows
        What to compare: names, declarations, or mappings as in `methods` of a pipeline; windows (local steps per
        round). Without them, here or in `overrides`, the first selected method is run, with every K.
    algorithm, objective, model
        The name of a method of it, `"mylab.methods:FedDyn"`, `{"name": "fedprox", "prox": 0.1}`, or a declaration.
    clients, test, tasks
        Data sets of image and label (`chestfed.data.collections.memory.Samples`), one per client, and one to score, in
        place of the pipeline's hospitals; names of the tasks, one per column of labels.
    k, seeds, splits
        Numbers of clients; training seeds, or how many from `seed` on (default: one, not the pipeline's); splits.
    jobs, data, overrides, strict, quiet
        Studies, or K of one, at a time, in own processes; folder that contains the sites' folders; any keys, as
        `["federated.window=8"]`; refuse K of other versions; print nothing, and warn by Python's `ChestfedWarning`.

    Returns
    -------
    Study, Comparison or Finished
        A comparison of methods or windows; the tables of held-out sites or sets of partners as `Finished`.

    Raises
    ------
    ConfigError
        If the configuration is invalid. Nothing was started then.
    ChestfedError
        If data are missing or damaged, or training fails; the same call resumes what is left.
    """
    return _run(_Request(**locals()))


@dataclass(frozen=True)
class _Request:
    """The arguments of `run`."""

    pipeline: PipelineSource | None
    methods: Sequence[Part] | None
    windows: Sequence[int] | None
    algorithm: Part | None
    objective: Part | None
    model: Part | None
    clients: Sequence[Samples] | None
    test: Samples | None
    tasks: Sequence[str] | None
    k: int | Sequence[int] | None
    seed: int | None
    seeds: int | Sequence[int] | None
    splits: int | None
    jobs: int
    device: str | None
    data: str | Path | None
    out: str | Path
    cache: str | Path
    overrides: Sequence[str]
    add_sites: Sequence[str | Path]
    skip_unreadable: bool
    strict: bool
    tracking: bool
    quiet: bool

    def locate_pipeline(self, declared: Declarations) -> tuple[Path | Document, list[str]]:
        """The pipeline's file or data, and all keys that are set in it."""
        overrides, given, pipeline = listed(self.overrides, "overrides", str), list[str](), self.pipeline
        several = arguments.check_seeds(self.seeds)
        clients = None if self.clients is None else listed(self.clients, "clients")
        if not clients and self.test is None and self.tasks is None:
            pipeline = _DEFAULT if pipeline is None else pipeline
        else:
            own_k = self.k is not None or any(override.startswith("k=") for override in overrides)
            base, given = arguments.list_samples_keys(clients, self.test, self.tasks, own_k=own_k)
            pipeline = base if pipeline is None else pipeline
        file = arguments.locate_pipeline(pipeline, declared)
        if self.methods is not None:
            given += arguments.select_methods(file, listed(self.methods, "methods"), declared)
        else:
            given += arguments.select_algorithm(file, overrides, self.algorithm, declared)
        given += arguments.list_parts(self.objective, self.model, declared)
        windows = () if self.windows is None else listed(self.windows, "windows")
        defaults = [f"windows={arguments.check_whole_numbers(windows, 'windows')}", f"seeds={several}"]
        given += [] if self.windows is None else defaults[:1]
        given += [] if self.seeds is None else defaults[1:]
        given += [] if self.splits is None else [f"splits={arguments.check_positive(self.splits, 'splits')}"]
        given += arguments.list_plain_keys(self.k, self.seed, self.device)
        return file, arguments.join_keys(overrides, given, defaults)


def _run(request: _Request) -> Study | Comparison | Finished:
    from chestfed.app.studies import Session
    from chestfed.core.console import open_console
    from chestfed.learning.engines.declaration import refuse_several
    from chestfed.studies.experiment import loading
    from chestfed.studies.jobs import Jobs
    from chestfed.studies.running import Executor, check

    if request.methods is not None and request.algorithm is not None:
        raise ConfigError("methods, algorithm: give one of them", kind="two selections")
    declared, jobs = Declarations(), arguments.check_positive(request.jobs, "jobs")
    added = [*map(site_file, listed(request.add_sites, "add_sites"))]
    source, settings = request.locate_pipeline(declared)
    declared.refuse_several_processes(jobs)
    refuse_several("chestfed.run()")
    root, out = arguments.optional_path(request.data, "data"), as_path(request.out, "out")
    cache, console = as_path(request.cache, "cache"), open_console(quiet=request.quiet)
    skips, strict = request.skip_unreadable, request.strict
    session = Session(console, out, cache, request.tracking, skip_unreadable=skips, strict=strict)
    path = source.path if isinstance(source, Document) else source
    executor = Jobs(jobs) if jobs > 1 else Executor()
    return _open(session.run(check(loading.load_pipeline(source, settings, added), path, root, executor)))


def load_pipeline(pipeline: PipelineSource, overrides: Sequence[str] = ()) -> Pipeline:
    """Read and check a pipeline: a YAML, the name of a bundled one, or a mapping of its keys.

    Raises
    ------
    ConfigError
        All mistakes, each with its place.
    """
    from chestfed.studies.experiment import loading

    source = arguments.locate_pipeline(pipeline, Declarations())
    return loading.load_pipeline(source, listed(overrides, "overrides", str))


@dataclass(frozen=True)
class Tuned:
    """Result of `chestfed.tune`.

    Attributes
    ----------
    file
        The pipeline with the selected settings, for `chestfed.run` and `chestfed study`.
    trials
        One row per trial and training seed: method, settings, validation AUC.
    result
        The selected settings on the test set.
    """

    file: Path
    trials: pd.DataFrame
    result: Study | Comparison | Finished

    def __repr__(self) -> str:
        return f"<Tuned: {len(self.trials):,} trials, selected settings in {self.file}\n{self.result!r}>"


@speak_python
def tune(
    pipeline: PipelineSource = _DEFAULT,
    *,
    methods: Sequence[Part] | None = None,
    trials: int | None = None,
    seeds: int | None = None,
    confirm: int | None = None,
    every_k: bool = False,
    device: str | None = None,
    data: str | Path | None = None,
    out: str | Path = "runs",
    cache: str | Path = "auto",
    overrides: Sequence[str] = (),
    skip_unreadable: bool = False,
    tracking: bool = False,
    quiet: bool = False,
) -> Tuned:
    """Select the settings of each method on validation patients, and test the selected ones once.

    What is searched, and how, is the same as with `chestfed tune`. The same call resumes.

    Parameters
    ----------
    pipeline, methods
        As for `chestfed.run`; without `methods` all that the pipeline selects.
    trials, seeds
        Settings that are tried per key that is searched; training seeds of each trial, and of the test. Default: 20
        and 3; of a pipeline with `quick: true` 4 and 1.
    confirm
        Further training seeds of the three best settings. Default: 3; of a pipeline with `quick: true` 0.
    every_k
        Whether each K of the pipeline gets settings of its own, and what else its `alternatives` train.

    Raises
    ------
    ConfigError
        If the configuration is invalid, or there is nothing to search. Nothing was started then.
    ChestfedError
        If all trials of a method diverge, or as for `chestfed.run`.
    """
    import pandas as pd

    from chestfed.app.commands.tune import run as tune_run
    from chestfed.app.studies import Session
    from chestfed.core.console import open_console

    declared, folder, store = Declarations(), as_path(out, "out"), as_path(cache, "cache")
    source = arguments.locate_pipeline(pipeline, declared)
    given = arguments.list_plain_keys(None, None, device)
    if methods is not None:
        given += arguments.select_methods(source, listed(methods, "methods"), declared)
    settings = arguments.join_keys(listed(overrides, "overrides", str), given)
    counts = {"trials": _check_count(trials, "trials"), "seeds": _check_count(seeds, "seeds")}
    counts["confirm"] = confirm and _check_count(confirm, "confirm")
    place = arguments.optional_path(data, "data")
    tuning = tune_run.prepare(source, settings, place, counts, every_k=every_k)
    session = Session(open_console(quiet=quiet), folder, store, tracking, skip_unreadable=skip_unreadable)
    tuned, finished = tune_run.run(session, tuning)
    return Tuned(tuned, pd.read_csv(tuned.parent / "trials.csv"), _open(finished))


def _check_count(count: int | None, name: str) -> int | None:
    return None if count is None else arguments.check_positive(count, name)


def _open(finished: Finished | None) -> Study | Comparison | Finished:
    """Finished studies: the K of one method as a study, others as a comparison; without a common table as they are."""
    from chestfed.reports.pages.comparison import Comparison
    from chestfed.reports.pages.study import Study
    from chestfed.results.tables.run_folder import COMPARISON

    assert finished is not None  # only a launcher's other processes have none
    if len(finished.studies) == 1 and finished.summary is None:
        return Study.load(finished.folder)
    if finished.results is None or not (finished.folder / COMPARISON).is_file():
        return finished
    return Study.load(finished.folder) if finished.results.is_study else Comparison.load(finished.folder)
