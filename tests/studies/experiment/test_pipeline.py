"""The pipelines of the repository are valid, and hold the published figures."""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import ValidationError

from chestfed.core.bundled import bundled
from chestfed.core.diseases import DISEASES
from chestfed.core.errors import ConfigError
from chestfed.core.plugins import Catalogue
from chestfed.learning.algorithms import ALGORITHMS
from chestfed.learning.objectives import OBJECTIVES
from chestfed.results.tables.run_folder import RunFolder
from chestfed.studies.designs.design import list_variants
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.resolved import identity, shareable
from chestfed.studies.experiment.rules import returned_round
from chestfed.studies.experiment.stage_2 import Federated
from chestfed.studies.training.costs import bytes_per_client_round
from chestfed.studies.training.identity import Identity
from chestfed.studies.tuning.search import collect_ranges, list_grid
from tests.cases import assert_refused

PIPELINES = sorted(bundled("pipelines").rglob("*.yaml"))
TABLE_3 = bundled("pipelines") / "table3_chestxray_ih.yaml"
PUBLISHED = Path(__file__).parent / "published"


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.stem)
def test_every_pipeline_is_valid(path: Path) -> None:
    pipeline = load_pipeline(path)
    assert all((path.parent / entry.config).is_file() for entry in pipeline.sites)


def published(name: str) -> list[dict[str, str]]:
    with (PUBLISHED / name).open(newline="") as file:
        return list(csv.DictReader(file))


def test_published_figures_of_table_3() -> None:
    pipeline = load_pipeline(bundled("pipelines") / "table3_chestxray_ih.yaml")
    assert pipeline.published is not None
    names = {"reference": "coda_plus", "CODA+": "coda_plus", "CODASCA": "codasca"}
    rows = published("table3_chestxray_ih_k16.csv")
    assert len(rows) == len(pipeline.published.auc) == 5
    for row in rows:
        ours = pipeline.published.auc[f"{names[row['method']]}, I={row['window']}"]
        assert ours == {disease: float(row[disease]) for disease in DISEASES}
    assert pipeline.k == [16]
    assert pipeline.evaluation.over_hospitals == "pooled"
    assert [site.clients for site in pipeline.sites] == [4, 3, 3, 5, 1]  # all five organizations, by size
    assert {(site.test_fraction, site.validation_fraction) for site in pipeline.sites} == {(0.05, 0.3)}


@pytest.mark.parametrize("data", ["cats_vs_dogs", "cifar10", "cifar100", "fashion_mnist", "melanoma", "stl10"])
def test_published_compositional_table_1(data: str) -> None:
    pipeline = load_pipeline(bundled("pipelines") / "compositional" / f"table1_{data}.yaml")
    assert pipeline.published is not None
    assert pipeline.collection is not None
    title = {"cats_vs_dogs": "CATvsDOG", "fashion_mnist": "FashionMNIST", "melanoma": "Melanoma"}.get(
        data, data.upper()
    )
    rows = {row["method"]: row for row in published("compositional_table1.csv") if row["dataset"] == title}
    methods = ["LocalSCGDAM", "CoDA", "LocalSGDAM", "LocalSGDM", "LocalSGDM_RL"]
    for ours, method in zip(pipeline.selected_methods, methods, strict=True):
        for window in pipeline.windows:
            auc = pipeline.published.auc[f"{ours.name}, I={window}"]["mean"]
            assert auc == float(rows[method][f"auc_p{window}"])
    assert pipeline.collection.clients == 4
    assert pipeline.published.note == (
        "the paper gives mean and variance across the 4 devices; ± here is the standard deviation over seeds"
    )
    assert pipeline.resolve().federated.batch_size == {"stl10": 8, "melanoma": 16}.get(data, 32)
    assert pipeline.model.name == ("densenet121" if data == "melanoma" else "resnet20")
    assert pipeline.collection.imratio == (None if data == "melanoma" else 0.1)


