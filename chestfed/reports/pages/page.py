"""The page of a study: what is shown, as plain values, and the template filled with them."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path, PurePath
from typing import Any

import yaml

from chestfed.core.bundled import list_bundled_sites
from chestfed.core.checkpoint import write_text
from chestfed.core.diseases import format_title
from chestfed.core.errors import ConfigError
from chestfed.core.provenance import Origin
from chestfed.data.sites.config import load_site_config
from chestfed.reports.pages.figures import Picture
from chestfed.reports.pages.html import fill, read_template
from chestfed.reports.pages.participants import checklists, data_sets, limits, participants, privacy_spent
from chestfed.reports.pages.run_figures import (
    draw_curves,
    draw_decisions,
    draw_differences,
    draw_gains_by_images,
    draw_hospitals,
    draw_means,
    draw_page,
    draw_seeds,
    gray_levels,
)
from chestfed.reports.pages.sites_section import drift_table, list_mistakes, site_cards
from chestfed.reports.pages.subgroups import ABOUT_GROUPS, make_subgroup_grids
from chestfed.results.evaluation import metrics
from chestfed.results.evaluation.calibration import Calibration, calibration
from chestfed.results.evaluation.decisions import Decisions, decide, read_thresholds
from chestfed.results.evaluation.intervals.methods import METHODS, Intervals, MethodName
from chestfed.results.evaluation.metrics import SHARE, OperatingPoint
from chestfed.results.tables.answer import answer_study, state_gains
from chestfed.results.tables.clients.attendance import find_attendance, is_complete
from chestfed.results.tables.clients.batch_norm import describe_statistics
from chestfed.results.tables.clients.gate import state_gate
from chestfed.results.tables.collect import list_run_folders, load_results, read_comparison
from chestfed.results.tables.decisions import MEANING, make_decision_grid
from chestfed.results.tables.files import scored_frame
from chestfed.results.tables.frames import Results, name_run
from chestfed.results.tables.grid import Cell, Grid, Rows, make_grid, number
from chestfed.results.tables.run_folder import COMMON_FILE, COMPARISON, MODEL_FILE, STUDY, RunFolder
from chestfed.results.tables.sentences import (
    HOLM,
    MethodsText,
    describe_chance,
    describe_comparison,
    describe_origins,
    describe_quick,
    describe_scoring,
    describe_test,
    name_program,
    number_references,
)
from chestfed.results.tables.settings import make_fairness_grid, make_settings_grid
from chestfed.results.tables.views import (
    TITLES,
    describe_aucs,
    describe_hospitals,
    describe_stage_1,
    join_left_out,
    list_out_of_mean,
    make_auc_grid,
    make_difference_grid,
    make_disease_columns,
    make_disease_grid,
    make_hospital_grid,
    make_seeds_grid,
)

#: Caption of the table of digests.
_INPUTS = "Digests of the data: pixels, labels and counts"
#: Caption of the table of decisions.
_DECISIONS = "Decisions of the largest K. An image is called positive from the threshold on"


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
    thresholds: Sequence[str] = (),
) -> Report:
    """Make the page of a run folder, or of a comparison's, and write it to `out`; the figures to `figures_folder`.

    Images of sites that are not synthetic are shown only if `pictures`. Intervals and tests are the study's own, unless
    another method is named. `thresholds`, such as `0.2` or `edema=0.1`, add decisions of the largest K.

    Raises `ChestfedError` if the study is not finished, or its folder is damaged, or a method is named for several
    training seeds.
    """
    if (folder / COMPARISON).is_file():
        if interval is not None:
            raise ConfigError(
                f"{folder}: several studies: their intervals are of the test over patients and training seeds. Leave "
                "--interval out, or give one study's folder"
            )
        if thresholds:
            raise ConfigError(f"{folder}: several studies have no common threshold. Give one study's folder")
        results = read_comparison(folder)
        report = make_page(results, runs=list_run_folders(folder, results))
    else:
        report = make_report(RunFolder.open(folder), pictures=pictures, interval=interval, thresholds=thresholds)
    write_text(out, report.html)
    if figures_folder is not None:
        for picture in report.pictures:
            picture.save(figures_folder)
    return report


def make_report(
    run: RunFolder, *, pictures: bool = False, interval: MethodName | None = None, thresholds: Sequence[str] = ()
) -> Report:
    """The page of a finished study."""
    run.check_finished()
    return make_page(load_results(run, interval), run, pictures=pictures, thresholds=thresholds)


def make_page(
    results: Results,
    run: RunFolder | None = None,
    *,
    pictures: bool = False,
    thresholds: Sequence[str] = (),
    runs: Sequence[Path] = (),
) -> Report:
    """The page of one run, or of several: every K, or several algorithms, over training seeds, in folders `runs`."""
    differences = results.gains("study")
    figures = {"hospitals": draw_hospitals(results)}
    if run is None:
        first = [*draw_seeds(results), *draw_gains_by_images(results)]
        figures |= {"answer": first or draw_differences(results) or draw_means(results), "curves": draw_curves(results)}
        values = {"facts": _list_common_facts(results), "runs": _make_runs_grid(results)}
        values |= _reproduce_methods(results, runs)
        values |= {"federated": False, "scores_stay": False, "model": ""}
        methods = results.about["methods"]
        values["settings"] = make_settings_grid(methods) if methods else None
        values["by_hand"] = any(method["chosen"] == "by hand" for method in methods)
        histograms: list[Picture] = []
    else:
        figures |= draw_page(run, results)
        histograms = gray_levels(run)
        values = _describe_run(run, results, histograms, pictures=pictures)
        decisions = _decide(run, results, thresholds) if thresholds else None
        values["decisions"] = None if decisions is None else make_decision_grid(decisions, f"{_DECISIONS}. {MEANING}")
        figures["decisions"] = [] if decisions is None else draw_decisions(run, decisions)
    added = results.view("study", disease="mean")["added"].to_list()[1:] if run is not None else ()
    answer = answer_study(results)
    html = fill(
        "page.html",
        style=read_template("page.css"),
        title=results.title,
        skip_to="results",
        command="chestfed report",
        tag=results.origin.tag,
        mark=" ".join(filter(None, (results.origin.sentence, describe_origins(results), describe_quick(results)))),
        single=run is not None,
        seeds=len(results.seeds) * len(results.splits),
        auc=make_auc_grid(results, describe_aucs(results)),
        published=results.about["paper"],
        undefined=join_left_out(list_out_of_mean(results)),
        stage_1=describe_stage_1(results),
        differences=_make_difference_grid(results, added) if len(differences) else None,
        by_seed=make_seeds_grid(differences) if len(differences) else None,
        holm=HOLM,
        answer=answer,
        remarks=[text for text in answer.details if text != answer.gains],
        explanations=_explain(results),
        chance=describe_chance(results),
        at_hospitals=[_describe_view(results, view) for view in TITLES if len(results.view(view))],
        fairness=make_fairness_grid(results),
        versions=_versions(results.about["versions"]),
        figures=figures,
        **values,
    )
    return Report(html, (*(picture for part in figures.values() for picture in part), *histograms))


def _describe_run(run: RunFolder, results: Results, histograms: Sequence[Picture], *, pictures: bool) -> dict[str, Any]:
    """Make the part of the page on a single run alone."""
    scores = not run.scores_stay
    return {
        "facts": _facts(run, results),
        "model": f"{run.path.name}/k{run.ks[-1]}/{MODEL_FILE}" if run.settings.adds_hospitals else "",
        "trained_for": _name_owner(run),
        "methods": _methods(run, results),
        "over_hospitals": run.settings.over_hospitals,
        "scores_stay": run.scores_stay,
        "points": _points_table(run) if scores else None,
        "subgroups": make_subgroup_grids(run, _intervals(run, results)) if scores else [],
        "about_groups": ABOUT_GROUPS,
        "calibration": _calibration_table(run) if scores else None,
        "mistakes": list_mistakes(run, pictures=pictures) if scores else [],
        "largest_k": run.settings.ks[-1],
        "participants": participants(run),
        "limits": limits(run),
        "data_sets": data_sets(run),
        "checklists": checklists(),
        "training": _training_table(run),
        "sites": site_cards(run, histograms, pictures=pictures),
        "drift": drift_table(run),
        "pictures_left_out": not pictures and any(card["data"] != Origin.SYNTHETIC for card in run.sites["sites"]),
        **_how_to_reproduce(run),
    }


def _name_owner(run: RunFolder) -> str:
    """The owner of the model of the largest K: the first hospital where each has its own."""
    last = run.folder()
    own = (last / COMMON_FILE).is_file() and not run.configuration.get("held_out")
    return run.row().clients[0] if own else "the largest K"


def _explain(results: Results) -> list[str]:
    """The legend of the first figure, and its words: K, AUC, the diseases, the images; none for compared methods."""
    if results.in_groups:
        return [
            "Each point: what training together gains at the target with so many of its images; bars: 95% intervals."
        ]
    means = results.list_estimates("study", disease="mean")
    if not results.by_k:
        return []
    about = results.about
    alone, *others = means
    who = "hospitals" if about["adds_hospitals"] else "clients"
    added = "".join(f"; K={row['k']} adds {row['added']}" for row in others)
    complete = is_complete(find_attendance(results).get(alone["k"]))
    start = f"{alone['added']} alone" if alone["k"] == 1 else f"the first {alone['k']}" if complete else alone["added"]
    names = [format_title(name) for name in results.view("study")["disease"].unique() if name != "mean"]
    legend = "Thick line: mean over the diseases, with 95% intervals; thin lines: each disease."
    if results.repeats:
        legend = f"Thick line: mean of {results.repeats}; gray lines: each run; bars: 95% interval of the gain."
    where = about["where"].replace("the first hospital", about["target"] or "the first hospital")
    return [
        f"{legend} K is the number of {who} that train together: K={alone['k']} is {start}{added}. Images stay where "
        "they are; only network weights are exchanged.",
        "The AUC is the chance that a model ranks an image with the disease above one without it: 0.5 is guessing, 1 "
        f"is perfect. It is measured {where} on {results.scored} that no model trained on, for {', '.join(names)}.",
    ]


def _describe_view(results: Results, view: str) -> dict[str, Any]:
    """Make the part of the page on hospitals, or on their alternatives."""
    grid = make_hospital_grid(results, view, describe_hospitals(results, view))
    diseases = make_disease_grid(results) if view == "hospitals" else None
    sentence = f"{state_gains(results, view)} {state_gate(results) if view == 'alternatives' else ''}".strip()
    return {"id": view, "title": TITLES[view], "table": grid, "diseases": diseases, "sentence": sentence}


def _make_difference_grid(results: Results, added: Sequence[str]) -> Grid:
    differences = results.gains("study")
    about = f"AUC minus that of {differences['reference'].iloc[0]}; below each its 95% interval"
    return make_difference_grid(differences, f"{about}, {describe_test(differences)}", added=added)


def _list_common_facts(results: Results) -> dict[str, str]:
    facts = {"data": results.origin.description, "training seeds": ", ".join(map(str, results.seeds))}
    facts |= {"splits of the patients": ", ".join(map(str, results.splits))} if len(results.splits) > 1 else {}
    return facts | {"model": results.about["model"], "protocol": results.about["protocol"]}


def _make_runs_grid(results: Results) -> Grid:
    folders: dict[tuple[str, str], list[str]] = {}
    for run in results.about["runs"]:
        split = run.get("split", 0) if len(results.splits) > 1 else None
        folders.setdefault((name_run(run["seed"], split), run["folder"]), []).append(run["run"])
    rows = ((", ".join(names), where) for where, names in folders.items())
    return make_grid("runs", "Run folders", ("run", "seed", "folder"), rows, "plain")


def _intervals(run: RunFolder, results: Results) -> Intervals:
    """Method and resamples of the intervals of these results."""
    return Intervals(results.view("study")["interval_method"].iloc[0], run.settings.resamples)


def _methods(run: RunFolder, results: Results) -> MethodsText:
    about, differences, seed = results.about, results.gains("study"), run.settings.seed
    how = _intervals(run, results)
    scored = f"{about['images']:,} images ({about['protocol']})"
    sentences = describe_scoring(scored, about["patients"] if about["has_patients"] else 0, len(run.diseases), how)
    sentences += describe_comparison(differences) if len(differences) else []
    sentences.append((f"Each model was trained once, by {run.settings.algorithm} with seed {seed}", ()))
    sentences += [(text, ())] if (text := describe_statistics(about["batch_norm"]).rstrip(".")) else []
    return number_references([*sentences, name_program()])


def _facts(run: RunFolder, results: Results) -> dict[str, str]:
    about, method = results.about, _intervals(run, results).method
    facts = {
        "data": run.origin.description,
        "model": about["model"],
        "algorithm": f"{run.settings.algorithm}, {run.settings.window} local steps per round",
        "test images": results.scored,
        "K": ", ".join(map(str, run.settings.ks)),
        "seed": str(run.settings.seed),
        "intervals": f"{METHODS[method].about} ({method})",
    }
    if run.federation is not None:
        machines = run.federation["hospitals"].items()
        devices = (f"{name} ({machine['device']})" for name, machine in machines)
        facts["trained at"] = ", ".join(devices) + ": each at its own images, over a server"
    if spent := privacy_spent(run):
        facts["privacy"] = spent
    if unalike := results.about.get("made_unalike"):
        facts["trained with"] = unalike
    if left_out := sum(run.about["quarantined"].values()):
        facts["left out"] = f"{left_out:,} unreadable images"
    if notes := [f"{site}: {note}" for site, devices in run.about["notes"].items() for note in devices]:
        facts["labels"] = "; ".join(notes)
    return facts


def _calibration_table(run: RunFolder) -> Grid:
    def cell(result: Calibration | None) -> Cell:
        return Cell("-") if result is None else Cell(number(result.ece), (f"Brier {result.brier:.3f}",))

    rows = ((f"K={k}", (cell(calibration(column)) for column in run.columns(k))) for k in run.settings.ks)
    caption = "Expected calibration error (15 bins of equally many images), and below it the Brier score"
    return make_grid("calibration-errors", caption, ("K", *_head(run)), rows)


def _points_table(run: RunFolder) -> Grid:
    """AUPRC of the largest K, and the effect of three thresholds."""
    points = {
        f"at specificity {SHARE}": metrics.sensitivity_at_specificity,
        f"at sensitivity {SHARE}": metrics.specificity_at_sensitivity,
        "at Youden's index": metrics.youden,
    }

    def cell(point: OperatingPoint | None) -> Cell:
        if point is None:
            return Cell("-")
        below = (f"PPV {number(point.ppv)}", f"NPV {number(point.npv)}")
        return Cell(f"{point.sensitivity:.3f} / {point.specificity:.3f}", below)

    columns = run.columns()
    rows: Rows = [("AUPRC", [number(metrics.average_precision(column)) for column in columns])]
    rows += [(name, [cell(point_of(column)) for column in columns]) for name, point_of in points.items()]
    caption = f"AUPRC of K={run.settings.ks[-1]}, and sensitivity / specificity at three thresholds with PPV and NPV"
    return make_grid("points", caption, ("number", *_head(run)), rows)


def _decide(run: RunFolder, results: Results, texts: Sequence[str]) -> Decisions:
    """Decisions of the largest K at these thresholds.

    Raises `ConfigError` if one cannot be read, or the scores stayed at a hospital.
    """
    if run.scores_stay:
        raise ConfigError("--threshold: the scores stayed at the hospital, so nothing is called", kind="no scores")
    try:
        given = read_thresholds(texts, run.diseases)
    except ValueError as error:
        raise ConfigError(f"--threshold {error}", kind="invalid threshold", option="threshold") from None
    at = {disease: given.get(disease, 0.5) for disease in run.diseases}
    return decide(scored_frame(run.predictions(), list(run.diseases)), at, _intervals(run, results))


def _training_table(run: RunFolder) -> Grid:
    rows: Rows = []
    for k in run.settings.ks:
        sums, time = run.costs(k), run.time(k)
        counts = (f"{sums['rounds']:,}", f"{sums['gradients']:,}", f"{sums['images']:,}")
        megabytes = (f"{sums['bytes_up'] / 1e6:,.2f}", f"{sums['bytes_down'] / 1e6:,.2f}")
        part = ("last part only: it was interrupted",) if time["resumed"] else ()
        took = Cell(f"{time['seconds']:.0f}", part)
        rows.append((f"K={k}", (*counts, *megabytes, took)))
    names = ("K", "rounds", "gradients", "images", "MB up", "MB down", "seconds")
    return make_grid("training", "Cost of stage 2, summed over all clients and rounds", names, rows)


def _how_to_reproduce(run: RunFolder) -> dict[str, Any]:
    about = run.about
    rows = ((part, (str(digest),)) for part, digest in about["inputs"].items())
    file, own_sites = _name_sites(run)
    configuration = yaml.safe_dump(file, sort_keys=False, allow_unicode=True)
    return {
        "own_sites": own_sites,
        "skipped": sum(about["quarantined"].values()),
        "configuration": configuration,
        "configuration_uri": "data:text/yaml;base64," + base64.b64encode(configuration.encode()).decode(),
        "inputs": make_grid("inputs", _INPUTS, ("part", "digest"), rows, "plain"),
        "results_version": about["results_version"],
        "digest": about["digest"],
        "machine": about["machine"],
        "pipeline": run.pipeline_name,
        "federated": run.federation is not None,
    }


def _reproduce_methods(results: Results, folders: Sequence[Path]) -> dict[str, Any]:
    """Configurations that repeat the first run of each method whose folder is there, and digests of all their data."""
    first = {run["run"]: run["folder"] for run in reversed(results.about["runs"])}
    places = {folder.name: folder for folder in folders if (folder / STUDY).is_file()}
    names: dict[str, list[str]] = {}
    for name in reversed(first):
        names.setdefault(first[name], []).append(name)
    runs = {", ".join(names[place]): RunFolder.open(places[place]) for place in names if place in places}
    rows = dict.fromkeys((part, str(digest)) for run in runs.values() for part, digest in run.about["inputs"].items())
    grid = make_grid("inputs", _INPUTS, ("part", "digest"), ((part, (digest,)) for part, digest in rows), "plain")
    return {"methods_again": {name: _how_to_reproduce(run) for name, run in runs.items()}, "inputs": grid}


def _name_sites(run: RunFolder) -> tuple[dict[str, Any], list[str]]:
    """The configuration, with the names by which bundled sites are found, and the YAMLs of all others."""
    file, known = run.pipeline_file, list_bundled_sites()
    sites, own_sites = [], []
    for entry, site in zip_longest(file["sites"], run.sites["hospitals"][: len(file["sites"])]):
        config = entry.get("config")
        same = [name for name in known if f"{PurePath(name).name}.yaml" == config]
        configs = {name: load_site_config(known[name]) for name in same} if site else {}
        names = [
            name for name, config in configs.items() if (config.title, config.source) == (site["title"], site["source"])
        ]
        sites.append({**entry, "config": f"{names[0]}.yaml"} if len(names) == 1 else entry)
        own_sites += [] if len(names) == 1 or config is None else [config]
    return {**file, "sites": sites}, own_sites


def _head(run: RunFolder) -> list[Cell]:
    return make_disease_columns(auc.record() for auc in run.row().diseases)


def _versions(values: Mapping[str, str]) -> Grid:
    rows = ((package, (version,)) for package, version in values.items())
    return make_grid("versions", "Software versions", ("package", "version"), rows, "plain")
