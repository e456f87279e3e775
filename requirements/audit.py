"""Compare the locked versions with a copy of an advisory database, where `pip-audit` has no internet to ask.

    python requirements/audit.py all.zip                          OSV's export of the PyPI ecosystem
    python requirements/audit.py advisory-database/vulns          a copy of PyPA's advisory database

Prints every advisory that names a locked version, and what was not looked at; ends with 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

HERE = Path(__file__).resolve().parent
NOT_LOOKED_AT = """Not looked at: advisories that are not in this copy; libraries in C and C++ inside of the packages'
files (SECURITY.md names those of decoders), unless an advisory names the package; Python itself."""
Advisory = dict[str, Any]
_READERS = {".json": json.loads, ".yaml": yaml.safe_load}


def main(arguments: list[str] | None = None) -> int:
    """Print what is found; 1 if something is, 2 if the copy holds nothing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("advisories", type=Path, help="zip file or folder of advisories in OSV's format, JSON or YAML")
    parser.add_argument("--lock", type=Path, default=HERE / "constraints.txt")
    given = parser.parse_args(arguments)
    locked = [
        Requirement(line) for line in given.lock.read_text("utf-8").splitlines() if line.strip()[:1] not in ("", "#")
    ]
    versions = sorted({(normal(one.name), next(iter(one.specifier)).version) for one in locked})
    by_name: dict[str, list[Advisory]] = {}
    count, newest = 0, ""
    for advisory in advisories(given.advisories):
        count, newest = count + 1, max(newest, str(advisory.get("modified", ""))[:10])
        for name in {normal(part["package"]["name"]) for part in _of_pypi(advisory)}:
            by_name.setdefault(name, []).append(advisory)
    if not count:
        print(f"{given.advisories}: no advisories there", file=sys.stderr)
        return 2
    found = [
        (name, version, one)
        for name, version in versions
        for one in by_name.get(name, [])
        if concerns(one, name, version)
    ]
    for name, version, one in found:
        others = ", ".join(one.get("aliases", []))
        print(f"{name} {version}: {one['id']}{f' ({others})' if others else ''} {str(one.get('summary', '')).strip()}")
    known = len({name for name, _ in versions} & set(by_name))
    print(f"{len(versions)} locked versions, {known} packages with advisories: {len(found)} found.")
    print(f"{count:,} advisories, the newest of {newest}: what was published since then is not known.\n{NOT_LOOKED_AT}")
    return 1 if found else 0


def advisories(place: Path) -> Iterator[Advisory]:
    """All advisories of a zip file or folder that are not withdrawn."""
    texts: Iterator[tuple[str, Callable[[], str | bytes]]]
    if place.is_dir():
        texts = ((path.suffix, path.read_text) for path in sorted(place.rglob("*.*")))
    else:
        archive = zipfile.ZipFile(place)
        texts = ((Path(name).suffix, partial(archive.read, name)) for name in sorted(archive.namelist()))
    for ending, text in texts:
        if ending in _READERS and not (advisory := _READERS[ending](text())).get("withdrawn"):
            yield advisory


def concerns(advisory: Advisory, name: str, version: str) -> bool:
    """Whether an advisory names this version of a package: one by one, or by a range (OSV schema, "Evaluation")."""
    return any(
        normal(part["package"]["name"]) == name
        and (version in part.get("versions", []) or any(_within(one, version) for one in part.get("ranges", [])))
        for part in _of_pypi(advisory)
    )


def _within(versions: dict[str, Any], version: str) -> bool:
    """Whether the last event up to this version is that the problem was introduced."""
    if versions["type"] != "ECOSYSTEM":  # commits say nothing of a version
        return False
    ours, affected = Version(version), False
    for kind, at in sorted(
        ((kind, value) for event in versions["events"] for kind, value in event.items()), key=lambda one: _order(one[1])
    ):
        if kind == "introduced" and ours >= _order(at):
            affected = True
        if (kind == "fixed" and ours >= _order(at)) or (kind == "last_affected" and ours > _order(at)):
            affected = False
    return affected


def _order(version: str) -> Version:
    try:
        return Version(version)
    except InvalidVersion:  # of long ago
        return Version("0")


def _of_pypi(advisory: Advisory) -> list[dict[str, Any]]:
    return [part for part in advisory.get("affected", []) if part.get("package", {}).get("ecosystem") == "PyPI"]


def normal(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    raise SystemExit(main())
