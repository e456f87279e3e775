"""`chestfed federation init`, `server`, `hospital`, `run` and `status`; what they do is imported when one is called."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from chestfed.commands import options
from chestfed.core.bundled import install_command, pipeline_file
from chestfed.core.console import command, open_console, say, show_answer
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.output import output

Folder = Annotated[Path, typer.Argument(help="Folder of the federation.", show_default=False)]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Without TLS, to inspect messages; loopback only. Keys are still needed.")
]


def federation_init(
    folder: Folder,
    hospital: Annotated[
        list[str] | None,
        options.optional(metavar="NAME", help="Name of a hospital: `site` in its YAML. Repeatable."),
    ] = None,
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address at which hospitals reach the server.")
    ] = "localhost:9443",
    name: Annotated[str, typer.Option(help="Name of the federation.")] = "federation",
    samples: Annotated[
        Path | None,
        options.optional(
            metavar="FOLDER", help="For a trial: the five hospitals of `chestfed samples` in this folder."
        ),
    ] = None,
) -> None:
    """Create certificates, keys, and a folder to send to each hospital.

    Example:

        chestfed federation init trial --hospital chexpert --hospital padchest
    """
    _needs_flower()
    from chestfed._version import __version__
    from chestfed.federation.founding import found, sample_sites

    if bool(hospital) == (samples is not None):
        raise typer.BadParameter("name the hospitals, each with --hospital, or give --samples FOLDER")
    hospitals = hospital or list(sample_sites())
    found(folder, name, address, hospitals, __version__, samples)
    console = open_console()
    say(console, f"created {folder}/federation.yaml, the certificates and the server's secrets (private/)")
    for one in hospitals:
        say(console, f"send to {one}: {folder}/hospitals/{one} (contains its secret key; see its README.md)")
    say(console, f"then: {command('federation', 'server', folder)}")


def federation_server(folder: Folder, insecure: Insecure = False) -> None:
    """Run the server that hospitals connect to, until Ctrl-C.

    Example:

        chestfed federation server trial
    """
    _needs_flower()
    from chestfed.federation.flower.superlink import serve
    from chestfed.federation.settings import read_federation, refuse_open_network

    federation = read_federation(folder)
    if insecure:
        refuse_open_network(federation.file.listen)
    names = ", ".join(member.name for member in federation.file.hospitals)
    how = "WITHOUT TLS" if insecure else "over TLS"
    say(
        open_console(), f"{federation.file.federation}: hospitals reach it at {federation.file.address}, {how}: {names}"
    )
    serve(federation, insecure=insecure)


def federation_hospital(
    folder: Annotated[Path, typer.Argument(help="Folder that the server's administrator sent.", show_default=False)],
    check: Annotated[
        bool, typer.Option("--check", help="Check hospital.yaml, keys, site YAML and labels without connecting.")
    ] = False,
    insecure: Insecure = False,
) -> None:
    """Take part with this hospital's images until Ctrl-C. It can be restarted at any time.

    Example:

        chestfed federation hospital trial/hospitals/chexpert --check
    """
    _needs_flower()
    from chestfed.federation.settings import read_hospital, refuse_open_network, split_address
    from chestfed.federation.taking_part import check_hospital, take_part

    hospital = read_hospital(folder)
    if insecure:
        refuse_open_network(split_address(hospital.file.server)[0])
    console = open_console()
    if check:
        check_hospital(hospital, lambda text: say(console, text))
    else:
        take_part(hospital, lambda text: say(console, text), insecure=insecure)


def federation_run(
    pipeline: Annotated[Path, typer.Argument(help="Pipeline YAML; its sites name the hospitals.", show_default=False)],
    federation: Annotated[Path, typer.Option(help="Folder of the federation.", show_default=False)],
    out: options.Out = Path("runs"),
    tracking: options.Tracking = True,
    tracking_uri: options.TrackingUri = None,
    methods: options.Methods = None,
    set_: options.Set = None,
    insecure: Insecure = False,
) -> None:
    """Run a study across the hospitals, on the server's machine. To resume it, run the same command again.

    Example:

        chestfed federation run pipelines/source_addition_samples.yaml --federation trial
    """
    pipeline = pipeline_file(pipeline)
    _needs_flower()
    from chestfed.commands.progress import Bars
    from chestfed.commands.study.run import show_study
    from chestfed.core.disk import check_folder
    from chestfed.experiment.loading import load_pipeline
    from chestfed.federation.flower.line import FlowerLine, server_of
    from chestfed.federation.settings import read_federation
    from chestfed.federation.study import run_over_hospitals
    from chestfed.tracking.recording import MlflowRecord
    from chestfed.tracking.store import local_store
    from chestfed.training.reporting import Reporters

    started, console, members = time.monotonic(), open_console(), read_federation(federation)
    overrides = options.join_overrides(set_, {"selected": options.select_methods(methods)})
    file = load_pipeline(pipeline, overrides)
    if file.is_comparison or file.seeds != 1:
        raise ConfigError("a federation runs one study: name one method with --methods; no windows, and one seed")
    loaded = file.resolve()
    say(console, f"{loaded.title}\n{pipeline} over the hospitals of {members.file.federation}")
    with Bars(console) as bars:
        check_folder(out, "--out")
        record = MlflowRecord(tracking_uri or local_store(out), out / "mlflow-artifacts")
        reporters = Reporters([bars, record] if tracking else [bars], lambda text: say(console, text, "yellow"))
        line = FlowerLine(server_of(members, insecure=insecure))
        study = run_over_hospitals(loaded, pipeline.stem, members, line, out, reporters, partial(say, console))
    show_study(console, study)
    say(console, f"took {time.monotonic() - started:.0f} s")
    show_answer(console, str(output().result["answer"]))


def federation_status(
    folder: Folder,
    wait: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Wait this long for all to be online; exit code 1 if one is not."),
    ] = 0.0,
    insecure: Insecure = False,
) -> None:
    """Show which hospitals are connected.

    Example:

        chestfed federation status trial
    """
    _needs_flower()
    from chestfed.federation.flower.line import server_of
    from chestfed.federation.settings import read_federation

    console, federation = open_console(), read_federation(folder)
    names = [member.name for member in federation.file.hospitals]
    nodes = nodes_of(server_of(federation, insecure=insecure).nodes, names, wait)
    for member in federation.file.hospitals:
        status = nodes.get(member.name, "not known to the running server: restart it")
        say(console, f"{member.name:<20} {status.replace('registered', 'never connected')}")
    if wait and any(nodes.get(name) != "online" for name in names):
        raise typer.Exit(1)


def nodes_of(look: Callable[[], dict[str, str]], names: Sequence[str], seconds: float) -> dict[str, str]:
    """What `look` says of the hospitals once all of these are online, or so many seconds later."""
    ends = time.monotonic() + seconds
    while True:
        try:
            nodes = look()
            if time.monotonic() >= ends or all(nodes.get(name) == "online" for name in names):
                return nodes
        except ChestfedError:  # the server is not there yet
            if time.monotonic() >= ends:
                raise
        time.sleep(1)


def _needs_flower() -> None:
    if importlib.util.find_spec("flwr") is None:
        text = "this environment has no Flower. Install it, and run the chestfed that is installed with it"
        raise ConfigError(f"{text}: {install_command('flower')}")
    os.environ["FLWR_TELEMETRY_ENABLED"], os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "0", "1"