def test_ring_is_one_command() -> None:
    pipeline = load_pipeline(bundled("pipelines") / "ring_chestxray14.yaml")
    assert [method.name for method in pipeline.methods] == ["pdmm", "admm", "gossip", "centralized"]
    runs = [pipeline.resolve(method.name) for method in pipeline.methods]
    assert {(run.model.norm, run.federated.steps, run.federated.window) for run in runs} == {("group", 4000, 8)}
    assert pipeline.published is None


def test_published_windows_of_figure_1() -> None:
    for row in published("figure1_largest_window.csv"):
        pipeline = load_pipeline(bundled("pipelines") / "figure1" / f"imagenet_ih_k{row['clients']}.yaml")
        assert pipeline.published is not None
        name = {"CODASCA": "codasca", "CODA+": "coda_plus"}[row["method"]]
        assert pipeline.published.largest_window[name] == int(row["largest_window"])
        assert pipeline.windows == [1, 32, 64, 128, 512, 1024]
        assert pipeline.k == [int(row["clients"])]
        assert pipeline.resolve().federated.steps == 20000


@pytest.mark.parametrize("network", ["densenet121", "densenet161"])
def test_published_hyper_parameters(network: str) -> None:
    pipeline = load_pipeline(bundled("pipelines") / f"source_addition_{network}.yaml").resolve()
    assert pipeline.model.name == network
    assert (pipeline.pretrain.lr, pipeline.pretrain.batch_size, pipeline.pretrain.epochs) == (1e-5, 32, 2)
    settings = pipeline.federated
    assert settings.algorithm.name == "codasca"
    assert settings.window in (16, 32, 64, 128)
    assert settings.local_lr in (0.1, 0.01)
    assert (settings.algorithm.prox, settings.stage_steps, settings.batch_size) == (1e-3, 1000, 32)
    assert (pipeline.preprocess.size, pipeline.k) == (320, [1, 2, 3, 4, 5])
    augment = pipeline.augment
    assert (augment.rotation, augment.shift, augment.scale, augment.fill) == (15, 0.05, 0.05, 128)
    assert (pipeline.model.initial_weights, pipeline.evaluation.batch_norm) == ("imagenet", "averaged")
    assert len(pipeline.sites) == 5


def test_a_stage_is_a_whole_number_of_rounds() -> None:
    pipeline = load_pipeline(bundled("pipelines") / "source_addition_densenet121.yaml").resolve()
    for window, rounds in ((16, [63, 62, 63]), (32, [31, 32, 31]), (64, [16, 15, 16]), (128, [8, 8, 7])):
        settings = pipeline.federated.model_copy(update={"window": window})
        assert [stage.rounds for stage in settings.schedule] == rounds
        assert (settings.rounds, settings.steps) == (sum(rounds), sum(rounds) * window)


@hypothesis_settings(deadline=None)
@given(
    window=st.integers(1, 60),
    stages=st.integers(1, 5),
    steps=st.integers(60, 400),
    algorithm=st.sampled_from(["codasca", "npa", "npa_large_batch", "pdmm"]),
)
def test_steps_off_by_half_a_window_at_most(window: int, stages: int, steps: int, algorithm: Any) -> None:
    settings = {"algorithm": algorithm, "window": window, "stages": stages, "stage_steps": steps}
    federated = Federated.model_validate(settings)
    assert federated.wanted_steps == stages * steps
    assert abs(federated.batches - federated.wanted_steps) <= window / 2
    if algorithm == "npa":
        assert federated.batches == federated.wanted_steps


@pytest.mark.parametrize(
    "path", [*sorted((bundled("pipelines") / "figure1").glob("*_ih_k*[0-9].yaml")), TABLE_3], ids=lambda p: p.stem
)
def test_windows_are_evaluated_equally_often(path: Path) -> None:
    pipeline = load_pipeline(path)
    for run in [variant.pipeline for variant in list_variants(pipeline, path) if variant.pipeline.method == "codasca"]:
        window = run.federated.window
        assert abs(run.federated.steps - 20_000) <= window / 2
        assert len(run.evaluated_rounds) == 20
        assert run.evaluated_rounds[-1] == run.federated.rounds
        reached = [number * window for number in run.evaluated_rounds]
        assert all(abs(steps - 1000 * number) < 1024 for number, steps in enumerate(reached, start=1))


