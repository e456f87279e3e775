"""The command line, assembled from the commands in `chestfed.app.commands`, and the exit codes.

0: done; 1: an error that the user can fix; 2: usage error; 70: a bug in chestfed; 130: Ctrl-C; 143: another signal
that asks to end.
"""

from __future__ import annotations

import atexit
import gc
import platform
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Annotated, Final, TextIO

import typer

from chestfed._version import __version__
from chestfed.app.commands.algorithms import algorithms, known_algorithms
from chestfed.app.commands.compare import compare
from chestfed.app.commands.datasets import datasets_get, datasets_list, datasets_show, known_releases
from chestfed.app.commands.evaluate import evaluate
from chestfed.app.commands.machine.cache import cache_list, cache_prune
from chestfed.app.commands.machine.doctor import doctor
from chestfed.app.commands.machine.key import key
from chestfed.app.commands.machine.runs import runs
from chestfed.app.commands.machine.schema import schema
from chestfed.app.commands.machine.ui import ui
from chestfed.app.commands.options import print_error
from chestfed.app.commands.power import power
from chestfed.app.commands.report import report
from chestfed.app.commands.shell import Command, Commands, Lists, Root, show_all_help, with_output
from chestfed.app.commands.site.check import site_card, site_check
from chestfed.app.commands.site.stats import site_stats, site_table
from chestfed.app.commands.study.command import study
from chestfed.app.commands.tune.command import tune
from chestfed.core.bundled import NAME_KINDS, NameKind
from chestfed.core.console import open_console, say
from chestfed.core.errors import ChestfedError, ChestfedWarning
from chestfed.core.leaves import list_commands, list_groups, load
from chestfed.core.processes.stopping import handle_signals

_MORE: Final = "More"

app = typer.Typer(
    name="chestfed",
    cls=Root,
    help="Federated learning on the chest radiographs of several hospitals.\n\n"
    "Start with `chestfed study`: it asks whether adding hospitals helps one of five synthetic ones, in minutes, "
    "without downloading data and without a GPU.",
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_FIRST: Final = ("study", "report", "evaluate", "compare", "algorithms", "runs")
#: The commands of the suite itself: words -> function.
_COMMANDS: Final[dict[str, Callable[..., None]]] = {
    **{function.__name__: function for function in (study, report, evaluate, compare, algorithms, runs)},
    **{function.__name__: function for function in (tune, power, ui, key, schema, doctor)},
    "site check": site_check,
    "site card": site_card,
    "site stats": site_stats,
    "site table": site_table,
    "datasets list": datasets_list,
    "datasets show": datasets_show,
    "datasets get": datasets_get,
    "cache list": cache_list,
    "cache prune": cache_prune,
}
_GROUPS: Final = {
    "site": "Describe a new hospital, check it, write its card; count images and labels.",
    "datasets": "List open data sets of chest radiographs that need no registration, and download them.",
    "cache": "List and prune the caches of decoded images.",
}


def _assemble() -> None:
    """Put the commands of the suite and of its leaves into the tree."""
    functions = {**_COMMANDS, **{words: load(reference) for words, reference in list_commands().items()}}
    texts = {**_GROUPS, **list_groups()}
    groups: dict[str, typer.Typer] = {}
    for words, function in functions.items():
        name, _, part = words.partition(" ")
        if not part:
            app.command(name, cls=Command, rich_help_panel=None if name in _FIRST else _MORE)(with_output(function))
            continue
        if name not in groups:
            kind = Lists if name == "datasets" else Commands
            groups[name] = typer.Typer(name=name, cls=kind, help=texts[name], rich_markup_mode="markdown")
        groups[name].command(part, cls=Command)(with_output(function))
    for name, group in groups.items():
        app.add_typer(group, rich_help_panel=None if name in Root.first else _MORE)


_assemble()
NAME_KINDS["algorithm"] = NameKind(known_algorithms, "chestfed study --methods {}")
NAME_KINDS["data set"] = NameKind(known_releases, "chestfed datasets show {}")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"chestfed {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    help_all: Annotated[
        bool, typer.Option("--help-all", callback=show_all_help, is_eager=True, help="List all commands, and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point: an error that the user can fix is printed as one message, without a traceback."""
    atexit.register(gc.freeze)  # else Python ends with a search for cycles among all modules: 0.7 s with PyTorch
    with warnings.catch_warnings(), handle_signals():
        warnings.simplefilter("default", ChestfedWarning)
        warnings.showwarning = _print_warning
        try:
            app(prog_name="chestfed")
        except ChestfedError as error:
            print_error(error)
            sys.exit(1)
        except Exception as error:
            sys.exit(_unforeseen(error))


def _unforeseen(error: Exception) -> int:
    """Print an error that nobody caught: one message if the machine is to blame, else a report of a defect."""
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        print_error(ChestfedError(f"{place}{error.strerror}. Finished work is kept; run the same command to resume"))
        return 1
    text = str(error)
    if isinstance(error, MemoryError) or "out of memory" in text.lower() or "can't allocate memory" in text:
        advice = "Use a smaller batch size, image size or network, and run the same command again"
        print_error(ChestfedError(f"not enough memory. {advice}. Finished work is kept"))
        return 1
    from chestfed.core.plugins import find_fault, modules_in_use

    if fault := find_fault(error):
        print_error(
            ChestfedError(f"{fault}\nThe functions of chestfed.testing check your own parts. Finished work is kept")
        )
        return 1
    about = f"chestfed {__version__}, Python {platform.python_version()}, {platform.system()}"
    traceback.print_exception(error)
    report = (
        "report it with the lines above and the command, see CONTRIBUTING.md and SECURITY.md; remove names of folders "
        "and patients first. Finished work is kept."
    )
    text = f"a bug in chestfed ({about}). Please {report}"
    if own := ", ".join(modules_in_use()):
        text = (
            f"a bug in {own}, or in chestfed ({about}). Check your own parts first: check_algorithm, check_objective, "
            f"check_model, check_site in chestfed.testing say what is wrong. If they pass, please {report}"
        )
    print_error(ChestfedError(text))
    return 70


def _print_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning of ours as one line; those of libraries as Python prints them."""
    ours = issubclass(category, ChestfedWarning)
    text = f"warning: {message}" if ours else warnings.formatwarning(message, category, filename, lineno, line).rstrip()
    say(open_console(stderr=True), text, "yellow" if ours else None)


if __name__ == "__main__":
    main()
