"""Features of all commands: --quiet, --json, rare options that --help-all shows, and help for mistyped names."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from chestfed.core.bundled import advise_name
from chestfed.core.console import open_console, say, show_answer
from chestfed.core.errors import ChestfedError, nearest
from chestfed.core.output import begin_output, encode, output
from chestfed.core.processes.stopping import Stopped

#: The panel of options that --help leaves out.
RARE: Final = "Rare options"
_ALL: Final = "chestfed.help_all"
_OUTPUT_OPTIONS: Final = {"--json", "--quiet", "-q"}


#: Words of other programs for our commands.
_OTHER_WORDS: Final = {
    **dict.fromkeys(("train", "run", "fit", "start"), "study"),
    **dict.fromkeys(("list", "ls", "studies", "results"), "runs"),
    **dict.fromkeys(("test", "eval", "predict", "score"), "evaluate"),
    **dict.fromkeys(("html", "page", "show"), "report"),
    **dict.fromkeys(("diff", "significance"), "compare"),
    **dict.fromkeys(("data", "download"), "datasets"),
    **dict.fromkeys(("mlflow", "dashboard"), "ui"),
    **dict.fromkeys(("check", "validate"), "site check"),
    **dict.fromkeys(("methods", "models"), "algorithms"),
    **dict.fromkeys(("sweep", "search", "optuna"), "tune"),
}


class Command(TyperCommand):
    """A command whose rare options and keys are shown by --help-all only, and that knows keys from options."""

    @property
    def key_kind(self) -> str:
        """The kind of file whose keys `--set` takes; empty: none."""
        names = {parameter.name for parameter in self.params}
        return next((kind for kind in ("pipeline", "site") if {kind, "set_"} <= names), "")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if self.key_kind and hasattr(error, "possibilities"):  # there is no such option
                from chestfed.app.commands.keys import advise

                if advice := advise(self.key_kind, error.option_name, words):  # type: ignore[attr-defined]
                    error.message = f"{error.message.rstrip('.')}. {advice}."  # type: ignore[attr-defined]
                    error.possibilities = None
            _explain(error)
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [re.sub(r"^\{(.*)\}(\.*)$", r"\1\2", piece).upper() for piece in super().collect_usage_pieces(ctx)]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _fold_help()
        _clear_flags(self.get_params(ctx))
        rare = (
            [] if ctx.meta.get(_ALL) else [item for item in self.params if getattr(item, "rich_help_panel", "") == RARE]
        )
        for parameter in rare:
            parameter.hidden = True  # type: ignore[attr-defined]
        try:
            super().format_help(ctx, formatter)
        finally:
            for parameter in rare:
                parameter.hidden = False  # type: ignore[attr-defined]
        if self.key_kind and ctx.meta.get(_ALL):
            from chestfed.app.commands.keys import render_keys

            open_console().print(render_keys(self.key_kind))


def _explain(error: Exception) -> None:
    """Add to a usage error what was probably meant; the words of libraries go."""
    message = str(getattr(error, "message", ""))
    if "is not one of" in message:
        message = message.replace("Value error, ", "")
        given, *choices = re.findall(r"'([^']*)'", message)
        close = nearest(given, choices)
        error.message = f"{message} Did you mean '{close}'?" if close else message  # type: ignore[attr-defined]
    elif message.startswith("Input should"):
        error.message = f"it {message.removeprefix('Input ')}"  # type: ignore[attr-defined]
    elif getattr(getattr(error, "param", None), "name", "") in ("run", "runs") and not message:
        error.message = "`chestfed runs` lists the finished studies."  # type: ignore[attr-defined]


def _fold_help() -> None:
    """Break long words of help in a narrow terminal; Typer's table cuts keys and names of options."""
    from rich.columns import Columns
    from rich.console import Group
    from rich.table import Table
    from typer import rich_utils

    def stack(cell: Any) -> Any:
        return Group(*cell.renderables) if isinstance(cell, Columns) else cell  # columns in a cell cut, too

    class Folded(Table):
        def add_row(self, *cells: Any, **about: Any) -> None:
            super().add_row(*map(stack, cells), **about)
            for column in self.columns:
                column.overflow = "fold"

    rich_utils.Table = Folded  # type: ignore[misc]