def test_total_steps_end_the_last_stage() -> None:
    common = {"window": 10, "stage_steps": 300, "total_steps": 1000}
    settings = Federated.model_validate(common)
    assert [stage.rounds for stage in settings.schedule] == [30, 30, 30, 10]
    assert (settings.wanted_steps, settings.steps) == (1000, 1000)
    assert [stage.lr_factor for stage in settings.schedule] == pytest.approx([1, 1 / 3, 1 / 9, 1 / 27])
    for wrong in ({"stages": 2}, {"total_steps": 1_000_000}):
        with pytest.raises(ValueError, match="stages"):
            Federated.model_validate(common | wrong).check()


def test_windows_and_stages_grow_together() -> None:
    pipeline = load_pipeline(bundled("pipelines") / "figure1" / "cifar100_ih_k16_growing.yaml")
    schedule = pipeline.resolve().federated.schedule
    assert [stage.window for stage in schedule] == [32, 96, 288]
    assert sum(stage.rounds * stage.window for stage in schedule) == pytest.approx(20_000, abs=144)


def test_published_grids_are_searched() -> None:
    table_4 = load_pipeline(bundled("pipelines") / "source_addition_densenet161.yaml")
    counts = {path: {name: len(list_grid(spaces, 1000, 1)) for name, spaces in collect_ranges(pipeline).items()}
              for path, pipeline in {"table_4": table_4, "table_3": load_pipeline(TABLE_3)}.items()}  # fmt: skip
    assert counts == {"table_4": {"codasca": 8}, "table_3": {"codasca": 108, "coda_plus": 27}}
    for path in sorted((bundled("pipelines") / "figure1").glob("*.yaml")):
        spaces = collect_ranges(load_pipeline(path))
        assert len(list_grid(spaces["codasca"], 1000, 1)) == 108


def test_twins_have_more_positives() -> None:
    folder = bundled("pipelines") / "figure1"
    twins = sorted(folder.glob("*_imratio_03.yaml"))
    assert len(twins) == 4
    for path in twins:
        twin = load_pipeline(path)
        first = load_pipeline(folder / f"{path.stem.removesuffix('_imratio_03')}.yaml")
        assert twin.collection is not None
        assert first.collection is not None
        assert twin.collection == first.collection.model_copy(update={"imratio": 0.3})
        assert (twin.windows, twin.published) == (first.windows, None)


def test_the_rounds_that_are_evaluated() -> None:
    path = bundled("pipelines") / "digits_ih.yaml"  # two stages of 320 steps
    for setting, algorithm, expected in (
        ("every=15", "codasca", (15, 30, 40)),
        ("every=15", "npa", (240, 480, 640)),
        ("every=100", "codasca", (40,)),
        ("every_steps=200", "codasca", (13, 25, 38, 40)),
        ("every_steps=320", "pdmm", (20, 40)),
        ("every_steps=200", "npa", (200, 400, 600, 640)),
        ("every_steps=200", "npa_large_batch", (13, 25, 38, 40)),
        ("every_steps=3", "codasca", tuple(range(1, 41))),
    ):
        pipeline = load_pipeline(path, [f"evaluation.{setting}"]).resolve(algorithm)
        assert pipeline.evaluated_rounds == expected, (setting, algorithm)


def test_growing_stages_keep_rounds() -> None:
    """Theorems 1 and 2 of the source paper: step sizes fall as windows and stage lengths grow."""
    growing = Federated(window=8, stage_steps=80, stages=4, local_lr=0.1, lr_decay=2, stage_growth=2, window_growth=2)
    stages = growing.schedule
    assert [stage.window for stage in stages] == [8, 16, 32, 64]
    assert [stage.rounds for stage in stages] == [10] * 4
    assert [stage.window * stage.lr_factor for stage in stages] == [8] * 4
    assert growing.steps == 10 * (8 + 16 + 32 + 64)
    p = torch.full((2,), 0.3)
    rules = [growing.build_rule(number, p, 9) for number in (0, 3)]
    assert [(rule.window, rule.local_lr, rule.dual_lr) for rule in rules] == [(8, 0.1, 0.1), (64, 0.0125, 0.0125)]
    root = Federated.model_validate({"algorithm": {"name": "codasca", "server_lr": "sqrt_k"}})
    assert root.build_rule(0, p, 9).server_lr == 3


