"""Build the documentation: `python docs/build.py [FOLDER]` writes FOLDER/index.html (default: build/site).

Every warning is an error: a link to a page, a heading or a file that does not exist fails the build.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.cmd.build import build_main

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: list[str]) -> int:
    """Build into the folder that is named, or into build/site; returns Sphinx's exit status."""
    out = Path(arguments[0]) if arguments else ROOT / "build" / "site"
    options = ["--fail-on-warning", "--keep-going", "--quiet", "--doctree-dir", str(out.with_name(f"{out.name}.cache"))]
    status = build_main(["--builder", "html", *options, str(ROOT / "docs"), str(out)])
    if status == 0:
        print(out / "index.html")
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
