"""`chestfed report --open`: the page in the web browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import pytest

from tests.command_line import call
from tests.results.tables.finished_runs import write_run


@pytest.mark.parametrize("there", [True, False])
def test_page_is_opened_where_a_browser_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: bool(opened.append(address)) or there)
    write_run(tmp_path / "run")
    called = call("report", "run", "--open", folder=tmp_path)
    assert called.code == 0
    assert opened == [(tmp_path / "run" / "report.html").as_uri()]
    assert ("warning: " in called.err) is not there
    opened.clear()
    for out, page in (("other.html", "other.html"), ("others", "others/report.html")):
        assert call("report", "run", "--out", out, folder=tmp_path).code == 0
        assert (tmp_path / page).is_file()
    assert not opened
