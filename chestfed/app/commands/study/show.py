"""Output of `chestfed study` when its studies are finished."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from chestfed.app.commands.study.summary import render_summary
from chestfed.core.console import command, say, show_answer
from chestfed.core.output import add_result, output
from chestfed.results.tables.answer import Answer, answer_study
from chestfed.results.tables.frames import Results, list_records
from chestfed.results.tables.run_folder import MODEL_FILE
from chestfed.results.tables.sentences import describe_chance
from chestfed.results.tables.views import render_tables
from chestfed.studies.designs.design import Finished
from chestfed.studies.training.run import StudyResult


def show_finished(console: Console, finished: Finished, *, verbose: bool = False) -> None:
    """Print what the studies of a design come to; `end_with_answer` ends the output."""
    for part in finished.before:
        console.print(part)
    if finished.results is not None:
        _show_results(console, finished.results, finished.results_folder or finished.folder, verbose=verbose)
    for part in finished.after:
        if isinstance(part, str):
            say(console, part)
        else:
            console.print(part)
    add_result(answer=finished.answer, folder=str(finished.folder))


def show_finished_study(console: Console, study: StudyResult, seconds: float) -> None:
    """Print what a study found, how long it took, and the answer."""
    _show_results(console, study.results, study.folder, verbose=False)
    end_with_answer(console, study.results, f"took {seconds:.0f} s")


def end_with_answer(console: Console, results: Results | None, *lines: str) -> None:
    """Print the last lines, then the answer unless the table of these results has begun with it; --quiet needs it."""
    for line in lines:
        say(console, line)
    answer = str(output().result["answer"])
    if output().mode == "quiet" or results is None or answer != str(answer_study(results)):
        show_answer(console, answer)


def _show_results(console: Console, results: Results, folder: Path, *, verbose: bool) -> None:
    answer = answer_study(results)
    if verbose:
        console.print(render_tables(results))
        say(console, describe_chance(results))
    console.print(render_summary(results, answer, _repeat(results, answer)))
    last = f"k{results.view('study')['k'].max()}/{MODEL_FILE}"
    model = f"model: {last} in that folder" if (folder / last).is_file() else ""
    say(console, f"page: {command('report', folder)}")
    if more := "; ".join(filter(None, (model, "" if verbose else "all tables: --verbose"))):
        say(console, more)
    estimates, differences = (list_records(frame) for frame in (results.estimates, results.differences))
    add_result(answer=str(answer), details=answer.details, folder=str(folder), data=str(results.origin))
    add_result(estimates=estimates, differences=differences)


def _repeat(results: Results, answer: Answer) -> str:
    """The command that was typed, on the same patients, with as many training seeds as advised, all of them new.

    The seeds seen so far have led to the advice: an interval that counts them again is optimistic.
    """
    if not answer.seeds or results.in_groups:
        return ""
    words, kept = iter(sys.argv[1:]), list[str]()
    for word in words:
        name, equals, value = word.partition("=")
        if name not in ("--seed", "--seeds"):
            kept.append(word)
            continue
        value = value if equals else next(words, "")
        kept += ["--set", f"seed={value}"] if name == "--seed" else []  # it draws the patients too
    first = max(results.seeds) + 1
    again = command(*(kept or ["study"]), "--seeds", f"{first}-{first + answer.seeds - 1}")
    return f"Confirm it with new ones: {again}"