def test_returned_round_depends_on_seed() -> None:
    settings = Federated(window=2, stage_steps=10, stage_output="random_round")
    drawn = {returned_round(settings, seed, number) for seed in range(40) for number in range(3)}
    assert drawn == {1, 2, 3, 4, 5}
    assert returned_round(settings, 7, 1) == returned_round(settings, 7, 1)
    assert returned_round(Federated(), 7, 1) is None


def test_parts_that_do_not_suit_refused() -> None:
    for settings, words in (
        ({"algorithm": "scaffold", "objective": "auc"}, ("auc", "scaffold", "codasca")),
        ({"algorithm": "codasca", "objective": "cross_entropy"}, ("cross_entropy", "codasca", "scaffold")),
        ({"algorithm": "pdmm", "objective": "ratio_loss"}, ("ratio_loss", "pdmm", "local_sgdm_ratio")),
        ({"algorithm": "local_scgdam", "objective": "auc"}, ("auc", "local_scgdam", "codasca")),
        ({"algorithm": "pdmm", "lr_decay": 3.0}, ("lr_decay", "pdmm")),
        ({"algorithm": "npa", "window_growth": 2.0}, ("window_growth", "npa")),
        ({"algorithm": "centralized_auc", "weights": "images"}, ("weights", "centralized_auc")),
        ({"algorithm": "none_such"}, ("none_such", "package.module:Name")),
    ):
        with pytest.raises(ValueError, match=re.escape(words[0])) as caught:
            Federated.model_validate(settings).check()
        assert all(word in str(caught.value) for word in words), settings


def keys_of_others(catalogue: Catalogue[Any], name: str) -> list[str]:
    """Options that other parts have and this one has not."""
    options = catalogue.built_in[name].options.model_fields
    return sorted({key for spec in catalogue.built_in.values() for key in spec.options.model_fields} - set(options))


def test_key_of_another_part_refused() -> None:
    for section, catalogue in (("algorithm", ALGORITHMS), ("objective", OBJECTIVES)):
        for name in catalogue.built_in:
            others = keys_of_others(catalogue, name)
            assert others
            for key in [*others, "nonsense"]:
                data = {section: {"name": name, key: 1}}
                if section == "objective":
                    kind = OBJECTIVES.built_in[name].kind
                    data["algorithm"] = next(n for n, spec in ALGORITHMS.built_in.items() if kind in spec.takes)
                with pytest.raises(ValidationError) as caught:
                    Federated.model_validate(data)
                assert [(part["type"], part["loc"]) for part in caught.value.errors()] == [
                    ("extra_forbidden", (section, key))
                ]


@pytest.mark.parametrize(
    "setting",
    [
        *("pretrain.lr=.inf", "federated.local_lr=.nan", "federated.batch_size=1000000000000", "model.growth_rate=1e9"),
        *("federated.window=1000000000000", "evaluation.resamples=1000000000000", "runtime.threads=100000"),
        *("runtime.device=banana", "model.blocks=[0]", "preprocess.size=100000", "sites.0.clients=99999999"),
    ],
)
def test_wrong_values_are_refused_by_key(setting: str) -> None:
    path, key = bundled("pipelines") / "source_addition_samples.yaml", setting.partition("=")[0]
    with assert_refused(ConfigError, "invalid value", place=f"--set {key}"):
        load_pipeline(path, [setting])


def test_mistake_has_line_of_its_key(tmp_path: Path) -> None:
    text = f"title: x\nextends: {bundled('pipelines') / 'source_addition_samples.yaml'}\nk: [2, 1]\n"
    (tmp_path / "p.yaml").write_text(text)
    with assert_refused(ConfigError, "invalid value", key="k", place=f"{tmp_path / 'p.yaml'}:3"):
        load_pipeline(tmp_path / "p.yaml")


