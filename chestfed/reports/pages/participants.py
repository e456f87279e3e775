"""The page's sections on who was studied and what the results are for: participants, labels, data sets, checklists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from chestfed.core.diseases import format_title
from chestfed.core.provenance import Origin
from chestfed.reports.pages.html import read_template
from chestfed.results.tables.clients.attendance import list_incomplete, read_attendance
from chestfed.results.tables.clients.influence import describe_loss, influence_grid, read_influence, unusual_clients
from chestfed.results.tables.files import HospitalFacts
from chestfed.results.tables.grid import Cell, Grid, Line, Rows, make_grid
from chestfed.results.tables.run_folder import RunFolder

#: Names of the page's sections in the checklists, by their ids.
_SECTIONS = {
    "results": "AUC of each disease",
    "differences": "Differences",
    "hospitals": "AUC at every hospital",
    "curves": "Curves",
    "participants": "Participants",
    "training": "Training",
    "methods": "Statistical methods",
    "use": "Use and limits",
    "again": "How to reproduce",
}
#: Fewer positive images than this are named as a limitation.
_FEW = 20


def participants(run: RunFolder) -> list[Grid]:
    """Flow, demographics and label policy of each hospital, and the influence of each client."""
    hospitals = _hospitals(run)
    clients = run.row(run.settings.ks[-1]).clients
    grids = (
        [_flow(hospitals, clients, run.about["quarantined"]), _people(hospitals), _labels(hospitals)]
        if hospitals
        else []
    )
    influence = influence_grid(run)
    return grids if influence is None else [*grids, influence]


def data_sets(run: RunFolder) -> list[str]:
    """License, source and citation of each hospital's data, as its YAML says."""
    every = ((data["title"], data["license"], data["source"], data["citation"]) for data in _hospitals(run))
    return [". ".join(text.rstrip(".") for text in texts if text) for texts in every]


def limits(run: RunFolder) -> list[str]:
    """List the limits that the study itself shows."""
    sentences = [f"One training seed ({run.settings.seed}): another one gives other AUCs and other differences."]
    rare = [auc for auc in run.row().diseases if (auc.positives or 0) < _FEW]
    few = [f"{format_title(auc.disease)} ({auc.positives})" for auc in rare]
    if few:
        sentences.append(f"Few positive test images: {', '.join(few)}; their AUCs are uncertain.")
    scored, rows = run.about["scored"], [run.row(k) for k in run.settings.ks]
    if scored["images"] > scored["patients"]:
        sentences.append("Some patients have several test images, which are not independent.")
    if run.settings.tests_first_hospital and not run.hospitals:
        sentences.append(
            "Differences between K are tested at the first hospital only; other hospitals may gain or lose."
        )
    sentences += [f"{text}." for text in list_incomplete(read_attendance([run], row.k) for row in rows)]
    shares, adds_hospitals = read_influence(run), run.settings.adds_hospitals
    sentences += [f"{text}." for text in unusual_clients(shares, run.diseases, adds_hospitals=adds_hospitals)]
    sentences += [
        f"K={row.k}: {text}." for row in rows if row.k > 1 and (text := describe_loss(run.rounds(row.k), row.aucs[-1]))
    ]
    if run.origin is not Origin.REAL:
        sentences.append("Synthetic radiographs: nothing here says anything about patients.")
    sentences.append("Labels are used as they are: their errors affect training and test.")
    return sentences


def privacy_spent(run: RunFolder) -> str:
    """Describe the noise that protects the weights, and the privacy budget of each K; empty without."""
    privacy = run.configuration["federated"].get("privacy")
    if privacy is None:
        return ""
    last = {k: run.rounds(k)[-1] for k in run.settings.ks}
    each = ", ".join(f"{end['epsilon']:.3g} for K={k}" for k, end in last.items())
    together = last[run.settings.ks[-1]]["epsilon_of_all"]
    known = "; the noise follows from the seed in the run folder, so it protects no patient"
    return (
        f"client-level differential privacy: epsilon {each}; {together:.3g} for all K together, at delta "
        f"{privacy['delta']:g} (changes clipped to {privacy['clip']:g}, noise multiplier "
        f"{privacy['noise_multiplier']:g})"
        f"{known if privacy['noise'] == 'seed' else ''}. "
        "It covers the weights of stage 2; stage 1, counts, losses and AUCs are without noise"
    )


