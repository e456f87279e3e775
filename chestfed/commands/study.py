"""`chestfed study`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from chestfed.commands.progress import Bars
from chestfed.core.errors import ConfigError
from chestfed.experiment.device import prepare_machine
from chestfed.experiment.loading import load_pipeline
from chestfed.experiment.pipeline import Pipeline
from chestfed.experiment.preflight import check_runs
from chestfed.public_datasets.opening import COLLECTIONS
from chestfed.results import compare
from chestfed.results.significance import render as render_significance
from chestfed.results.table import render as render_table
from chestfed.tracking.store import Tracker, local_store
from chestfed.training.clients import SiteTables, StudyData, load_images, open_tables, resolve_data_root
from chestfed.training.plan import Contents, contents_of_data, contents_of_tables, plan_study, whole_rounds
from chestfed.training.plan import render as render_plan
from chestfed.training.public_clients import load_collection
from chestfed.training.run import run_study


def run_command(
    console: Console,
    pipeline_file: Path,
    data: Path | None,
    out: Path,
    cache: Path,
    overrides: Sequence[str],
    *,
    dry_run: bool,
    skip_unreadable: bool,
    tracking_uri: str | None,
    tracking: bool,
    algorithms: Sequence[str] = (),
    windows: Sequence[int] = (),
    seeds: int | None = None,
    added: Sequence[Path] = (),
) -> None:
    """Plan or run a study, or one per algorithm, window and seed, and print its table."""
    pipeline = load_pipeline(pipeline_file, overrides, added)
    if pipeline.held_out is not None:
        from chestfed.commands.held_out import run_held_out

        if algorithms or windows or seeds is not None:
            raise ConfigError(
                "--algorithms, --windows and --seeds compare; a pipeline with held_out runs once per site"
            )
        run_held_out(
            console,
            pipeline,
            pipeline_file,
            data,
            out,
            cache,
            dry_run=dry_run,
            skip_unreadable=skip_unreadable,
            tracking_uri=tracking_uri,
            tracking=tracking,
        )
        return
    wanted = pipeline.comparison
    if wanted is not None:
        algorithms, windows, seeds = algorithms or wanted.algorithms, windows or wanted.windows, seeds or wanted.seeds
    comparing = bool(algorithms or windows or (seeds or 1) > 1)
    variants = _variants(pipeline, algorithms, windows, seeds or 1) if comparing else [pipeline.for_algorithm()]
    check_runs(variants)
    data_root = _data_root(pipeline, data)
    machine = prepare_machine(pipeline.runtime)
    if dry_run:
        contents = _contents(console, pipeline, pipeline_file, data_root)
        console.print(render_plan(plan_study(variants[0], contents, machine), variants[0], machine))
        if len(variants) > 1:
            names = "; ".join(map(_name, variants))
            console.print(f"That is the first of {len(variants)} runs: {names}.", highlight=False)
        return

    started = time.monotonic()
    console.print(f"{pipeline.title}\n{pipeline_file} on {machine.name}", highlight=False)
    with Bars(console) as bars:
        if pipeline.samples is not None and data_root is not None:
            write_samples(console, data_root, pipeline.samples.seed, pipeline.samples.size, bars)
        study_data = _load(console, pipeline, pipeline_file, data_root, cache, bars, skip_unreadable=skip_unreadable)
        for site, problems in study_data.quarantined.items():
            console.print(f"{site}: {len(problems)} unreadable images left out", style="yellow")
        uri = (tracking_uri or local_store(out)) if tracking else None
        out.mkdir(parents=True, exist_ok=True)
        tracker = Tracker(uri, out / "mlflow-artifacts", lambda text: console.print(text, style="yellow"))
        studies = []
        for number, variant in enumerate(variants, start=1):
            if len(variants) > 1:
                console.print(f"{number}/{len(variants)}: {_name(variant)}", highlight=False)
            studies.append(run_study(variant, pipeline_file.stem, study_data, machine, out, tracker, bars))
    if comparing:
        runs = []
        for variant, study in zip(variants, studies, strict=True):
            settings = variant.federated
            label = compare.label_of(settings.spec.name, settings.window, windows)
            runs.append(compare.Run(label, settings.spec.name, settings.window, variant.seed, study))
        comparison = compare.collect(runs, pipeline.title, pipeline.published)
        folder = compare.write(comparison, runs, out)
        console.print(compare.render(comparison))
        console.print(f"written to {folder}: results.csv, curves.csv, curves.png", highlight=False, soft_wrap=True)
    else:
        (study,) = studies
        console.print(render_table(study.table))
        if study.significance is not None:
            console.print(render_significance(study.significance, "Does it help?"))
        console.print(f"written to {study.folder}/table.csv and table.json", highlight=False, soft_wrap=True)
        console.print(f"as a page, with figures: chestfed report {study.folder}", highlight=False, soft_wrap=True)
    if tracker.active and tracking_uri is None:
        console.print(f"see it in MLflow: chestfed ui --out {out}", highlight=False, soft_wrap=True)
    console.print(f"took {time.monotonic() - started:.0f} s")


def _data_root(pipeline: Pipeline, data: Path | None) -> Path | None:
    """Where the files are; None for a collection that has none."""
    entry = pipeline.collection
    if entry is not None and not COLLECTIONS[entry.name].needs_root:
        return None
    return resolve_data_root(pipeline, data)


def _load(
    console: Console,
    pipeline: Pipeline,
    pipeline_file: Path,
    data_root: Path | None,
    cache: Path,
    bars: Bars,
    *,
    skip_unreadable: bool,
) -> StudyData:
    if pipeline.collection is not None or data_root is None:
        return load_collection(pipeline, data_root, bars.decoding)
    tables = open_tables(pipeline, pipeline_file, data_root)
    _say_if_mixed(console, tables)
    return load_images(tables, pipeline, cache, skip_unreadable=skip_unreadable, progress=bars.decoding)


def _contents(console: Console, pipeline: Pipeline, pipeline_file: Path, data_root: Path | None) -> Contents:
    if pipeline.collection is not None or data_root is None:
        return contents_of_data(load_collection(pipeline, data_root))
    with hospitals_to_look_at(console, pipeline, data_root) as root:
        tables = open_tables(pipeline, pipeline_file, root)
        _say_if_mixed(console, tables)
        return contents_of_tables(tables)


def _say_if_mixed(console: Console, tables: SiteTables) -> None:
    """One real hospital among phantoms: what comes out is data of patients, though it means nothing."""
    real = [table.name for table in tables.whole if not table.synthetic]
    if real and len(real) < len(tables.whole):
        console.print(
            f"note: {', '.join(real)} is not synthetic, other sites are: the results say PARTLY SYNTHETIC. "
            "The models have seen real patients: keep them as you keep other data of patients.",
            style="yellow",
            soft_wrap=True,
        )


def _variants(pipeline: Pipeline, algorithms: Sequence[str], windows: Sequence[int], seeds: int) -> list[Pipeline]:
    """One variant per algorithm, window and seed, the seeds of an algorithm together."""
    chosen = list(algorithms) or [pipeline.federated.algorithm.name]
    if len(set(chosen)) < len(chosen):
        raise ConfigError("--algorithms: name each algorithm once")
    try:
        return [
            pipeline.variant(name, pipeline.seed + number, chosen, window)
            for name in chosen
            for window in (windows or (None,))
            for number in range(seeds)
        ]
    except (ConfigError, ValueError) as error:
        raise ConfigError(f"--algorithms: {error}") from None


def _name(variant: Pipeline) -> str:
    settings = variant.federated
    name = f"{settings.spec.name}, window {settings.window}, seed {variant.seed}, K={variant.k[-1]}"
    return name + whole_rounds(settings)


def write_samples(console: Console, folder: Path, seed: int, size: str, bars: Bars) -> None:
    """Write the synthetic hospitals unless they are there."""
    from chestfed.samples import is_complete, write_hospitals

    if is_complete(folder, seed=seed, size=size):
        return
    console.print(f"writing five SYNTHETIC hospitals (phantoms, no patients) to {folder}", highlight=False)
    write_hospitals(folder, seed=seed, size=size, progress=bars.drawing)


@contextmanager
def hospitals_to_look_at(console: Console, pipeline: Pipeline, data_root: Path) -> Iterator[Path]:
    """The data root; or, if synthetic hospitals are still to be written there, a temporary folder that has them."""
    from chestfed.samples import is_complete

    wanted = pipeline.samples
    if wanted is None or is_complete(data_root, seed=wanted.seed, size=wanted.size):
        yield data_root
        return
    with TemporaryDirectory(prefix="chestfed-") as folder:
        with Bars(console) as bars:
            write_samples(console, Path(folder), wanted.seed, wanted.size, bars)
        console.print("(they are removed again: a dry run leaves nothing behind)")
        yield Path(folder)
