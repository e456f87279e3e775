"""The page of a study: what is shown, as plain values, and the template filled with them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from chestfed.core.checkpoint import write_text
from chestfed.core.errors import ConfigError
from chestfed.core.provenance import Origin
from chestfed.evaluation import metrics
from chestfed.evaluation.calibration import Calibration, calibration
from chestfed.evaluation.intervals.methods import METHODS, Intervals, MethodName
from chestfed.evaluation.metrics import SHARE, OperatingPoint
from chestfed.report.figures import Picture
from chestfed.report.html import fill, text_of
from chestfed.report.participants import checklists, data_sets, limits, participants, privacy_spent
from chestfed.report.run_figures import comparison_curves, gray_levels, hospital_gains, over_seeds, page_figures
from chestfed.report.sites_section import drift_table, site_cards
from chestfed.report.subgroups import subgroups
from chestfed.results import compare, hospital_table
from chestfed.results.batch_norm import describe_statistics
from chestfed.results.chance import describe_chance, list_results
from chestfed.results.compare import Comparison
from chestfed.results.grid import Cell, Grid, Rows, disease_columns, grid_of, number
from chestfed.results.hospital_table import HospitalTable
from chestfed.results.methods_text import MethodsText, computed_with, methods_text, of_aucs, of_differences
from chestfed.results.predictions import read_run
from chestfed.results.run_folder import COMPARISON, RunFolder
from chestfed.results.significance import HOLM, Significance, difference_grid, of_study, seeds_grid, stored, verdict
from chestfed.results.table import Row, StudyTable, auc_grid, left_out, orientation_grid, paper_source, undefined


@dataclass(frozen=True)
class Report:
    """The page, and the figures that are in it."""

    html: str
    pictures: tuple[Picture, ...]


def write_report(
    folder: Path,
    out: Path,
    figures_folder: Path | None = None,
    *,
    pictures: bool = False,
    interval: MethodName | None = None,
) -> Report:
    """Make the page of a run folder, or of a comparison's, and write it to `out`; the figures to `figures_folder`.

    Images of sites that are not synthetic are shown only if `pictures`. Intervals and tests are the study's own, unless
    another method is named.

    Raises `ChestfedError` if the study is not finished, or its folder is damaged, or a method is named for several
    training seeds.
    """
    if (folder / COMPARISON).is_file():
        if interval is not None:
            raise ConfigError(
                f"{folder}: several studies: their intervals are of the test over patients and training seeds. Leave "
                "--interval out, or give one study's folder"
            )
        report = comparison_page(compare.read(folder))
    else:
        report = make_report(RunFolder.open(folder), pictures=pictures, interval=interval)
    write_text(out, report.html)
    if figures_folder is not None:
        for picture in report.pictures:
            picture.save(figures_folder)
    return report


def make_report(run: RunFolder, *, pictures: bool = False, interval: MethodName | None = None) -> Report:
    """The page of a finished study."""
    run.check_finished()
    table = run.table(run.settings.ks)
    how = Intervals(interval or table.rows[-1].interval, run.settings.resamples)
    if how.method != table.rows[-1].interval:
        table = replace(table, rows=tuple(_with_intervals(run, row, how) for row in table.rows))
    compared, computed_now = _compared(run, how)
    hospitals = hospital_table.read(run.path)
    if hospitals is not None and hospitals.interval != how.method:
        hospitals = hospital_table.of_study(run, how.method)
    alternatives = hospital_table.read(run.path, hospital_table.ALTERNATIVE_TABLE)
    if alternatives is not None and alternatives.interval != how.method:
        alternatives = hospital_table.read_alternatives([run], how.method)
    groups = page_figures(run, table, compared)
    groups["hospitals"] = [] if hospitals is None else hospital_gains(hospitals)
    histograms, cards = gray_levels(run), run.sites["sites"]
    added = [row.clients[-1] for row in table.rows[1:]]
    over = f"{table.protocol}, n = {table.images:,}"
    html = fill(
        "page.html",
        **_head(table.title, run.origin),
        facts=_facts(run, table),
        methods=_methods(run, table, compared, how),
        auc=auc_grid(
            table,
            f"AUC {run.settings.where} by number of clients ({over}); below each its 95% interval. "
            f"{describe_statistics(table.statistics)}",
        ),
        published=paper_source(table),
        undefined=undefined(table),
        orientation=orientation_grid() if run.origin is Origin.SYNTHETIC else None,
        differences=None if compared is None else difference_grid(compared, _difference_caption(compared), added=added),
        computed_now=computed_now,
        verdict="" if compared is None else verdict(compared),
        added="hospitals" if run.settings.adds_hospitals else "clients",
        **_who_gains(hospitals, alternatives),
        chance="" if run.configuration.get("held_out") else describe_chance(list_results(table, hospitals)),
        left_out=left_out(table),
        over_hospitals=run.settings.over_hospitals,
        scores_stay=run.scores_stay,
        points=None if run.scores_stay else _points_table(run, table),
        subgroups=None if run.scores_stay else subgroups(run),
        participants=participants(run),
        limits=limits(run, table),
        data_sets=data_sets(run),
        checklists=checklists(),
        calibration=None if run.scores_stay else _calibration_table(run, table),
        training=_training_table(run),
        sites=site_cards(run, histograms, pictures=pictures),
        drift=drift_table(run),
        groups=groups,
        **_how_to_reproduce(run),
        pictures_left_out=not pictures and any(card["data"] != Origin.SYNTHETIC for card in cards),
    )
    every = [*(picture for group in groups.values() for picture in group), *histograms]
    return Report(html, tuple(every))


def comparison_page(comparison: Comparison) -> Report:
    """The page of several studies: every K, or several algorithms, over training seeds."""
    about, compared = comparison.about, comparison.compared
    by_k, curves = over_seeds(comparison), [comparison_curves(comparison)]
    gains = [] if comparison.hospitals is None else hospital_gains(comparison.hospitals)
    facts = {"data": comparison.origin.description, "training seeds": ", ".join(map(str, comparison.trained))}
    facts |= {name: str(about[name]) for name in ("model", "protocol")}
    folders: dict[tuple[str, str], list[str]] = {}
    for run in comparison.runs:
        folders.setdefault((str(run["seed"]), run["folder"]), []).append(run["run"])
    runs = ((", ".join(names), where) for where, names in folders.items())
    html = fill(
        "comparison.html",
        **_head(comparison.title, comparison.origin),
        facts=facts,
        verdict="" if compared is None else verdict(compared),
        chance=compare.warn_of_chance(comparison),
        auc=compare.comparison_grid(comparison, compare.caption_of(comparison)),
        differences=None if compared is None else difference_grid(compared, _difference_caption(compared)),
        by_seed=None if compared is None else seeds_grid(compared),
        holm=HOLM,
        by_k=by_k,
        curves=curves,
        gains=gains,
        **_who_gains(comparison.hospitals, comparison.alternatives),
        published=comparison.published.source if comparison.published else "",
        runs=grid_of("runs", "Run folders", ("run", "seed", "folder"), runs, "plain"),
        versions=_versions(about["versions"]),
    )
    return Report(html, (*by_k, *curves, *gains))


def _head(title: str, origin: Origin) -> dict[str, str]:
    about = {"style": text_of("page.css"), "title": title, "skip_to": "results", "command": "chestfed report"}
    return about | {"tag": origin.tag, "mark": origin.sentence}


def _who_gains(table: HospitalTable | None, alternatives: HospitalTable | None) -> dict[str, Any]:
    """What the pages say of every hospital."""
    values: dict[str, Any] = {"hospitals": None, "hospital_diseases": None, "who_gains": ""}
    if table is not None:
        minus = f"; below it minus {table.models[0]}" if any(one.gain for one in table.hospitals) else ""
        values = {
            "hospitals": hospital_table.grid(table, hospital_table.caption_of(table)),
            "hospital_diseases": hospital_table.disease_grid(table, f"AUC per disease with {table.models[-1]}{minus}"),
            "who_gains": hospital_table.verdict(table),
        }
    if alternatives is None:
        return values | {"alternatives": None}
    caption = hospital_table.caption_of(alternatives)
    return values | {
        "alternatives": hospital_table.grid(alternatives, caption, name="alternatives"),
        "alternatives_title": hospital_table.ALTERNATIVES_TITLE,
        "instead": hospital_table.verdict(alternatives),
    }


def _difference_caption(compared: Significance) -> str:
    return f"AUC minus that of {compared.reference}; below each its 95% interval, {compared.method}"


def _compared(run: RunFolder, how: Intervals) -> tuple[Significance | None, bool]:
    """Every larger K against the smallest, and whether that had to be computed because it was not stored."""
    found, ks = stored(run), run.settings.ks
    if found is not None and found.interval == how.method:
        return found, False
    if len(ks) < 2 or (METHODS[how.method].resampled and not how.resamples) or run.scores_stay:
        return None, False
    return of_study([run.path], ks, how.resamples, how.method), True


def _with_intervals(run: RunFolder, row: Row, how: Intervals) -> Row:
    scored = None if row.scores_stay else read_run(run.path, row.k).scored(run.diseases)[0]
    return row.with_intervals(how, scored, run.path)


def _methods(run: RunFolder, table: StudyTable, compared: Significance | None, how: Intervals) -> MethodsText:
    sentences = of_aucs(f"{table.images:,} images ({table.protocol})", table.patients, len(run.diseases), how)
    scored = [(sentence, ())] if (sentence := describe_statistics(table.statistics).rstrip(".")) else []
    trained = f"Each model was trained once, by {run.settings.algorithm} with seed {run.settings.seed}"
    return methods_text(
        [*sentences, *(of_differences(compared) if compared else ()), (trained, ()), *scored, computed_with()]
    )


def _facts(run: RunFolder, table: StudyTable) -> dict[str, str]:
    facts = {
        "data": run.origin.description,
        "model": table.model,
        "algorithm": f"{run.settings.algorithm}, {run.settings.window} local steps per round",
        "test images": f"{table.images:,} images of {table.patients:,} patients ({table.protocol})",
        "K": ", ".join(map(str, run.settings.ks)),
        "seed": str(run.settings.seed),
        "intervals": f"{METHODS[table.rows[-1].interval].about} ({table.rows[-1].interval})",
    }
    if run.federation is not None:
        machines = run.federation["hospitals"].items()
        told = (f"{name} ({its['device']})" for name, its in machines)
        facts["trained at"] = ", ".join(told) + ": each at its own images, over a server"
    if spent := privacy_spent(run):
        facts["privacy"] = spent
    if left_out := sum(run.about["quarantined"].values()):
        facts["left out"] = f"{left_out:,} unreadable images"
    if notes := [f"{site}: {note}" for site, told in run.about["notes"].items() for note in told]:
        facts["labels"] = "; ".join(notes)
    return facts


def _calibration_table(run: RunFolder, table: StudyTable) -> Grid:
    def cell(found: Calibration | None) -> Cell:
        return Cell("-") if found is None else Cell(number(found.ece_equal_mass), (f"Brier {found.brier:.3f}",))

    rows = ((f"K={k}", (cell(calibration(column)) for column in run.columns(k))) for k in run.settings.ks)
    caption = "Expected calibration error (15 bins of equally many images), and below it the Brier score"
    return grid_of("calibration-errors", caption, ("K", *disease_columns(table.rows[0].diseases)), rows)


def _points_table(run: RunFolder, table: StudyTable) -> Grid:
    """Of the largest K: AUPRC, and what two thresholds do."""
    points = {
        f"at specificity {SHARE}": metrics.sensitivity_at_specificity,
        f"at sensitivity {SHARE}": metrics.specificity_at_sensitivity,
        "at Youden's index": metrics.youden,
    }

    def cell(one: OperatingPoint | None) -> Cell:
        if one is None:
            return Cell("-")
        below = (f"PPV {number(one.ppv)}", f"NPV {number(one.npv)}")
        return Cell(f"{one.sensitivity:.3f} / {one.specificity:.3f}", below)

    columns = run.columns()
    rows: Rows = [("AUPRC", [number(metrics.average_precision(column)) for column in columns])]
    rows += [(name, [cell(point_of(column)) for column in columns]) for name, point_of in points.items()]
    caption = f"AUPRC of K={run.settings.ks[-1]}, and sensitivity / specificity at three thresholds with PPV and NPV"
    return grid_of("points", caption, ("number", *disease_columns(table.rows[-1].diseases)), rows)


def _training_table(run: RunFolder) -> Grid:
    rows: Rows = []
    for k in run.settings.ks:
        rounds, time = run.rounds(k), run.time(k)
        sums = {name: sum(e[name] for e in rounds) for name in ("images", "gradients", "bytes_up", "bytes_down")}
        counts = (f"{len(rounds):,}", f"{sums['gradients']:,}", f"{sums['images']:,}")
        megabytes = (f"{sums['bytes_up'] / 1e6:,.2f}", f"{sums['bytes_down'] / 1e6:,.2f}")
        part = ("last part only: it was interrupted",) if time["resumed"] else ()
        took = Cell(f"{time['seconds']:.0f}", part)
        rows.append((f"K={k}", (*counts, *megabytes, took)))
    names = ("K", "rounds", "gradients", "images", "MB up", "MB down", "seconds")
    return grid_of("training", "Cost of stage 2, summed over all clients and rounds", names, rows)


def _how_to_reproduce(run: RunFolder) -> dict[str, Any]:
    about, inputs = run.about, "Digests of the data: pixels, labels and counts"
    rows = ((part, (str(digest),)) for part, digest in about["inputs"].items())
    configuration = yaml.safe_dump(run.configuration, sort_keys=False, allow_unicode=True)
    return {
        "configuration": configuration,
        "configuration_uri": "data:text/yaml;base64," + base64.b64encode(configuration.encode()).decode(),
        "versions": _versions(about["versions"]),
        "inputs": grid_of("inputs", inputs, ("part", "digest"), rows, "plain"),
        "results_version": about["results_version"],
        "digest": about["digest"],
        "machine": about["machine"],
        "pipeline": run.pipeline_name,
        "federated": run.federation is not None,
    }


def _versions(values: Mapping[str, Any]) -> Grid:
    rows = ((package, (str(version),)) for package, version in values.items())
    return grid_of("versions", "Software versions", ("package", "version"), rows, "plain")
