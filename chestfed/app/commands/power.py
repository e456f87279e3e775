"""`chestfed power`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chestfed.app.commands import options
from chestfed.core.bundled import list_pipelines, run_path
from chestfed.core.console import open_console, plural, say, show_answer, text_table
from chestfed.core.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console
    from rich.table import Table

    from chestfed.results.evaluation.joining.planning import Assumptions


def _find_paths(given: list[Path]) -> list[Path]:
    """A pipeline by name or file; else run folders, for one of several seeds those beside it.

    Raises `ConfigError` if a name is that of a YAML here and of a run.
    """
    if len(given) == 1 and str(given[0]) in list_pipelines():
        return given
    paths = [run_path(path) for path in given]
    file = Path(f"{given[0]}.yaml")
    if len(given) == 1 and file.is_file():
        if paths[0].is_dir():
            text = f"{given[0]} is the pipeline {file} and the run {paths[0]}: give the path of the one that is meant"
            raise ConfigError(text, kind="several", place=str(given[0]))
        return [file]
    if len(paths) == 1 and (paths[0] / "comparison.json").is_file():
        from chestfed.results.tables.collect import list_run_folders, read_comparison

        return list_run_folders(paths[0], read_comparison(paths[0]))
    return paths


Study = Annotated[
    list[Path],
    typer.Argument(
        callback=_find_paths,
        help="A pipeline, whose test set is planned with the assumptions below; or a finished study with two or more "
        "seeds, its folder or those of its runs: a pilot that gives them.",
        show_default=False,
    ),
]
Difference = Annotated[float, typer.Option(min=0.0001, max=0.5, help="True difference of the mean AUC to be detected.")]
Seeds = Annotated[str, typer.Option(help="Numbers of training seeds.")]
Comparisons = Annotated[int, typer.Option(min=1, help="Comparisons that are corrected together (Holm).")]
Auc = Annotated[float, typer.Option(min=0.5, max=0.999, help="Assumed AUC of both models.")]
Correlation = Annotated[
    float, typer.Option(min=0.0, max=0.999, help="Assumed correlation of the models' scores within a class.")
]
SeedDeviation = Annotated[
    float, typer.Option(min=0.0, help="Assumed standard deviation over seeds of the difference of the mean AUC.")
]
DesignEffect = Annotated[
    float, typer.Option(min=0.1, help="How much larger the variance is because a patient has several images.")
]
Csv = Annotated[Path | None, options.optional(help="Write the table to this file.")]
Figure = Annotated[Path | None, options.optional(help="Draw power by size of the test set into this SVG file.")]


def power(
    study: Study,
    difference: Difference = 0.02,
    seeds: Seeds = "2,3,5,10,20",
    comparisons: Comparisons = 1,
    auc: Auc = 0.8,
    correlation: Correlation = 0.8,
    seed_deviation: SeedDeviation = 0.02,
    design_effect: DesignEffect = 1.0,
    k: options.K = None,
    data: options.PipelineData = None,
    csv: Csv = None,
    figure: Figure = None,
) -> None:
    """Compute the test patients, positives and training seeds that a study needs to detect a difference of mean AUC.

    The test is that of a finished study: over test patients and training seeds, at the 5% level. Nothing is trained.
    With several comparisons the power is that of each at the level of Holm's first step.

    Example:

        chestfed power source_addition_samples --difference 0.03
        chestfed power runs/mine-seed1-0123 runs/mine-seed2-4567 --difference 0.03 --comparisons 4
    """
    from chestfed.results.evaluation.joining.planning import find_seeds, tabulate
    from chestfed.results.evaluation.training_seeds import POWER

    console, numbers = open_console(), _read_numbers(seeds)
    if is_pilot := all((path / "study.json").is_file() for path in study):
        assumptions, planned, patients = _learn(study, k)
    elif len(study) == 1:
        counts, planned, patients = _count_patients(study[0], data)
        from chestfed.results.evaluation.joining.planning import assume

        with _refuse_without_plan(planned):
            assumptions = assume(counts, auc, correlation, seed_deviation, design_effect)
    else:
        raise ConfigError("give one pipeline, or finished run folders of one study", kind="no pilot")
    table = tabulate(assumptions, difference, numbers, comparisons=comparisons)
    say(console, f"{planned}\n{assumptions.source}; difference {difference:g}, {plural(comparisons, 'comparison')}")
    console.print(_lay_out(table, numbers))
    needed = find_seeds(assumptions, difference, comparisons=comparisons)
    enough = "no number of seeds" if needed is None else plural(needed, "seed")
    say(console, f"With this test set: {enough}, for {POWER:.0%} power.")
    if not is_pilot:
        text = "A finished study measures the variance over its test patients, so the numbers that it advises differ."
        say(console, text)
    _show_patients(console, assumptions, difference, numbers, comparisons, patients)
    needed_text = "no number of seeds shows" if needed is None else f"{plural(needed, 'seed')} show"
    result = {"seeds_needed": needed, "difference": difference, "rows": table.to_dict("records")}
    if csv is not None:
        from chestfed.core.checkpoint import write_text
        from chestfed.results.evaluation.estimates import as_csv

        write_text(csv, as_csv(table))
        say(console, f"written to {csv}")
    if figure is not None:
        _draw(table, difference, figure)
        say(console, f"written to {figure}")
    show_answer(console, f"With this test set {needed_text} a difference of {difference:g}", **result)


def _show_patients(
    console: Console,
    assumptions: Assumptions,
    difference: float,
    numbers: Sequence[int],
    comparisons: int,
    patients: int,
) -> None:
    """Print how many test patients show the difference with each number of seeds."""
    from chestfed.results.evaluation.joining.planning import find_times

    for count in numbers:
        times = find_times(assumptions, difference, count, comparisons)
        text = "no number of patients shows it"
        if times is not None:
            text = f"{math.ceil(times * patients):,} test patients, {times:.3g} times the {patients:,} of this test set"
        say(console, f"With {plural(count, 'seed')}: {text}.")


def _read_numbers(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdigit() and 2 <= int(word) <= 1000 for word in words):
        raise typer.BadParameter(f"--seeds: '{text}' is not a list of numbers from 2, such as 3,5,10")
    return sorted({int(word) for word in words})


def _learn(runs: Sequence[Path], k: int | None) -> tuple[Assumptions, str, int]:
    """The assumptions of a pilot, its largest K, or `k`, against its smallest; what it is; and its test patients.

    They are those of the study's own answer: over the diseases that count in its mean.
    """
    from chestfed.results.evaluation.joining.planning import learn
    from chestfed.results.evaluation.labeled import NO_DISEASE_COUNTS, find_counted
    from chestfed.results.evaluation.training_seeds import seeds_test
    from chestfed.results.tables.predictions import group_seeds, load_predictions
    from chestfed.results.tables.run_folder import RunFolder

    first = min(RunFolder.open(runs[0]).ks)
    models = group_seeds([load_predictions(run, number) for number in (first, k) for run in runs])
    if len(models) != 2:
        raise ConfigError(
            f"a pilot is one study with several seeds that compares two K: these are {len(models)} models",
            kind="no pilot",
            models=len(models),
        )
    reference, model = models
    if len(reference.tests) > 1:
        text = "a pilot is of one split of the patients: give the runs of one"
        raise ConfigError(text, kind="several splits", splits=len(reference.tests))
    if len(reference.frames) < 2:
        text = "a pilot needs two or more training seeds: run `chestfed study` with --seeds 3, or plan with a pipeline"
        raise ConfigError(text, kind="one seed")
    scored = reference.scored(reference.diseases)[0]
    counted = find_counted(scored.labels, scored.patients, scored.hospitals)
    diseases = tuple(compress(reference.diseases, counted))
    if not diseases:
        raise ConfigError(f"of the pilot's test patients {NO_DISEASE_COUNTS}", kind="no plan")
    scored = reference.scored(diseases)[0]
    runs_a, runs_b = ([run.scores for run in model.scored(diseases)] for model in models)
    test = seeds_test(runs_a, runs_b, scored.labels, scored.patients, scored.hospitals)
    frame = reference.frames[0]
    planned = f"{model.name} minus {reference.name}: {test.difference:+.3f}; {_describe(frame)}"
    with _refuse_without_plan(planned):
        return (
            learn(test, _count(frame, "patient", {d: f"label_{d}" for d in diseases})),
            planned,
            frame["patient"].nunique(),
        )


@contextmanager
def _refuse_without_plan(planned: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ConfigError(f"{planned}: {error}", kind="no plan") from None


def _describe(frame: pd.DataFrame) -> str:
    return f"{plural(len(frame), 'test image')} of {plural(frame['patient'].nunique(), 'patient')}"


def _count_patients(path: Path, data: Path | None) -> tuple[list[tuple[int, int]], str, int]:
    """Count the target's test patients with positive and with negative images of each disease, and all of them."""
    from chestfed.core.bundled import pipeline_file
    from chestfed.studies.experiment.loading import load_pipeline
    from chestfed.studies.experiment.providers import provide_labels
    from chestfed.studies.training.data.sites import TEST, open_sites, resolve_data_root

    file = pipeline_file(path)
    pipeline = load_pipeline(file).resolve()
    if pipeline.collection is not None or pipeline.held_out is not None:
        raise ConfigError("power is planned for pipelines with a target hospital", kind="no target")
    with provide_labels(pipeline, resolve_data_root(pipeline, data)) as root:
        target = open_sites(pipeline, file, root)[0].select(TEST)
    frame = target.frame[["patient"]].reset_index(drop=True)
    labels = dict(zip(target.diseases, target.labels().T, strict=True))
    counts = _count(frame.assign(**labels), "patient", {name: name for name in labels})
    return counts, f"{target.name}: {_describe(frame)}", frame["patient"].nunique()


