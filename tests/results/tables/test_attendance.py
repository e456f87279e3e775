"""Who trained a model is said truly everywhere, also where clients left or missed rounds."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from chestfed.app.commands.progress import Bars
from chestfed.app.commands.study.summary import render_summary
from chestfed.core.manifest import Part, write_manifest
from chestfed.reports.pages.page import make_report
from chestfed.results.tables.answer import answer_study
from chestfed.results.tables.clients.attendance import Attendance, describe_added, list_incomplete, takes_part
from chestfed.results.tables.collect import collect
from chestfed.results.tables.run_folder import FILES_OF_K, ROUNDS, RunFolder
from tests.results.tables.finished_runs import write_run


def attend(k: int, *clients: str, rounds: int = 30, **partly: int) -> Attendance:
    return {"k": k, "clients": list(clients), "rounds": rounds, "partly": partly}


def test_added_clients_are_those_who_trained() -> None:
    one = attend(1, "anne")
    assert describe_added(None, one) == "anne"
    assert describe_added(one, attend(3, "anne", "bert", "clara")) == "bert, clara"
    assert describe_added(one, attend(3, "anne", "bert", "clara", clara=5)) == "bert; clara in 5 of 30 rounds"
    assert describe_added(one, attend(2, "anne", "bert", bert=29)) == "bert in 29 of 30 rounds"
    assert describe_added(one, attend(2, "anne")) == "nobody"
    both = attend(2, "anne", "bert")
    assert describe_added(both, attend(3, "anne", "clara")) == "clara; without bert"
    assert describe_added(both, attend(3, "anne", "bert", "clara", bert=1)) == "clara; bert in 1 of 30 rounds"
    assert describe_added(attend(1, "a"), attend(5, *"abcde", a=2)) == "4 clients; a in 2 of 30 rounds"


def test_incomplete_ks_are_listed() -> None:
    complete, late = attend(2, "a", "b"), attend(4, "a", "b", "d", d=3)
    assert list_incomplete([complete, late]) == ["K=4: 3 of 4 took part: a, b, d, d in 3 of 30 rounds"]


def test_departed_hospital_takes_no_part() -> None:
    every = [attend(2, "a", "b"), attend(3, "a", "c")]
    joins: list[dict[str, Any]] = [{"name": name, "joins": k} for name, k in (("b", 2), ("c", 3), ("of clients", 2))]
    assert [takes_part(hospital, every[1], every) for hospital in joins] == [False, True, True]
    assert [takes_part(hospital, every[0], every) for hospital in joins] == [True, False, True]


def test_departure_is_said_wherever_names_are(tmp_path: Path) -> None:
    """Answer, table, first screen, page, and the line of a K that was finished before."""
    run = RunFolder.open(write_run(tmp_path / "run"))
    clients, folder = run.row(2).clients, run.path / "k2"
    entries = [json.loads(line) for line in (folder / ROUNDS).read_text().splitlines()]
    for entry in entries[1:]:
        entry["absent"] = [clients[1]]
    (folder / ROUNDS).write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    write_manifest(folder, Part(run.digest, "k2"), FILES_OF_K)
    run = RunFolder.open(run.path)
    gap, results = f"{clients[1]} in 1 of {len(entries)} rounds", collect([run])
    assert results.list_estimates("study", disease="mean", k=2)[0]["added"] == gap
    answer = answer_study(results)
    assert f"trained with one other hospital ({gap})" in answer.sentence
    page = make_report(run).html
    assert f"K=2 adds {gap}." in page
    assert f"K=2: {gap}." in page
    text = io.StringIO()
    console = Console(file=text, width=400)
    console.print(render_summary(results, answer))
    Bars(console).k_done(run.row(2), results, reused=True)
    assert f"K=2: {gap}" in text.getvalue()
    assert f"K=2 (+ {gap}): mean AUC" in text.getvalue()
