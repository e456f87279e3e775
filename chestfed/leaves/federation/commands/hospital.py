"""`chestfed federation join`, `rekey`, `hospital` and `audit`: the commands of a hospital."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chestfed.app.commands import options
from chestfed.core.console import open_console, say
from chestfed.core.errors import ConfigError
from chestfed.core.output import add_result
from chestfed.leaves.federation.commands.arguments import HospitalFolder, Insecure, require_flower

if TYPE_CHECKING:
    from rich.console import Console

    from chestfed.leaves.federation.settings import Hospital


def federation_join(
    folder: Annotated[Path, typer.Argument(help="New folder of the hospital.", show_default=False)],
    name: Annotated[str, typer.Option(help="Name of the hospital: `site` in its YAML.", show_default=False)],
    server: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address of the server.", show_default=False)],
    authority: Annotated[
        Path, typer.Option(metavar="FILE", help="The federation's authority.crt.", show_default=False)
    ],
) -> None:
    """Make a hospital's folder and key; the public half goes to the server's administrator.

    Example:

        chestfed federation join anne --name anne --server federation.example:9443 --authority authority.crt
    """
    require_flower()
    from chestfed.leaves.federation.server.founding import join

    public, fingerprint = join(folder, name, server, authority)
    console = open_console()
    say(console, f"created {folder}: its README.md says what to do next; node.key is secret and stays here")
    say(console, f"send to the server's administrator: {public}")
    say(console, f"read out to them, by telephone: {fingerprint}")


def federation_rekey(folder: HospitalFolder) -> None:
    """Replace a hospital's key, because it was copied or is old; the old one is used until the server has the new one.

    Example:

        chestfed federation rekey anne
    """
    require_flower()
    from chestfed.leaves.federation.server.founding import rekey

    public, fingerprint = rekey(folder)
    console = open_console()
    say(console, f"send to the server's administrator, for `federation add --replace`: {public}")
    say(console, f"read out to them, by telephone: {fingerprint}")
    say(console, "until then the hospital connects with the old key; afterwards with the new one, without a restart")


def federation_hospital(
    folder: HospitalFolder,
    check: Annotated[
        bool, typer.Option("--check", help="Check hospital.yaml, keys, site YAML, labels, and the connection.")
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="With --check: do not connect.")] = False,
    pending: Annotated[bool, typer.Option("--pending", help="Describe the studies that wait for an approval.")] = False,
    approve: Annotated[
        str | None, options.optional(metavar="DIGEST", help="Approve a study that waits (policy.approval).")
    ] = None,
    revoke: Annotated[
        str | None, options.optional(metavar="DIGEST", help="Take the approval of a study back, also while it runs.")
    ] = None,
    insecure: Insecure = False,
) -> None:
    """Take part with this hospital's images until Ctrl-C or SIGTERM. It can be restarted at any time.

    Example:

        chestfed federation hospital trial/hospitals/chexpert --check
    """
    require_flower()
    from chestfed.leaves.federation.hospital import policy
    from chestfed.leaves.federation.hospital.obstacles import find_obstacle
    from chestfed.leaves.federation.hospital.taking_part import check_hospital, take_part
    from chestfed.leaves.federation.parcels import shown_in_line
    from chestfed.leaves.federation.settings import read_hospital, refuse_open_network, split_address

    hospital, console = read_hospital(folder), open_console()
    if insecure:
        refuse_open_network(split_address(hospital.file.server)[0])
    if pending:
        _show_pending(console, hospital)
    elif approve is not None:
        waiting = policy.read_pending(hospital)
        if approve in waiting and (obstacle := find_obstacle(approve, waiting[approve], hospital)):
            raise ConfigError(f"not approved, because it cannot begin here: {obstacle}", kind="cannot begin")
        approval = policy.approve(hospital, approve)
        text = (
            f"approved by {approval.by}: {shown_in_line(approval.title)}. The server asks again within a minute; the "
            "running hospital then prints 'agreed on study', and reads labels and images"
        )
        say(console, text)
    elif revoke is not None:
        approval = policy.revoke(hospital, revoke)
        say(console, f"revoked: {shown_in_line(approval.title)}; no further request of it is answered")
    elif check:
        check_hospital(hospital, lambda text: say(console, text), insecure=insecure, connect=not offline)
    else:
        take_part(hospital, lambda text: say(console, text), insecure=insecure)


def _show_pending(console: Console, hospital: Hospital) -> None:
    """Print the studies that wait, whether each could begin here, and those that were approved."""
    from chestfed.leaves.federation.description import describe
    from chestfed.leaves.federation.hospital import policy
    from chestfed.leaves.federation.hospital.obstacles import find_obstacle
    from chestfed.leaves.federation.parcels import shown_in_line

    state = hospital.path("state")
    waiting = policy.read_pending(hospital)
    for digest, pipeline in waiting.items():
        say(console, f"study {digest}")
        for line in describe(pipeline, hospital.file.hospital, hospital.results):
            say(console, f"  {line}")
        say(console, f"  whole pipeline: {state / 'pending' / f'{digest}.yaml'}")
        if obstacle := find_obstacle(digest, pipeline, hospital):
            say(console, f"  CANNOT BEGIN HERE: {obstacle}", "red")
    if not waiting:
        say(console, "no study waits for an approval")
    for digest, entry in policy.read_approvals(state).items():
        ended = f"; revoked {entry.revoked}" if entry.revoked else ""
        say(console, f"study {digest}: {shown_in_line(entry.title)}: approved {entry.time} by {entry.by}{ended}")


def federation_audit(
    folder: HospitalFolder,
    fields: Annotated[bool, typer.Option("--fields", help="Also list what left, by request and name.")] = False,
    head: Annotated[
        str | None, options.optional(metavar="N:HASH", help="A line that the server has seen (its federation.jsonl).")
    ] = None,
) -> None:
    """Summarize what was asked of this hospital, what left, and what was refused, from its log; check its lines.

    The exit code is 1 if lines were removed or altered, or are not as --head says. Lines that a greeting names
    otherwise are shown as claims, because any server can invent them.

    Example:

        chestfed federation audit anne
    """
    from chestfed.leaves.federation.hospital.audit import audit
    from chestfed.leaves.federation.parcels import shown_in_line
    from chestfed.leaves.federation.settings import read_hospital

    number, _, chain = (head or "").partition(":")
    if head and not number.isdecimal():
        raise ConfigError(f"--head {head}: expected number and hash of a line, as in federation.jsonl", kind="head")
    found = audit(read_hospital(folder).path("state"), [(int(number), chain)] if head else [])
    console = open_console()
    compared = (
        "compared with --head"
        if head
        else ("compared with no line that the server has seen (--head): a log rewritten as a whole is not noticed")
    )
    about = {"problems": found.problems, "claims": found.claims, "head": found.head, "missed": dict(found.missed)}
    add_result(studies=[study.plain() for study in found.studies], **about)
    for study in found.studies:
        for line in study.lines(fields=fields):
            say(console, line)
    for kind, count in found.missed.items():
        say(console, f"without a line of their own: {count:,} requests {shown_in_line(kind)}")
    for problem in found.problems:
        say(console, problem, "red")
    for claim in found.claims:
        say(console, f"{shown_in_line(claim)}, or the server invents it: compare its federation.jsonl", "yellow")
    say(console, f"{found.lines:,} lines, {'NOT one chain' if found.problems else 'one chain'}; {compared}")
    say(console, f"last line {found.lines}:{shown_in_line(found.head)}")
    if found.problems:
        raise typer.Exit(1)
