"""What a reader of your own is written with. Stable: these names and their meaning change with a major version only.

A reader is a function `read(source, options)`, declared by a `SiteReader`. It turns the files of one format into rows,
one per image, with raw findings per disease of `source.config.diseases`. `raw_rows` puts them together. Problems of the
files are noted by `source.problem(...)`, with file and row, and reading continues: a user wants all problems at once.
The rows of a site with problems are not used.

A reader applies no policy: views, uncertain and blank labels, up-sampling and splits are applied after it, from the
site's YAML. `docs/own_reader.md` has the columns of a row and a worked example.
"""

from __future__ import annotations

from chestfed.core.config import StrictModel
from chestfed.core.errors import ChestfedError, Problem
from chestfed.core.plugins import Options
from chestfed.sites.findings import (
    BLANK,
    NEGATIVE,
    POSITIVE,
    UNCERTAIN,
    UNLABELLED,
    ages,
    from_numbers,
    sexes,
    strongest,
    translate,
)
from chestfed.sites.label_files.source import Source
from chestfed.sites.registry import SiteReader
from chestfed.sites.rows import column_findings, join_rows, label_names, raw_rows, views
from chestfed.sites.vocabulary import RAW_COLUMNS, SPLITS, VIEWS

__all__ = [
    "BLANK",
    "NEGATIVE",
    "POSITIVE",
    "RAW_COLUMNS",
    "SPLITS",
    "UNCERTAIN",
    "UNLABELLED",
    "VIEWS",
    "ChestfedError",
    "Options",
    "Problem",
    "SiteReader",
    "Source",
    "StrictModel",
    "ages",
    "column_findings",
    "from_numbers",
    "join_rows",
    "label_names",
    "raw_rows",
    "sexes",
    "strongest",
    "translate",
    "views",
]
