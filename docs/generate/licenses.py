"""The page of licenses: every locked package, from the metadata of the installed ones.

    python -m docs.generate.licenses [REPORT.json ...]

writes `requirements/licenses.md`. A package of the lock that is not installed here, such as one for another system, is
looked up in reports of `pip install --dry-run --ignore-installed --no-deps --report REPORT.json PACKAGE==VERSION`, or
keeps the row that it has.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "requirements" / "licenses.md"
#: File of the lock -> what it belongs to, in the order in which a package is looked for.
LOCKS = {"core.txt": "default", "torch.txt": "default", "federation.txt": "federation", "dev.txt": "development"}
_HEAD = """# Licenses of dependencies

chestfed is under the Apache License 2.0. These are the packages that it installs, with the license that each states
in its metadata; `python -m docs.generate.licenses` renews the page after `bootstrap.py lock`. `default`: the
installation without extras and both container images; `federation`: with Flower; `development`: tests and
documentation. No package of the first two states the GPL or AGPL. Libraries inside wheels have licenses of their own,
which the wheels contain.

| package | license | needed by |
|---|---|---|
"""
_CLASSIFIER = "License :: OSI Approved :: "


def list_locked() -> dict[str, str]:
    """Name of each locked package -> what it belongs to."""
    packages: dict[str, str] = {}
    for lock, group in LOCKS.items():
        for line in (ROOT / "requirements" / lock).read_text(encoding="utf-8").splitlines():
            if found := re.match(r"([A-Za-z0-9][A-Za-z0-9._-]*)==", line):
                packages.setdefault(found[1].lower(), group)
    return dict(sorted(packages.items()))


def read_license(name: str) -> str | None:
    """What an installed package states of its license; None if it is not installed."""
    try:
        package = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    about = package.metadata
    stated = _state(about.get("License-Expression"), about.get_all("Classifier") or [], about.get("License"))
    return _read_license_file(package) or stated if stated in ("UNKNOWN", "not stated") else stated


def _read_license_file(package: metadata.Distribution) -> str | None:
    """The first line of the license that a package comes with."""
    text = package.read_text("LICENSE") or ""
    return f"{line} (its license file)" if (line := text.strip().partition("\n")[0][:60]) else None


def read_reports(files: Sequence[str]) -> dict[str, str]:
    """What the packages in reports of pip state of their licenses."""
    items = [item["metadata"] for file in files for item in json.loads(Path(file).read_text("utf-8"))["install"]]
    return {
        about["name"].lower(): _state(
            about.get("license_expression"), about.get("classifier") or [], about.get("license")
        )
        for about in items
    }


def _state(expression: str | None, classifiers: Sequence[str], text: str | None) -> str:
    classified = [name.removeprefix(_CLASSIFIER) for name in classifiers if _CLASSIFIER in name]
    first_line = (text or "").strip().partition("\n")[0][:60]
    return (expression or "; ".join(classified) or first_line or "not stated").replace("|", "/")


def read_page() -> dict[str, str]:
    """Package -> license, as the page has them."""
    rows = re.findall(r"^\| ([^|]+?) \| ([^|]+?) \| [^|]+ \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: text for name, text in rows if name not in ("package", "---")}


def make_page(reports: Sequence[str] = ()) -> str:
    """The whole page."""
    known = (read_page() if PAGE.exists() else {}) | read_reports(reports)
    rows = (
        f"| {name} | {read_license(name) or known.get(name, 'not installed here')} | {group} |"
        for name, group in list_locked().items()
    )
    return _HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(make_page(sys.argv[1:]), encoding="utf-8")
