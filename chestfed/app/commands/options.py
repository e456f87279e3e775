"""Options that several commands share, each declared once, and the form of error messages."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from chestfed.app.commands.algorithms import known_algorithms
from chestfed.app.commands.shell import RARE
from chestfed.core.bundled import advise_run, list_pipelines, list_runs, list_sites, recognize, run_path, site_file
from chestfed.core.console import open_console, say
from chestfed.core.errors import ConfigError
from chestfed.data.images.place import AUTO as AUTO
from chestfed.results.evaluation.intervals import MethodName

if TYPE_CHECKING:
    from chestfed.data.sites import SiteConfig


def site_files(given: Path | list[Path] | None) -> Path | list[Path] | None:
    """Callback of parameters that name YAMLs of sites, which may be bundled ones."""
    return [site_file(path) for path in given] if isinstance(given, list) else given and site_file(given)


def run_paths(given: Path | list[Path] | None) -> Path | list[Path] | None:
    """Callback of parameters that name run folders, which may be names of runs in ./runs."""
    return [run_path(path) for path in given] if isinstance(given, list) else given and run_path(given)


def run_name(given: str) -> str:
    """Callback of a parameter that names a run, in ./runs or by its folder, or something else."""
    return str(run_path(given)) if given and not re.match(r"\w\w+:/", given) else given


def refuse_no_model(given: str) -> None:
    """Refuse what is not a run, a file or folder of a model or a URI, before PyTorch is loaded and a site is opened."""
    path = Path(given)
    what, command = recognize(path)
    if what == "a comparison":
        from chestfed.results.tables.run_folder import RunFolder

        RunFolder.open(path)  # refuses it, with the names of its runs
    if what and not what.endswith(("run", "model")):
        text = f"{given}: {what}, where a run or a model file is expected. It is for `{command}`"
        raise ConfigError(text, kind="not a model", suggestion=command)
    if not path.exists() and not re.match(r"\w\w+:/", given):
        advice, close = advise_run(path)
        text = f"{given}: no such file, folder or run. MODEL is a run, a model file or an MLflow URI. {advice}"
        raise ConfigError(text.rstrip(), kind="no such name", suggestion=close)


def known_sites() -> list[str]:
    """Names of sites, for tab completion."""
    return list(list_sites())


def known_pipelines() -> list[str]:
    """Names of pipelines, for tab completion."""
    return list(list_pipelines())


def known_runs() -> list[str]:
    """Names of runs in ./runs, for tab completion."""
    return list(list_runs(Path("runs")))


def optional(*names: str, **about: Any) -> object:
    """An option whose default is None, or stands in its help; `about` as in `typer.Option`."""
    return typer.Option(*names, show_default=False, **about)


Config = Annotated[
    Path,
    typer.Argument(
        callback=site_files,
        autocompletion=known_sites,
        help="YAML of the site, or its name, such as chexpert.",
        show_default=False,
    ),
]
Data = Annotated[Path | None, optional(envvar="CHESTFED_DATA", help="Folder that contains the sites' folders.")]
Cache = Annotated[
    Path,
    typer.Option(
        rich_help_panel=RARE,
        help="Folder for decoded images. auto: ./cache if it has the site, else beside the data. "
        "$CHESTFED_CACHE_COPY: a local folder of each machine, from whose copies it is read.",
    ),
]
Workers = Annotated[
    int | None, optional(min=1, rich_help_panel=RARE, help="Processes that decode images. Default: one per core.")
]
Against = Annotated[
    list[Path] | None,
    optional(callback=site_files, metavar="OTHER.yaml", help="Compare with another site. Repeatable."),
]
SkipUnreadable = Annotated[
    bool, typer.Option("--skip-unreadable", rich_help_panel=RARE, help="Skip and count unreadable images.")
]
#: Of a command that scores images: a site that was trained with some left out is scored without them.
SkipUnscorable = Annotated[bool, typer.Option("--skip-unreadable", help="Skip and count unreadable images.")]
AllowTrained = Annotated[
    bool,
    typer.Option(
        "--allow-trained",
        rich_help_panel=RARE,
        help="Score patients too that the model was trained on; the result says how many.",
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print all tables.")]
K = Annotated[int | None, optional(min=1, help="Which K of a study. Default: the largest.")]
Resamples = Annotated[
    int, typer.Option(min=0, rich_help_panel=RARE, help="Bootstrap resamples for the intervals; 0: no intervals.")
]
Thresholds = Annotated[
    list[str] | None,
    optional(
        "--threshold",
        metavar="P|DISEASE=P",
        help="Probability from which an image is called positive, for all diseases or for one: adds the confusion "
        "matrix, its shares, and the decision curve (net benefit). Repeatable.",
    ),
]
Interval = Annotated[
    MethodName | None,
    optional(
        rich_help_panel=RARE,
        help="Method of intervals and of p values of differences. Default: obuchowski, or that of the study.",
    ),
]
Pipeline = Annotated[
    Path,
    typer.Argument(
        autocompletion=known_pipelines, help="YAML of a pipeline, or the name of a bundled one.", show_default=False
    ),
]
PipelineData = Annotated[
    Path | None,
    optional(help="Folder that contains the sites' folders. Default: data_root, else $CHESTFED_DATA."),
]
Out = Annotated[Path, typer.Option(help="Folder for runs, tables and the MLflow store.")]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Show what would run (images, steps, bytes, time), and what is finished; write nothing."
    ),
]
Tracking = Annotated[bool, typer.Option(rich_help_panel=RARE, help="Record the study in MLflow.")]
#: Options that change the experiment.
key_option = partial(optional, rich_help_panel="Change the experiment")
Methods = Annotated[
    str | None,
    key_option(
        metavar="A,B",
        autocompletion=known_algorithms,
        help="Methods of the pipeline, by name, or algorithms with its common settings (`chestfed algorithms` lists "
        "them). One is a study with every K; several are compared on the same data, weights and number of steps, at "
        "the largest K. Same as --set selected=[A,B].",
    ),
]
Set = Annotated[
    list[str] | None,
    key_option(
        "--set",
        metavar="KEY=VALUE",
        help="Set any key of the pipeline, in any order. federated.window=8 holds for all methods, "
        "methods.codasca.window=8 for one. --help-all lists the keys. Repeatable.",
    ),
]
Records = Annotated[
    list[str] | None,
    optional(
        "--record",
        metavar="NAME",
        rich_help_panel=RARE,
        help="Also record the study with tensorboard or wandb (Weights & Biases, offline unless WANDB_MODE says "
        "otherwise), or a package's own. Repeatable.",
    ),
]
TrackingUri = Annotated[
    str | None,
    optional(
        metavar="URI", rich_help_panel=RARE, help="MLflow tracking URI. Default: a SQLite store in the runs folder."
    ),
]
#: Keys whose option has another name.
_OPTIONS: Final = {"selected": "methods"}


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import without looking for garbage: all of it stays, and looking takes a tenth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def join_overrides(assignments: Sequence[str] | None, options: Mapping[str, object]) -> list[str]:
    """The assignments of --set, and those that options of their own stand for."""
    given = {key: value for key, value in options.items() if value is not None}
    twice = [key for text in assignments or () if (key := text.partition("=")[0]) in given]
    typed = {key: f"--{_OPTIONS.get(key, key.rpartition('.')[2])}" for key in given}
    if twice:
        raise typer.BadParameter(f"--set {twice[0]} and {typed[twice[0]]} are the same key: use only one of them")
    from chestfed.core.config import OptionAssignment  # YAML and pydantic: --help does without

    return [*(assignments or ()), *(OptionAssignment(f"{key}={value}", typed[key]) for key, value in given.items())]


def select_methods(text: str | None) -> str | None:
    """The value of `selected` for `--methods a,b`; None without the option."""
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    if text is not None and not names:
        raise typer.BadParameter(f"--methods '{text}': give names, such as codasca,fedavg")
    return json.dumps(names) if names else None


def data_root(data: Path | None, sites: Sequence[SiteConfig], otherwise: str = "") -> Path:
    """The folder that contains the sites' folders, which may be left out where every YAML gives an absolute root."""
    if data is None and not all(site.has_place for site in sites):
        names = ", ".join(site.site for site in sites if not site.has_place)
        raise ConfigError(f"where are the files of {names}? Set --data DIR or $CHESTFED_DATA{otherwise}")
    return data if data is not None else Path()


def print_error(error: Exception) -> None:
    """Print an error that the user can fix: its message on stderr, without a traceback."""
    from chestfed.learning.engines.declaration import leave_reason, rank

    leave_reason(str(error))
    who = f"rank {rank()}: " if rank() else ""
    say(open_console(stderr=True), f"{who}error: {error}", "red")