def _clear_flags(parameters: Sequence[Any]) -> None:
    """Show no type behind a flag, which takes no value; Typer shows <bool>."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""


class Commands(TyperGroup):
    """A group of commands that prints its help when called without one, and says how to go on after Ctrl-C."""

    #: The word that a call without words stands for.
    default = "--help"

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        return super().parse_args(ctx, args or ([] if ctx.resilient_parsing else [self.default]))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _clear_flags(self.get_params(ctx))
        super().format_help(ctx, formatter)

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            say(open_console(stderr=True), "interrupted. Finished work is kept; run the same command again to resume")
            raise typer.Exit(stop.exit_code if isinstance(stop, Stopped) else 130) from None

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            message = str(getattr(error, "message", ""))
            if message and "Did you mean" not in message:
                words = f"{ctx.info_name} has: {', '.join(self.list_commands(ctx))}."
                error.message = f"{message} {words}"  # type: ignore[attr-defined]
            raise


class Lists(Commands):
    """A group that lists what there is when called without a command."""

    default = "list"

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        return super().parse_args(ctx, [self.default, *args] if args and set(args) <= _OUTPUT_OPTIONS else args)


class Root(Commands):
    """The commands that most people need; --help-all lists the others too."""

    #: In this order.
    first: Sequence[str] = ("study", "report", "evaluate", "compare", "site", "datasets", "algorithms", "runs")

    #: Earlier name of a command -> its name now. The earlier one works for one release.
    renamed: Mapping[str, str] = MappingProxyType({"films": "datasets"})

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        now = self.renamed.get(cmd_name)
        if now is None:
            return super().get_command(ctx, cmd_name)
        if not ctx.resilient_parsing:
            say(open_console(stderr=True), f"`chestfed {cmd_name}` is `chestfed {now}` now; the old name will go")
        return super().get_command(ctx, now)

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        begin_output()
        return super().parse_args(ctx, args)

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        try:
            result = super().invoke(ctx)
        except typer.Exit as ended:
            _end_output(ctx, ended.exit_code)
            raise
        except ChestfedError as error:
            _end_output(ctx, 1, str(error))
            raise
        _end_output(ctx, 0)
        return result

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        try:
            return TyperGroup.resolve_command(self, ctx, args)
        except Exception as error:
            word, (message, offer, _) = args[0], str(getattr(error, "message", "")).partition(" Did you mean")
            groups = [name for name, group in self.commands.items() if word in getattr(group, "commands", ())]
            meant = _OTHER_WORDS.get(word.casefold()) or "' or '".join(f"{name} {word}" for name in groups)
            if message and meant:
                error.message = f"{message} Did you mean '{meant}'?"  # type: ignore[attr-defined]
            elif message and not offer:
                advice = advise_name(word)[0] or "`chestfed --help-all` lists the commands."
                error.message = f"{message} {advice}"  # type: ignore[attr-defined]
            raise

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        names = super().list_commands(ctx)
        return [*self.first, *(name for name in names if name not in self.first)]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        rest = [name for name in self.commands if name not in self.first]
        if not ctx.meta.get(_ALL):
            for name in rest:
                self.commands[name].hidden = True
            self.epilog = f"More commands, listed by `chestfed --help-all`: {', '.join(rest)}."
        try:
            super().format_help(ctx, formatter)
        finally:
            self.epilog = None
            for name in rest:
                self.commands[name].hidden = False


def _end_output(ctx: typer.Context, code: int, error: str = "") -> None:
    """Print what --json collected, or the line of a command that has not named its answer."""
    if output().mode == "json":
        print(encode(ctx.invoked_subcommand or "", code, error))
    elif output().mode == "quiet" and not output().answered and not error and output().last_line:
        show_answer(open_console(), output().last_line)


def show_all_help(ctx: typer.Context, value: bool) -> None:
    """Callback of --help-all."""
    if value:
        ctx.meta[_ALL] = True
        text = ctx.get_help()
        if text:
            print(text)
        raise typer.Exit


def _set_quiet(value: bool) -> None:
    if value:
        begin_output("quiet")


def _set_json(value: bool) -> None:
    if value:
        begin_output("json")


_SHARED: Final = {
    "quiet": typer.Option(
        "--quiet",
        "-q",
        callback=_set_quiet,
        is_eager=True,
        help="Print only the answer, in one line, and warnings and errors.",
    ),
    "json_": typer.Option("--json", callback=_set_json, is_eager=True, help="Print one JSON object."),
    "help_all": typer.Option(
        "--help-all",
        callback=show_all_help,
        is_eager=True,
        help="Show rare options and all keys too, and exit.",
    ),
}


def with_output(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options that all have, unless it declares them itself."""
    signature = inspect.signature(command, eval_str=True)
    accepted = set(signature.parameters)
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, option])
        for name, option in _SHARED.items()
        if name not in accepted
    ]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        command(**{name: value for name, value in values.items() if name in accepted})

    parameters = [*signature.parameters.values(), *shared]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
