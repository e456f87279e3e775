"""What a dry run says of the time: a span without the warm-up, and whether the machine is busy."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from chestfed.core.bundled import bundled
from chestfed.core.provenance import Origin
from chestfed.engines.torchrun import Options
from chestfed.experiment.device import prepare_machine
from chestfed.experiment.loading import load_pipeline
from chestfed.training import plan
from chestfed.training.plan import Counted, Span, StudyPlan, Timings, estimated


class Clocks:
    """Clocks of a machine on which the first call of `act` takes 50 s and later ones 1 s, a quarter of them its own."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0
        self.calls = 0

    def act(self) -> None:
        self.wall += 50.0 if self.calls == 0 else 1.0
        self.cpu += 12.5 if self.calls == 0 else 0.25
        self.calls += 1


@pytest.mark.parametrize(
    ("device", "load", "expected"),
    [
        ("cpu", 8.0, Span(0.125, 1.0)),  # a quarter of a second of work, for two threads
        ("cpu", 0.0, Span(0.125, 0.25)),  # nobody else works: that the threads waited for each other is not typical
        ("cuda", 8.0, Span(1.0, 1.0)),
    ],
)
def test_the_warm_up_does_not_count_and_alone_is_what_the_processor_worked(
    monkeypatch: pytest.MonkeyPatch, device: str, load: float, expected: Span
) -> None:
    clocks = Clocks()
    monkeypatch.setattr(time, "perf_counter", lambda: clocks.wall)
    monkeypatch.setattr(time, "process_time", lambda: clocks.cpu)
    monkeypatch.setattr(plan.torch, "set_num_threads", lambda _: None)
    machine: Any = SimpleNamespace(device=SimpleNamespace(type=device), threads=2)
    assert plan._span(clocks.act, machine, load) == expected


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (Span(12.2, 12.4), "12 s"),
        (Span(12, 40), "12 to 40 s"),
        (Span(50, 600), "50 s to 10 min"),
        (Span(7200, 9000) + Span(3600, 3600), "3.0 to 3.5 h"),
    ],
)
def test_a_span_is_written_with_as_few_units_as_it_takes(span: Span, text: str) -> None:
    assert str(span) == text


def test_a_busy_machine_is_named_and_an_idle_or_unknown_one_is_not() -> None:
    def told(load: float | None) -> str:
        return estimated(Span(60, 600), Timings(1, 0, Span(), Span(), Span(), load))

    assert "BUSY" in told(2.5)
    assert "BUSY" not in told(0.2) + told(None)


def test_on_ranks_the_time_is_that_of_the_busiest(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    timings = Timings(1, 0, Span(1, 1), Span(2, 2), Span(0, 0), None)
    stage_2 = SimpleNamespace(steps=10, taking_part=lambda k: k, spec=SimpleNamespace(pooled=False))
    pretrain = SimpleNamespace(steps=lambda rows: 100)
    options = Options(name="torchrun")
    pipeline: Any = SimpleNamespace(engine=options, federated=stage_2, pretrain=pretrain, evaluated_rounds=[])
    client = Counted("a", rows=1, positives=(), negatives=(), images=1)
    study = StudyPlan("", pipeline, (client,), client, Origin.REAL, Span(), timings)
    assert (study.stage_1_seconds.high, study.stage_2_seconds(5).high) == (100, 60)


def test_a_network_that_ends_in_one_pixel_is_timed() -> None:
    """Batch normalization refuses a batch of one such image."""
    small = ["preprocess.size=64", "model.pool=2", "model.norm=batch"]
    pipeline = load_pipeline(bundled("pipelines") / "source_addition_samples.yaml", small).resolve()
    assert plan.time_steps(pipeline, prepare_machine(pipeline.runtime)).parameters > 0
