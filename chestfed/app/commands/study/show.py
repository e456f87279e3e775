"""What `chestfed study` prints and writes when its studies are finished."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from chestfed.app.commands.study.summary import render_summary
from chestfed.core.console import command, say, show_answer
from chestfed.core.output import add_result, output
from chestfed.core.provenance import Origin
from chestfed.learning.models import name_network
from chestfed.results.evaluation.joining.contributions import Subset
from chestfed.results.tables.answer import answer_study, list_held_out_metrics, list_metrics
from chestfed.results.tables.clients.along import Group, collect_along
from chestfed.results.tables.clients.contributions import (
    collect_contributions,
    describe_contributions,
    render_contributions,
    write_contributions,
)
from chestfed.results.tables.clients.held_out import Fold, collect_folds, write_folds
from chestfed.results.tables.clients.transfer import judge_folds, render_transfer, write_transfer
from chestfed.results.tables.collect import collect, write_comparison
from chestfed.results.tables.columns import SUBSETS, TARGET_IMAGES
from chestfed.results.tables.frames import About, Results, list_records
from chestfed.results.tables.run_folder import MODEL_FILE, RunFolder
from chestfed.results.tables.sentences import describe_chance
from chestfed.results.tables.views import render_tables
from chestfed.studies.experiment.variants import Design
from chestfed.studies.training.data.experiment import Experiment
from chestfed.studies.training.reporting import Summary
from chestfed.studies.training.run import StudyResult

if TYPE_CHECKING:
    from chestfed.app.commands.study.run import Studies


def show_study(console: Console, study: StudyResult, *, verbose: bool = False) -> None:
    """Print what a study found; the caller prints the answer again at the end."""
    _show_results(console, study.results, study.folder, verbose=verbose)


def show_finished_study(console: Console, study: StudyResult, seconds: float) -> None:
    """Print what a study found, how long it took, and the answer."""
    show_study(console, study)
    say(console, f"took {seconds:.0f} s")
    show_answer(console, str(output().result["answer"]))


def _show_results(console: Console, results: Results, folder: Path, *, verbose: bool) -> None:
    answer = answer_study(results)
    if verbose:
        console.print(render_tables(results))
        say(console, describe_chance(results))
    repeat = f"Run it again with them: {_repeat(answer.seeds)}" if answer.seeds and not results.in_groups else ""
    console.print(render_summary(results, answer, repeat))
    single = "runs" in results.about and len(results.seeds) == 1
    model = f"model: k{results.view('study')['k'].max()}/{MODEL_FILE} in that folder" if single else ""
    say(console, f"page: {command('report', folder)}")
    if more := "; ".join(filter(None, (model, "" if verbose else "all tables: --verbose"))):
        say(console, more)
    estimates, differences = (list_records(frame) for frame in (results.estimates, results.differences))
    add_result(answer=str(answer), details=answer.details, folder=str(folder), data=str(results.origin))
    add_result(estimates=estimates, differences=differences)


def _repeat(seeds: int) -> str:
    """The command that was typed, with this number of training seeds."""
    words = iter(sys.argv[1:])
    kept = [word for word in words if not (word == "--seeds" and next(words, "")) and not word.startswith("--seeds=")]
    return command(*(kept or ["study"]), "--seeds", seeds)


def show_comparison(studies: Studies, results: Sequence[StudyResult], out: Path) -> Summary:
    runs = [RunFolder(study.folder) for study in results]
    if not studies.variants[0].images:
        return _show_together(studies, collect(runs, studies.pipeline.title), runs, out)
    groups: dict[int | None, list[RunFolder]] = {}
    for variant, run in zip(studies.variants, runs, strict=True):
        groups.setdefault(variant.pipeline.sites[0].training_images, []).append(run)
    parts = [Group(members, target_images=images) for images, members in groups.items()]
    return _show_together(studies, collect_along(parts, studies.pipeline.title, TARGET_IMAGES), runs, out)


def _show_together(studies: Studies, together: Results, runs: Sequence[RunFolder], out: Path) -> Summary:
    from chestfed.reports.pages.run_figures import draw_curves, draw_gains_by_images

    folder = write_comparison(together, out, str(answer_study(together)))
    for picture in (draw_curves(together), *draw_gains_by_images(together)):
        picture.save(folder)
    _show_results(studies.console, together, folder, verbose=studies.verbose)
    if runs[0].configuration.get("alternatives") and not len(together.view("alternatives")):
        say(studies.console, "alternatives are not compared over methods: alternatives.csv in each run folder has them")
    name = f"{studies.file.stem}, {len(runs)} studies together"
    folders = {str(number): run.path.name for number, run in enumerate(runs, start=1)}
    return Summary(name, together.origin, folder, list_metrics(together), folders)


def show_contributions(studies: Studies, design: Design, results: Sequence[StudyResult], out: Path) -> Summary:
    runs = [
        (variant.subset or Subset(), variant.pipeline.seed, study.folder)
        for variant, study in zip(studies.variants, results, strict=True)
    ]
    together = collect_contributions(runs, design.target, design.partners, design.orders)
    folder = write_contributions(together, out)
    studies.console.print(render_contributions(together))
    if design.alternatives:
        groups: dict[str, list[RunFolder]] = {}
        for (name, _), variant, study in zip(together.names, studies.variants, results, strict=True):
            if variant.subset:
                groups.setdefault(name, []).append(RunFolder(study.folder))
        parts = [Group(members, subset=name) for name, members in groups.items()]
        collected = collect_along(parts, studies.pipeline.title, SUBSETS)
        _show_together(studies, collected, [*chain(*groups.values())], out)
    say(studies.console, f"written to {folder}: contributions.csv, sets.csv")
    add_result(answer=describe_contributions(together), folder=str(folder))
    name = f"{studies.file.stem}, what partners contribute to {design.target}"
    folders = {label: study.folder.name for (_, label), study in zip(together.names, results, strict=True)}
    return Summary(name, together.origin, folder, together.metrics, folders)


def show_held_out(
    studies: Studies, experiments: Sequence[Experiment], results: Sequence[StudyResult], out: Path
) -> Summary:
    pipeline, console, folds = studies.pipeline, studies.console, []
    for experiment, study in zip(experiments, results, strict=True):
        row = RunFolder(study.folder).row().with_reasons(experiment.reasons)
        images = study.results.about["images"]
        folds.append(Fold(str(experiment.held_out), images, study.folder.name, row, study.seen))
    statistics = None if results[-1].results.about["batch_norm"] is None else pipeline.evaluation.batch_norm
    about: About = {
        "model": name_network(pipeline.model),
        "protocol": pipeline.evaluation.protocol,
        "batch_norm": statistics,
    }
    table = collect_folds(
        folds, pipeline.title, Origin.together(experiment.origin for experiment in experiments), about
    )
    folder = write_folds(table, folds, out)
    _show_results(console, table, folder, verbose=studies.verbose)
    runs = {fold.site: RunFolder(study.folder) for fold, study in zip(folds, results, strict=True)}
    transfer = judge_folds(runs, {fold.site: list(fold.seen) for fold in folds})
    write_transfer(transfer, folder)
    if len(transfer):
        console.print(render_transfer(transfer))
    name, folders = f"{studies.file.stem}, all held-out sites", {fold.site: fold.folder for fold in folds}
    return Summary(name, table.origin, folder, list_held_out_metrics(table), folders)