def _count(frame: pd.DataFrame, patient: str, columns: dict[str, str]) -> list[tuple[int, int]]:
    """Patients with a positive and with a negative image of each disease."""
    return [
        tuple(int(frame.loc[frame[column] == value, patient].nunique()) for value in (1, 0))  # type: ignore[misc]
        for column in columns.values()
    ]


def _lay_out(table: pd.DataFrame, seeds: Sequence[int]) -> Table:
    rows = []
    for _, part in table.groupby("times", sort=True):
        first = part.iloc[0]
        cells = [f"{chance:.0%}" for chance in part["power"]]
        smallest = f"{part['detectable'].iloc[-1]:.3f}"
        rows.append(
            [f"{first['times']:g}", f"{first['positives']:,.0f}", f"{first['negatives']:,.0f}", *cells, smallest]
        )
    names = [f"{count} seeds" for count in seeds]
    caption = (
        "power by size of the test set (times the planned one; patients with positive and with negative images of the "
        f"largest disease) and training seeds; detectable: seen with a power of 80% and {seeds[-1]} seeds"
    )
    return text_table("", (), ("times", "positive", "negative", *names, "detectable"), rows, caption)


def _draw(table: pd.DataFrame, difference: float, file: Path) -> None:
    from chestfed.reports.pages import figures

    ax = figures.new_axes()
    for number, (count, part) in enumerate(table.groupby("seeds", sort=True)):
        ax.plot(part["positives"], part["power"], label=f"{count} seeds", **figures.line_style(number, marked=True))
    ax.set_xscale("log")
    ax.set(xlabel="patients with a positive image", ylabel=f"power to see {difference:g}", ylim=(0, 1))
    figures.legend(ax)
    drawing = ax.get_figure(root=True)
    assert drawing is not None
    drawing.savefig(file, format="svg")
