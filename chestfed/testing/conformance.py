"""All checks of a site, in one report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.sites.config import SiteConfig, load_site_config
from chestfed.sites.opening import open_site
from chestfed.testing import file_checks, image_checks, process_checks, table_checks
from chestfed.testing.case import Case, raw_rows_of
from chestfed.testing.report import ConformanceError, ConformanceReport, Violation

Check = Callable[[Case], Iterator[str]]

#: Key of a check, in the order in which they run -> the check; its docstring says what must hold.
CHECKS: Final[dict[str, Check]] = {
    "schema": table_checks.schema,
    "labels": table_checks.labels,
    "unlabelled diseases": table_checks.unlabelled_diseases,
    "rows": table_checks.rows,
    "image paths": table_checks.image_paths,
    "patients": table_checks.patients,
    "deterministic": table_checks.deterministic,
    "elsewhere": process_checks.elsewhere,
    "shuffled rows": file_checks.shuffled_rows,
    "missing columns": file_checks.missing_columns,
    "damaged label files": file_checks.damaged_label_files,
    "images": image_checks.images,
    "damaged images": image_checks.damaged_images,
    "cache": image_checks.cache,
    "training": image_checks.training,
}


def check_site(
    config_path: str | Path,
    root: str | Path,
    *,
    overrides: Sequence[str] = (),
    skip: Collection[str] = (),
    images: int = 8,
    files: int = 4,
    header_lines: int = 1,
) -> ConformanceReport:
    """Check that a site keeps what chestfed relies on; takes seconds on a small sample of its files.

    Parameters
    ----------
    config_path
        The site's YAML.
    root
        The data root: the folder that the YAML's `root` is below, as for `--data`. Its files are not changed: label
        files are damaged in copies, which go into a temporary folder.
    overrides
        Keys of the YAML, as for `--set`.
    skip
        Keys of `CHECKS` to leave out; the report says so.
    images
        How many images are decoded, spread over the table.
    files
        How many label files are damaged, one at a time.
    header_lines
        How many lines at the beginning of a text file are no rows, and stay there when the rows are shuffled.

    Raises
    ------
    ConformanceError
        With all violations, each with the key of its check. It is an AssertionError: a test needs nothing else.
    ConfigError
        If the YAML or `skip` is wrong.
    """
    strange = sorted(set(skip) - CHECKS.keys())
    if strange:
        raise ConfigError(f"skip: no check is called {', '.join(strange)}; there are: {', '.join(CHECKS)}")
    config = load_site_config(config_path, overrides)
    with TemporaryDirectory(prefix="chestfed-conformance-") as folder:
        try:
            case = _case(
                config, Path(config_path), tuple(overrides), Path(root), Path(folder), images, files, header_lines
            )
        except Exception as error:  # whatever a reader raises is a finding
            foreign = "" if isinstance(error, ChestfedError) else f"{type(error).__name__}, not a ChestfedError: "
            violation = Violation("opens", f"{foreign}{error}")
            raise ConformanceError(ConformanceReport(config.site, 0, ("opens",), (violation,), ())) from error
        report = _run(case, skip)
    if report.violations:
        raise ConformanceError(report)
    return report


def _case(
    config: SiteConfig,
    config_file: Path,
    overrides: tuple[str, ...],
    data_root: Path,
    scratch: Path,
    images: int,
    files: int,
    header_lines: int,
) -> Case:
    table = open_site(config, data_root)
    raw = raw_rows_of(config, table.root)
    return Case(config, config_file, overrides, data_root, table, raw, scratch, images, files, header_lines)


def _run(case: Case, skip: Collection[str]) -> ConformanceReport:
    violations: list[Violation] = []
    checked: list[str] = []
    not_checked: list[tuple[str, str]] = [(key, "left out by the caller") for key in CHECKS if key in skip]
    for key, check in CHECKS.items():
        if key in skip:
            continue
        case.notes.clear()
        checked.append(key)
        violations += [Violation(key, message) for message in _messages(check, case)]
        not_checked += [(key, note) for note in case.notes]
    return ConformanceReport(
        case.config.site, len(case.table.frame), tuple(checked), tuple(violations), tuple(not_checked)
    )


def _messages(check: Check, case: Case) -> list[str]:
    """What a check finds. Where one stumbles over what an earlier one has found, that is all it finds."""
    found: list[str] = []
    try:
        for message in check(case):
            found.append(message)
    except Exception as error:  # of a reader, or of a table that is none
        found.append(f"the check cannot go on: {type(error).__name__}: {error}")
    return found
