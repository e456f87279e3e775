"""`chestfed federation init`, `add`, `remove`, `renew`, `server`, `status` and `stop`: the server's commands."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chestfed.app.commands import options
from chestfed.core.console import command, open_console, say
from chestfed.core.errors import ChestfedError
from chestfed.core.output import add_result
from chestfed.leaves.federation.commands.arguments import Folder, Insecure, require_flower

if TYPE_CHECKING:
    from chestfed.leaves.federation.server.progress import Running

Name = Annotated[str, typer.Argument(help="Name of the hospital.", show_default=False)]


def federation_init(
    folder: Folder,
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address at which hospitals reach the server.")
    ] = "localhost:9443",
    name: Annotated[str, typer.Option(help="Name of the federation.")] = "federation",
    samples: Annotated[
        Path | None,
        options.optional(
            metavar="FOLDER", help="For a trial: the five hospitals of `chestfed samples` in this folder join at once."
        ),
    ] = None,
) -> None:
    """Create a federation: its certificates and the server's secrets. Hospitals join by keys of their own.

    Example:

        chestfed federation init chest --address federation.example:9443
    """
    require_flower()
    from chestfed.leaves.federation.server.founding import create, sample_sites

    create(folder, name, address, samples)
    console = open_console()
    say(console, f"created {folder}/federation.yaml, the certificates and the server's secrets (private/)")
    if samples is None:
        say(console, f"send to each hospital: {folder}/authority.crt (not secret) and the address {address}")
        say(console, f"with its key: {command('federation', 'add', folder)} NAME --key NAME.pub")
    for hospital in sample_sites() if samples is not None else ():
        say(console, f"sample hospital: {folder}/hospitals/{hospital}")
    say(console, f"then: {command('federation', 'server', folder)}")


def federation_add(
    folder: Folder,
    name: Name,
    key: Annotated[Path, typer.Option(metavar="FILE", help="The hospital's public key, NAME.pub.", show_default=False)],
    replace: Annotated[bool, typer.Option("--replace", help="Replace the key that the hospital had.")] = False,
) -> None:
    """Admit a hospital, or give one a new key. A running server follows within seconds.

    Example:

        chestfed federation add chest anne --key anne.pub
    """
    require_flower()
    from chestfed.leaves.federation.server.founding import add

    replaced, fingerprint = add(folder, name, key, replace=replace)
    console = open_console()
    say(console, f"{name}: {'the key is replaced' if replaced else 'may take part'}")
    say(console, f"compare with what {name} reads out, by telephone: {fingerprint}")


def federation_remove(folder: Folder, name: Name) -> None:
    """Exclude a hospital. A running server follows within seconds; a study continues by `run --without NAME`.

    Example:

        chestfed federation remove chest anne
    """
    from chestfed.leaves.federation.server.founding import remove

    remove(folder, name)
    say(open_console(), f"{name}: removed; continue its study by {command('federation', 'run')} ... --without {name}")


def federation_renew(folder: Folder) -> None:
    """Make a new server certificate with private/authority.key. Hospitals need nothing; a study waits for the restart.

    Example:

        chestfed federation renew chest
    """
    require_flower()
    from chestfed.leaves.federation.server.founding import renew

    days = renew(folder)
    say(
        open_console(),
        f"the new certificate is valid for {days} days; restart {command('federation', 'server', folder)}",
    )


def federation_server(folder: Folder, insecure: Insecure = False) -> None:
    """Run the server that hospitals connect to, until Ctrl-C.

    Example:

        chestfed federation server trial
    """
    require_flower()
    from chestfed.leaves.federation.flower.superlink import serve
    from chestfed.leaves.federation.settings import read_federation, refuse_open_network

    federation = read_federation(folder)
    if insecure:
        refuse_open_network(federation.file.listen)
    names, how = ", ".join(federation.members) or "no hospital yet", "WITHOUT TLS" if insecure else "over TLS"
    text = f"{federation.file.federation}: hospitals reach it at {federation.file.address}, {how}: {names}"
    say(open_console(), text)
    serve(federation, insecure=insecure)


def federation_status(
    folder: Folder,
    wait: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Wait this long for all to be online; exit code 1 if one is not."),
    ] = 0.0,
    insecure: Insecure = False,
) -> None:
    """Show hospitals, the running study and whom it waits for, and the days that certificates are valid.

    Example:

        chestfed federation status trial --json
    """
    require_flower()
    from chestfed.leaves.federation.flower.line import locate_server
    from chestfed.leaves.federation.keys import days_left
    from chestfed.leaves.federation.server.progress import read_progress
    from chestfed.leaves.federation.settings import read_federation

    federation = read_federation(folder)
    nodes = wait_for_nodes(locate_server(federation, insecure=insecure).nodes, federation.members, wait)
    status = {name: nodes.get(name, "starting").replace("registered", "never connected") for name in federation.members}
    days = {name: days_left(federation.folder / name) for name in ("server.crt", "authority.crt")}
    progress = read_progress(federation.folder)
    add_result(hospitals=status, study=progress and progress.model_dump(), days_of_certificates=days)
    console = open_console()
    for name, state in status.items():
        say(console, f"{name:<20} {state}")
    for line in describe_progress(progress):
        say(console, line)
    for name, left in days.items():
        text = "" if left > 60 else f": {command('federation', 'renew', folder)}"
        say(console, f"{name} is valid for {left} more days{text}", "yellow" if text else None)
    if wait and any(state != "online" for state in status.values()):
        raise typer.Exit(1)


def describe_progress(progress: Running | None) -> list[str]:
    """The running study in words."""
    if progress is None:
        return ["no study is running"]
    where = "beginning"
    if progress.k:
        where = f"K={progress.k}, {progress.round} of {progress.rounds} rounds"
    elif progress.stage_1:
        where = f"stage 1, {progress.stage_1[0]} of {progress.stage_1[1]} steps"
    lines = [f"study {progress.title}: {where}, since {progress.since}"]
    return lines + [
        f"  waits for {name}: {event}, since {since}" for name, (event, since) in progress.waits_for.items()
    ]


def federation_stop(folder: Folder) -> None:
    """Stop the running study of this federation where it can be resumed; the server keeps running.

    Example:

        chestfed federation stop chest
    """
    from chestfed.leaves.federation.server.progress import stop_study
    from chestfed.leaves.federation.settings import read_federation

    title = stop_study(read_federation(folder).folder)
    say(open_console(), f"{title}: asked to stop; the same command resumes it")


def wait_for_nodes(look: Callable[[], dict[str, str]], names: Sequence[str], seconds: float) -> dict[str, str]:
    """Wait until these hospitals are online, or so many seconds, and return what `look` says of them."""
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
