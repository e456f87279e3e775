"""`chestfed study`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chestfed.app.commands import options
from chestfed.app.commands.shell import RARE
from chestfed.core.bundled import bundled, pipeline_file
from chestfed.core.console import open_console, show_warning
from chestfed.core.leaves import list_packages

if TYPE_CHECKING:
    from chestfed.app.studies import Session
    from chestfed.studies.running import Executor

DEFAULT_PIPELINE = "source_addition_samples.yaml"
#: Of a range such as 2-6.
_MOST_SEEDS = 10_000

_key = options.key_option
_rare = partial(options.optional, rich_help_panel=RARE)

File = Annotated[
    Path | None,
    typer.Argument(
        autocompletion=options.known_pipelines,
        help=f"YAML of a pipeline, or the name of a bundled one. Default: pipelines/{DEFAULT_PIPELINE}.",
        show_default=False,
    ),
]
Ks = Annotated[
    str | None, _key(metavar="K,K", help="Numbers of clients to train with, e.g. 1,5. Same as --set 'k=[1,5]'.")
]
Seed = Annotated[
    int | None,
    _key(
        min=0,
        help="Seed of everything except the samples: of training, and of the draw of test patients and clients, which "
        "--seeds does not change. Same as --set seed=N.",
    ),
]
Device = Annotated[str | None, _key(help="auto, cpu, cuda or cuda:N. Same as --set runtime.device=DEVICE.")]
AddSite = Annotated[
    list[Path] | None,
    _key(
        callback=options.site_files,
        autocompletion=options.known_sites,
        metavar="SITE",
        help="Append this hospital to the pipeline's sites, so that K=1 to 5 becomes K=1 to 6. Repeatable.",
    ),
]
Seeds = Annotated[
    str | None,
    _key(
        metavar="N|S,S",
        help="Number of training seeds, counted up from `seed`, or a list such as 3,7,11 or 2-6. Trains every K with "
        "each, to test whether adding hospitals helps; with several methods or windows only the largest K.",
    ),
]
Splits = Annotated[
    int | None,
    _key(
        min=1,
        metavar="N",
        help="Number of splits of the patients, counted up from `split`: other patients train, validate and are tested "
        "in each, with every seed. Same as --set splits=N.",
    ),
]
Jobs = Annotated[
    int,
    _rare(
        min=1,
        help="Number of studies, or of models of a single one, to train in parallel, a process each. Several GPUs are "
        "used in turn. Without runtime.threads the processes share the CPU's cores.",
    ),
]
OnCluster = Annotated[
    Path | None,
    _rare(
        hidden=not list_packages("executor"),
        metavar="FILE.yaml",
        help="Send each study as a job to a Slurm cluster, with the settings in this file (docs/slurm.md); at most "
        "--jobs run at a time.",
    ),
]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        rich_help_panel="Change the experiment",
        help="A study of minutes that still learns: small images and network (frozen features stay), at most "
        "400 training images a client and 1000 scored images a site, few steps, which many methods share (--methods "
        "A,B or --set federated.stage_steps=100: more for each), one seed, the smallest and the largest K. Same as "
        "--set quick=true.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        rich_help_panel=RARE,
        help="Refuse a study of which some K were trained with other versions, or on another processor.",
    ),
]


def study(
    pipeline: File = None,
    data: options.PipelineData = None,
    out: options.Out = Path("runs"),
    cache: options.Cache = options.AUTO,
    dry_run: options.DryRun = False,
    skip_unreadable: options.SkipUnreadable = False,
    tracking: options.Tracking = True,
    tracking_uri: options.TrackingUri = None,
    record: options.Records = None,
    methods: options.Methods = None,
    k: Ks = None,
    seed: Seed = None,
    device: Device = None,
    add_site: AddSite = None,
    set_: options.Set = None,
    seeds: Seeds = None,
    splits: Splits = None,
    jobs: Jobs = 1,
    cluster: OnCluster = None,
    quick: Quick = False,
    strict: Strict = False,
    verbose: options.Verbose = False,
) -> None:
    """Run a study: does adding hospitals raise the AUC at one hospital?

    Stage 1 trains on the target hospital; stage 2 trains with the first K hospitals, for each K of the pipeline. Prints
    the answer, and with --verbose all tables, which are also in the run folder and on the page of `chestfed report`.
    --seeds repeats this with several training seeds and tests each K against the smallest; --splits repeats it with
    other patients. Several methods or windows are compared at the largest K. To resume an
    interrupted study, run the same command again.

    Example:

        chestfed study --seeds 5 --dry-run
    """
    keys: dict[str, object] = {"selected": options.select_methods(methods), "seed": seed, "seeds": _seeds(seeds, seed)}
    keys |= {"splits": splits, "quick": "true" if quick else None}
    keys |= {"k": None if k is None else f"[{k}]", "runtime.device": device}
    overrides = options.join_overrides(set_, keys)
    with options.quick_imports():
        from chestfed.app.studies import Session
        from chestfed.learning.engines.declaration import rank

    path = bundled("pipelines") / DEFAULT_PIPELINE if pipeline is None else pipeline_file(pipeline)
    console = open_console(quiet=rank() > 0)
    session = Session(
        console, out, cache, tracking, tracking_uri, skip_unreadable, verbose, strict, tuple(record or ())
    )
    _start(session, path, overrides, add_site or [], data, jobs=jobs, cluster=cluster, dry_run=dry_run)


def _start(
    session: Session,
    path: Path,
    overrides: Sequence[str],
    added: Sequence[Path],
    data: Path | None,
    *,
    jobs: int,
    cluster: Path | None,
    dry_run: bool,
) -> None:
    """Check the studies of a pipeline, and run them or show what would run."""
    from chestfed.app.studies import forecast_without_data, show_plan
    from chestfed.studies.experiment import loading
    from chestfed.studies.running import check

    unrecorded = cluster is not None and session.tracking and session.tracking_uri is None
    session = replace(session, tracking=session.tracking and not unrecorded)
    executor = _choose_executor(jobs, cluster, session)
    file = loading.load_pipeline(path, overrides, added)
    if dry_run:
        with forecast_without_data(session.console, file, path, data):
            show_plan(session.console, check(file, path, data, executor, planned=True), session.out)
        return
    studies = check(file, path, data, executor)
    if unrecorded:
        text = "not recorded in MLflow: jobs of a cluster need --tracking-uri with the address of a server"
        show_warning(session.console, text)
    session.run(studies)


def _choose_executor(jobs: int, cluster: Path | None, session: Session) -> Executor:
    """Choose what trains the studies: this process, several, or a cluster."""
    from chestfed.studies.executors import EXECUTORS
    from chestfed.studies.jobs import Jobs
    from chestfed.studies.running import Executor

    if cluster is not None:
        executor: Executor = EXECUTORS.find("cluster").make(
            cluster, jobs, session.tracking_uri if session.tracking else None
        )
        return executor
    return Jobs(jobs) if jobs > 1 else Executor()


def _seeds(text: str | None, first: int | None) -> int | list[int] | None:
    """Number of seeds from the first on, or a list, in which `2-6` is five of them."""
    parts = [] if text is None else [part.strip() for part in text.split(",")]
    matches = [re.fullmatch("([0-9]+)(?:-([0-9]+))?", part) for part in parts]
    ends = [(int(match[1]), int(match[2] or match[1])) for match in matches if match]
    valid = len(ends) == len(parts) and all(0 <= last - start < _MOST_SEEDS for start, last in ends)
    numbers = [number for start, last in ends for number in range(start, last + 1)] if valid else []
    if not valid or len(set(numbers)) < len(numbers):
        raise typer.BadParameter(f"--seeds '{text}': give whole numbers from 0 up, each once, such as 1,3,8 or 2-6")
    if len(numbers) > 1 or "-" in (text or ""):
        if first is not None:
            raise typer.BadParameter("--seed and a list of --seeds: use only one of them")
        return numbers
    if numbers == [0]:
        raise typer.BadParameter("--seeds 0: give the number of seeds, 1 or more, or a list such as 3,7,11")
    return numbers[0] if numbers else None