def checklists() -> list[Grid]:
    """Where the page answers the items of CLAIM and TRIPOD+AI."""
    return [_checklist(checklist) for checklist in yaml.safe_load(read_template("checklists.yaml"))]


def _checklist(about: Mapping[str, Any]) -> Grid:
    lines = []
    for number, topic, where in about["items"]:
        section, _, says = where.partition(": ")
        cell = Cell(f"{_SECTIONS[section]}: {says}") if says else Cell("for the authors")
        lines.append(Line(number, (Cell(topic), cell), "" if says else "paper"))
    caption = f"{about['name']}: {about['title']} ({about['reference']})"
    name = about["name"].lower().replace("+", "-")
    return Grid(name, caption, tuple(map(Cell, ("item", "topic", "on this page"))), tuple(lines))


def _hospitals(run: RunFolder) -> list[HospitalFacts]:
    return run.sites["hospitals"]


def _flow(hospitals: Sequence[HospitalFacts], clients: Sequence[str], unreadable: Mapping[str, int]) -> Grid:
    rows: Rows = []
    for hospital in hospitals:
        pattern = re.compile(rf"{re.escape(hospital['site'])}(-\d+)?( \(.+\))?")  # site, site-2, or a control
        unused = not any(map(pattern.fullmatch, clients))
        reasons = [f"{count:,} {reason}" for reason, count in hospital["left_out"].items() if count]
        if lost := unreadable.get(hospital["site"]):
            reasons.append(f"and {lost:,} unreadable of those counted on the right")
        cells: list[str | Cell] = [
            f"{hospital['found']:,}",
            Cell(f"{sum(hospital['left_out'].values()):,}", tuple(reasons)),
        ]
        for part in ("train", "test"):
            people = hospital["people"][part]
            below = [f"{people['patients']:,} patients"] if people["images"] else []
            below += ["in no K of this study"] if unused and part == "train" else []
            cells.append(Cell(f"{people['images']:,}", tuple(below)))
        used = sum(hospital["people"][part]["images"] for part in ("train", "test"))
        rest = hospital["found"] - sum(hospital["left_out"].values()) - used
        rows.append((hospital["site"], [*cells, f"{rest:,}"]))
    caption = "Images: found in the label files, left out, training, test of the hospital itself, and in other splits"
    return make_grid("flow", caption, ("hospital", "found", "left out", "training", "test", "not used"), rows)


def _people(hospitals: Sequence[HospitalFacts]) -> Grid:
    def rows() -> Iterator[tuple[str, Sequence[str]]]:
        for hospital in hospitals:
            for part, people in hospital["people"].items():
                if people["images"]:
                    women = "unknown" if people["women"] is None else f"{people['women']:.0%}"
                    age = "unknown"
                    if people["age"] is not None:
                        low, middle, high = people["age"]
                        age = f"{middle:.0f} ({low:.0f} to {high:.0f})"
                    views = ", ".join(f"{view} {count:,}" for view, count in people["views"].items())
                    yield hospital["site"], (part, f"{people['patients']:,}", women, age, views)

    caption = "Patients: women among those of known sex, median age with quartiles, and the views of their images"
    return make_grid("people", caption, ("hospital", "part", "patients", "women", "age", "views"), rows())


def _labels(hospitals: Sequence[HospitalFacts]) -> Grid:
    def describe(values: Mapping[str, object], everything: int) -> str:
        groups: dict[str, list[str]] = {}
        for disease, value in values.items():
            groups.setdefault(str(value), []).append(format_title(disease))
        if len(groups) == 1 and len(values) == everything:
            return next(iter(groups))
        return "; ".join(f"{value}: {', '.join(names)}" for value, names in groups.items())

    rows = []
    for hospital in hospitals:
        policy = hospital["policy"]
        diseases = len(policy["uncertain"])
        copies = {disease: f"{count + 1} times" for disease, count in policy["upsample"].items()}
        standard = hospital["reference_standard"] or "not given in the YAML"
        counted = (describe(values, diseases) for values in (policy["uncertain"], policy["blank"]))
        rows.append((hospital["site"], (standard, *counted, describe(copies, diseases) or "none")))
    caption = "Reference standard, and how uncertain labels and unmentioned diseases count"
    heads = ("hospital", "reference standard", "uncertain", "not mentioned", "repeated positives")
    return make_grid("labels", caption, heads, rows, "told")
