"""Sphinx configuration of the documentation.

    python docs/build.py          writes build/site/index.html; warnings are errors

The pages are the Markdown files of this folder. Those in reference/ are written on every build by docs/generate.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

from chestfed._version import __version__  # noqa: E402
from chestfed.core.config import Document  # noqa: E402
from docs.generate import write_references  # noqa: E402

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config

project = "chestfed"
author = "The chestfed developers"
copyright = author
version = release = __version__

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["examples", "notebooks", "generate", "_build"]
nitpicky = True

myst_enable_extensions = ["deflist", "fieldlist"]
myst_heading_anchors = 4
myst_fence_as_directive: list[str] = []
# An example shows what a user types and sees, which is not always complete code.
suppress_warnings = ["misc.highlighting_failure"]
highlight_language = "text"

html_theme = "pydata_sphinx_theme"
html_title = f"chestfed {__version__}"
html_show_sourcelink = False
html_theme_options: dict[str, Any] = {
    "navigation_with_keys": False,
    "show_prev_next": False,
    "navbar_center": [],
    "navbar_end": ["theme-switcher"],
}
templates_path = ["templates"]
html_sidebars = {"**": ["pages.html"]}


def _references(app: Sphinx, _config: Config) -> None:
    if Path(app.srcdir) == DOCS:
        write_references(DOCS / "reference")


def _offer_files_as_downloads(_app: Sphinx, docname: str, source: list[str]) -> None:
    """Make a link to a Markdown file outside of this folder a download; Sphinx would look for a page.

    A link to a folder is one to its README, or plain text if it has none. What does not exist is left as it is, for
    Sphinx to report.
    """
    folder = DOCS / Path(docname).parent

    def rewrite(match: re.Match[str]) -> str:
        text, link = match.groups()
        is_folder = (folder / link).is_dir()
        target = (folder / link / "README.md" if is_folder else folder / link).resolve()
        if is_folder and not target.is_file():
            return text
        outside = target.is_file() and not target.is_relative_to(DOCS)
        return f"[{text}](path:{os.path.relpath(target, folder)})" if outside else match[0]

    source[0] = re.sub(r"\[([^\[\]]+)\]\(((?:\.\./)+[^)#\s]*\.md|[^)#:\s]*/)\)", rewrite, source[0])


def _add_license(_app: Sphinx, docname: str, source: list[str]) -> None:
    """License and citation of a data set, from the YAML that its page names first."""
    if docname.startswith("sites/"):
        named = re.search(r"`(site_configs/\S+\.yaml)`", source[0])
        assert named is not None, docname
        site = Document(DOCS.parent / named[1]).data
        source[0] += f"- **License**: {site['license']}.\n- **Cite**: {site['citation']}\n"


def setup(app: Sphinx) -> None:
    """Write the generated pages before Sphinx looks for sources, and adapt the links of pages as they are read."""
    app.connect("config-inited", _references)
    app.connect("source-read", _offer_files_as_downloads)
    app.connect("source-read", _add_license)