def test_bundled_name_may_end_in_yaml(tmp_path: Path) -> None:
    for name in ("digits_ih", "digits_ih.yaml"):
        (tmp_path / "p.yaml").write_text(f"extends: {name}\ntitle: Own\n")
        assert load_pipeline(tmp_path / "p.yaml").collection is not None


def test_paths_of_an_extended_file(tmp_path: Path) -> None:
    base = bundled("pipelines") / "source_addition_samples.yaml"
    (tmp_path / "p.yaml").write_text(f"extends: {base}\ntitle: Own\n")
    pipeline, theirs = load_pipeline(tmp_path / "p.yaml"), load_pipeline(base)
    assert all((tmp_path / entry.config).is_file() for entry in pipeline.sites)
    assert identity(pipeline.resolve()) == identity(theirs.resolve())
    (tmp_path / "a").mkdir()
    pipeline_on_a_graph(tmp_path / "a", "0 1\n0 2\n0 3\n0 4\n")
    (tmp_path / "q.yaml").write_text("extends: a/ours.yaml\ntitle: Own\n")
    assert load_pipeline(tmp_path / "q.yaml").resolve().federated.algorithm.topology == [[0, 1], [0, 2], [0, 3], [0, 4]]
    (tmp_path / "r.yaml").write_text("extends: source_addition_samples\n")
    assert identity(load_pipeline(tmp_path / "r.yaml").resolve()) == identity(theirs.resolve())
    (tmp_path / "s.yaml").write_text("extends: source_adition_samples.yaml\n")
    near = "source_addition_samples"
    with assert_refused(ConfigError, "no such file", place=f"{tmp_path / 's.yaml'}:1", suggestion=near):
        load_pipeline(tmp_path / "s.yaml")


def test_npa_steps_and_batches() -> None:
    schedule: dict[str, Any] = {"window": 4, "stage_steps": 10, "stages": 2, "batch_size": 8}
    plain = Federated.model_validate(schedule)
    assert (plain.stage_batches, plain.batches) == ([12, 8], 20)  # what one is too long by, the next is shorter by
    small = Federated.model_validate({**schedule, "algorithm": "npa"})
    large = Federated.model_validate({**schedule, "algorithm": "npa_large_batch"})
    assert [(s.window, s.rounds) for s in small.schedule] == [(1, 10)] * 2
    assert [(s.window, s.rounds) for s in large.schedule] == [(1, 3), (1, 2)]
    assert (small.images_per_step, large.images_per_step) == (8, 32)
    assert large.rounds == plain.rounds  # as many communications as with the window, and as many images
    assert large.steps * large.images_per_step == plain.steps * plain.images_per_step


def test_without_a_server_the_stages_are_one() -> None:
    settings = Federated.model_validate({"algorithm": "admm", "window": 4, "stage_steps": 10, "stages": 2})
    assert [(s.window, s.rounds, s.lr_factor) for s in settings.schedule] == [(4, 5, 1.0)]


def test_more_clients_than_exist_refused() -> None:
    with assert_refused(ConfigError, "invalid value", key="k"):
        load_pipeline(bundled("pipelines") / "source_addition_samples.yaml", ["k=[1,6]"])
    with assert_refused(ConfigError, "invalid value", key="sites.0"):
        load_pipeline(bundled("pipelines") / "source_addition_samples.yaml", ["sites.0.cut=unlike"])


def test_misspelling_has_line_and_suggestion(tmp_path: Path) -> None:
    text = (bundled("pipelines") / "source_addition_samples.yaml").read_text(encoding="utf-8")
    line = next(number for number, content in enumerate(text.splitlines(), start=1) if "  window:" in content)
    (tmp_path / "slip.yaml").write_text(text.replace("  window:", "  widow:"), encoding="utf-8")
    place = f"{tmp_path / 'slip.yaml'}:{line}"
    with assert_refused(ConfigError, "unknown key", key="federated.widow", place=place, suggestion="window"):
        load_pipeline(tmp_path / "slip.yaml")


def test_key_of_the_chosen_part_is_found() -> None:
    """An option of a method's algorithm is suggested below it, though a key of the method is spelled alike."""
    with pytest.raises(ConfigError) as caught:
        load_pipeline(bundled("pipelines") / "digits_ih.yaml", ["methods.fedprox.prox=2"], methods=["fedprox"])
    assert (caught.value.kind, caught.value.fields["suggestion"]) == ("unknown key", "methods.fedprox.algorithm.prox")


