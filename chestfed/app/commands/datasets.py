"""`chestfed datasets`: open releases of chest radiographs, and how they come onto this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from chestfed.app.commands import options
from chestfed.core.console import command, open_console, say, show_answer, text_table
from chestfed.core.disk import size_text
from chestfed.core.errors import ConfigError

_CHECKS = {
    "verified": "its digest was compared with the release's files",
    "digest": "its digest is published, and was not compared with the release's files here",
    "no digest": "a file has no published digest: --trust-first-download is needed",
    "by hand": "it has to be brought by hand",
}

#: Field of a release -> its name for a person, where that is another.
_TITLES = {"films": "images", "license_source": "license source"}

Name = Annotated[str, typer.Argument(help="Name of a release, as `chestfed datasets` lists them.", show_default=False)]


def known_releases() -> list[str]:
    """Names of the open data sets."""
    from chestfed.data.films.registry import releases

    return list(releases())


def datasets_list() -> None:
    """List the open data sets of chest radiographs that need no registration.

    Example:

        chestfed datasets
    """
    from chestfed.data.films.registry import releases

    console, rows = open_console(), []
    for name, release in releases().items():
        first, *others = release.findings
        findings = f"{first} and {len(others)} more" if len(others) > 1 else ", ".join(release.findings)
        size = size_text(release.size) if release.files else "-"
        rows.append((name, release.country, findings, release.check, f"{release.films:,}", size))
    heads = ("name", "country", "findings", "check")
    console.print(text_table("", heads, ("images", "download"), rows, light=True))
    for check in dict.fromkeys(release.check for release in releases().values()):
        say(console, f"{check}: {_CHECKS[check]}")
    show, get = command("datasets", "show"), command("datasets", "get")
    say(console, f"hospital, license, citation: {show} NAME; download: {get} NAME --data DIR")
    numbers = {name: {"images": release.films, "bytes": release.size} for name, release in releases().items()}
    show_answer(console, f"{len(numbers)} releases: {', '.join(numbers)}", releases=numbers)


def datasets_show(name: Name) -> None:
    """Show a release: its images, labels and patients, its license and where that is written, its files and digests.

    Example:

        chestfed datasets show hannover
    """
    from chestfed.data.films.registry import find_release

    release, console = find_release(name), open_console()
    for key in ("title", "hospital", "country", "films", "patients", "findings", "labels", "license", "license_source"):
        value = getattr(release, key)
        say(console, f"{_TITLES.get(key, key)}: {', '.join(value) if isinstance(value, list) else value}")
    for key in ("citation", "home", "note"):
        if value := getattr(release, key):
            say(console, f"{key}: {value}")
    say(console, f"site: site_configs/{release.site}")
    say(console, f"check: {release.check}: {_CHECKS[release.check]}")
    for file in release.files:
        digests = [file.digest] if file.digest else [f"git {path} {digest}" for path, digest in file.git.items()]
        part = "" if file.part is None else f", part {file.part}"
        say(console, f"  {file.name} ({size_text(file.size)}{part}): {file.url}")
        say(console, f"    {'; '.join(digests) or 'no digest is known'}")
    text = f"{release.title}: {release.films:,} images, {size_text(release.size) if release.files else 'by hand'}"
    show_answer(console, text, images=release.films, bytes=release.size, license=release.license)


def datasets_get(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Names of releases.", show_default=False)],
    data: options.Data = None,
    part: Annotated[int | None, options.optional(min=1, help="Only this part of a release that has parts.")] = None,
    trust_first_download: Annotated[
        bool,
        typer.Option(
            "--trust-first-download",
            help="Accept files without a published digest; the digest of the first download is recorded beside them.",
        ),
    ] = False,
) -> None:
    """Download releases, check their digests, and unpack them into the folders that their sites' YAMLs expect.

    A download that was interrupted continues where it stopped when the command is run again.

    Example:

        chestfed datasets get hannover --data radiographs
    """
    from chestfed.app.commands.progress import StepBars
    from chestfed.data.films.fetch import fetch_release
    from chestfed.data.films.registry import find_release

    if data is None:
        raise ConfigError("where should the images be? Give a folder with --data DIR, or set CHESTFED_DATA")
    console, counts = open_console(), dict[str, int]()
    for release in [find_release(name) for name in names]:
        with StepBars(console) as bars:

            def show(what: str, done: int, total: int, bars: StepBars = bars) -> None:
                bars.show(what, done >> 20, max(total >> 20, 1), unit="MB")

            fetched = fetch_release(release, data, part=part, trust=trust_first_download, progress=show)
        place, counts[release.folder] = data / release.folder, fetched
        say(
            console,
            f"{release.title}: {f'{fetched} files downloaded to' if fetched else 'already complete in'} {place}",
        )
        say(console, f"license: {release.license}")
        say(console, f"cite: {release.citation}")
        say(console, f"next: {command('site', 'check', f'site_configs/{release.site}', '--data', data)}")
    show_answer(console, f"{sum(counts.values())} files downloaded to {data}", downloaded=counts)
