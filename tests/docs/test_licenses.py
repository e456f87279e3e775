"""The page of licenses has every locked package, and what is installed by default is not under the GPL."""

from __future__ import annotations

import re

from docs.generate.licenses import list_locked, make_page, read_page


def test_page_of_licenses_is_that_of_the_lock() -> None:
    page, locked = read_page(), list_locked()
    assert page.keys() == locked.keys()
    rows = [line for line in make_page().splitlines() if line.startswith("| ")]
    assert len(rows) == len(locked) + 1  # and its head


def test_default_installation_has_no_gpl() -> None:
    licenses, locked = read_page(), list_locked()
    strict = re.compile(r"(?<!L)GPL|(?<!Lesser )General Public License")
    assert [name for name, text in licenses.items() if strict.search(text) and locked[name] != "development"] == []
    assert "pylibjpeg-libjpeg" not in locked