def test_identity_leaves_out_places() -> None:
    path = bundled("pipelines") / "source_addition_samples.yaml"
    here, there = (
        load_pipeline(path).resolve(),
        load_pipeline(path, ["data_root=/elsewhere", "sites.0.root=/x", "runtime.loader_workers=5"]).resolve(),
    )
    assert identity(here) == identity(there)
    assert identity(here) != identity(load_pipeline(path, ["federated.local_lr=0.01"]).resolve())


@pytest.mark.parametrize("algorithm", list(ALGORITHMS.built_in))
def test_stored_configuration_is_the_same(algorithm: str) -> None:
    settings = [f"methods=[{{algorithm: {algorithm}}}]"]
    pipeline = load_pipeline(bundled("pipelines") / "source_addition_samples.yaml", settings).resolve()
    assert identity(Pipeline.model_validate(shareable(pipeline))) == identity(pipeline)


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.stem)
def test_resolved_pipeline_is_accepted(path: Path, tmp_path: Path) -> None:
    """As the page of a study has it, where bundled sites also have the names by which they are found."""
    file = load_pipeline(path)
    for method in file.methods:
        resolved = shareable(file.resolve(method.name))
        (tmp_path / "study.json").write_text(json.dumps({"configuration": resolved}))
        (tmp_path / "again.yaml").write_text(yaml.safe_dump(RunFolder(tmp_path).pipeline_file))
        assert shareable(load_pipeline(tmp_path / "again.yaml", sites_here=False).resolve()) == resolved


def pipeline_on_a_graph(folder: Path, edges: str, topology: str = "graph.txt") -> Pipeline:
    """One that lies in `folder` and names a graph there."""
    (folder / "graph.txt").write_text(edges, encoding="utf-8")
    base = bundled("pipelines") / "digits_ih.yaml"
    text = f"extends: {os.path.relpath(base, folder)}\nmethods: [{{algorithm: {{name: pdmm, topology: {topology}}}}}]\n"
    (folder / "ours.yaml").write_text(text, encoding="utf-8")
    return load_pipeline(folder / "ours.yaml").resolve()


def test_identity_holds_content_of_graph(tmp_path: Path) -> None:
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
    ring = pipeline_on_a_graph(tmp_path / "a", "0 1\n1 2\n2 3\n3 4\n4 0\n")
    star = pipeline_on_a_graph(tmp_path / "a", "0 1\n0 2\n0 3\n0 4\n")
    assert star.federated.algorithm.topology == [[0, 1], [0, 2], [0, 3], [0, 4]]
    digests = [Identity(identity(pipeline), {}, {}).digest for pipeline in (ring, star)]
    assert digests[0] != digests[1]
    elsewhere = pipeline_on_a_graph(tmp_path / "b", "# the same\n4,0\n0 3\n2 0\n0 1\n", str(tmp_path / "b/graph.txt"))
    assert identity(elsewhere) == identity(star)
    listed = load_pipeline(tmp_path / "b/ours.yaml", ["methods.pdmm.algorithm.topology=[[0,1],[0,2],[0,3],[0,4]]"])
    assert identity(listed.resolve()) == identity(star)
    other = load_pipeline(tmp_path / "b/ours.yaml", ["methods=[{algorithm: {name: gossip, topology: graph.txt}}]"])
    assert other.resolve().federated.algorithm.topology == star.federated.algorithm.topology


def test_missing_graph_is_named_with_place(tmp_path: Path) -> None:
    with assert_refused(ConfigError, "unreadable graph", key="methods.0.algorithm.topology"):
        pipeline_on_a_graph(tmp_path, "0 1\n", "rign")


def test_bytes_of_a_round_follow_the_formula() -> None:
    """CODASCA sends v, alpha and both control variates: 2(d + 3J) numbers each way; CODA+ half of it."""
    path = bundled("pipelines") / "source_addition_samples.yaml"
    d, j = 1234, 5
    assert bytes_per_client_round(load_pipeline(path).resolve(), d, 0, 5) == (8 * (d + 3 * j),) * 2
    half = load_pipeline(path, ["selected=[codasca_minimal]"]).resolve()
    assert bytes_per_client_round(half, d, 0, 5) == (4 * (d + 3 * j),) * 2
    plus = load_pipeline(path, ["selected=[coda_plus]"]).resolve()
    assert bytes_per_client_round(plus, d, 10, 5) == (4 * (d + 3 * j) + 40,) * 2
    for algorithm, numbers in (("fedavg", d), ("fedprox", d), ("scaffold", 2 * d), ("local_sgdm", 2 * d)):
        other = load_pipeline(path, [f"selected=[{algorithm}]"]).resolve()
        assert bytes_per_client_round(other, d, 0, 5) == (4 * numbers,) * 2
    for algorithm, primal, dual in (("local_sgdam", 2, 2), ("local_scgdam", 3, 2)):
        other = load_pipeline(path, [f"selected=[{algorithm}]"]).resolve()
        assert bytes_per_client_round(other, d, 0, 5) == (4 * (primal * (d + 2 * j) + dual * j),) * 2
    ratio = load_pipeline(path, ["selected=[fedavg]", "methods.*.objective=ratio_loss"]).resolve()
    assert bytes_per_client_round(ratio, d, 0, 5) == (4 * d, 4 * (d + 2 * j))
    assert bytes_per_client_round(load_pipeline(path, ["selected=[centralized]"]).resolve(), d, 0, 5) == (0, 0)
    for algorithm, rho, numbers in (("pdmm", 0.0, 2 * d), ("admm", 0.1, 4 * d), ("gossip", None, 2 * d)):
        ring = [f"selected=[{algorithm}]"] + ([f"methods.*.algorithm.rho={rho}"] if rho is not None else [])
        assert bytes_per_client_round(load_pipeline(path, ring).resolve(), d, 0, 5) == (4 * numbers, 0)


def test_empty_k_is_refused(tmp_path: Path) -> None:
    path = bundled("pipelines") / "source_addition_samples.yaml"
    (tmp_path / "own.yaml").write_text(f"extends: {path}\ntitle: Own\nk: []\n")
    with assert_refused(ConfigError, "invalid value", key="k", place=f"{tmp_path / 'own.yaml'}:3"):
        load_pipeline(tmp_path / "own.yaml")
    assert load_pipeline(path, ["k=null"]).k == [1, 2, 3, 4, 5]
    for nothing in ("0", "false", "''", "{}"):
        with assert_refused(ConfigError, "invalid value", key="k"):
            load_pipeline(path, [f"k={nothing}"])


def test_endless_clients_refused() -> None:
    for clients in (0, 10**6, 10**30):
        with assert_refused(ConfigError, "invalid value", key="sites.0.clients"):
            load_pipeline(bundled("pipelines") / "chestxray8_algorithms.yaml", [f"sites.0.clients={clients}", "k=null"])


def test_title_has_no_number_that_a_key_sets() -> None:
    """`collection.clients` may be set on the command line, and the title stays."""
    lines = {file.stem: re.findall("^title: .*", file.read_text(encoding="utf-8"), re.MULTILINE) for file in PIPELINES}
    assert [name for name, title in lines.items() if re.search(r"\d+ (clients|devices|nodes)", "".join(title))] == []


def test_sites_of_hospitals_need_no_file_here(tmp_path: Path) -> None:
    sites = "sites: [{config: anne.yaml}, {config: bert.yaml}]\nk: [1, 2]\nalternatives: null\n"
    base = bundled("pipelines") / "source_addition_samples.yaml"
    (tmp_path / "two.yaml").write_text(f"extends: {base}\n{sites}", encoding="utf-8")
    there = load_pipeline(tmp_path / "two.yaml", sites_here=False)
    assert [Path(site.config).name for site in there.sites] == ["anne.yaml", "bert.yaml"]
    with assert_refused(ConfigError, "no such name", key="sites.0.config"):
        load_pipeline(tmp_path / "two.yaml")
