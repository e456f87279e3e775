"""A study in float64 equals a plain PyTorch loop to the last digits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from chestfed.core.checkpoint import load_checkpoint
from chestfed.core.errors import ConfigError
from chestfed.learning.models import build_model, reset_classifier
from chestfed.leaves.federation.handshake import refuse_what_cannot_be_spread
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.experiment.resolved import identity
from chestfed.studies.training.costs import bytes_per_client_round
from chestfed.studies.training.data.collection import load_collection
from tests.cases import assert_refused
from tests.studies.training.test_resume_algorithms import Interrupted, make_pipeline, train

DOUBLE = ("runtime.channels_last=false", "runtime.dtype=float64", "pretrain.epochs=0.02", "model.norm=group")
LR = 0.3


def start_module(folder: Path, seed: int) -> nn.Module:
    """The network after stage 1, with a new classifier."""
    pipeline = make_pipeline("fedavg", *DOUBLE)
    module = build_model(pipeline.model, 1, seed).double()
    weights = load_checkpoint(folder / "stage1" / "state.safetensors")[0]["weights"]
    assert weights.dtype == torch.float64
    nn.utils.vector_to_parameters(weights.clone(), module.parameters())
    reset_classifier(module, pipeline.model, 1, seed)
    return module


def test_study_equals_a_plain_loop(tmp_path: Path) -> None:
    pipeline = make_pipeline("fedavg", *DOUBLE, f"methods.*.local_lr={LR}", "federated.stages=1")
    trained = train(pipeline, tmp_path)
    clients = load_collection(pipeline, None, prepare_machine(pipeline.runtime)).list_clients(3)
    settings, machine = pipeline.federated, prepare_machine(pipeline.runtime)
    batches = [
        part.train_batches(settings.batch_size, pipeline.seed, part.name, pipeline.augment, machine) for part in clients
    ]
    server = start_module(tmp_path, pipeline.seed)
    for _ in range(settings.rounds):
        ends = list[Tensor]()
        for client in batches:
            module = start_module(tmp_path, pipeline.seed)
            module.load_state_dict(server.state_dict())
            sgd = torch.optim.SGD(module.parameters(), LR)
            for _ in range(settings.window):
                batch = client.next()
                sgd.zero_grad()
                binary_cross_entropy_with_logits(module(batch.images.double()), batch.labels.double()).backward()
                sgd.step()
            ends.append(nn.utils.parameters_to_vector(module.parameters()).detach())
        nn.utils.vector_to_parameters(torch.stack(ends).mean(dim=0), server.parameters())
    plain = nn.utils.parameters_to_vector(server.parameters()).detach()
    assert trained.point.primal.dtype == torch.float64
    assert (trained.point.primal - plain).abs().max() < 1e-12
    start = nn.utils.parameters_to_vector(start_module(tmp_path, pipeline.seed).parameters())
    assert (plain - start).abs().max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["codasca", "local_scgdam", "local_sgdm_ratio", "fedxl2", "pdmm"])
def test_every_kind_of_objective_runs(algorithm: str, tmp_path: Path) -> None:
    pipeline = make_pipeline(algorithm, *DOUBLE)
    with pytest.raises(Interrupted):
        train(pipeline, tmp_path, stop_after=1)
    trained = train(pipeline, tmp_path)
    assert {part.dtype for part in (trained.point.primal, trained.point.dual)} == {torch.float64}
    up, _ = bytes_per_client_round(pipeline, trained.network.size, 0, 3)
    assert trained.history[-1]["bytes_up"] == 3 * up


def test_float64_is_refused_on_gpus() -> None:
    for setting in ("runtime.bf16=true", "runtime.device=cuda"):
        with assert_refused(ConfigError, kind="invalid value"):
            make_pipeline("fedavg", *DOUBLE, setting)
    with assert_refused(ConfigError, "not for a federation", keys=["collection", "runtime.dtype"]):
        refuse_what_cannot_be_spread(make_pipeline("fedavg", *DOUBLE))


def test_float32_names_the_same_runs() -> None:
    settings = identity(make_pipeline("fedavg"))
    assert "dtype" not in settings["runtime"]
    assert identity(make_pipeline("fedavg", *DOUBLE))["runtime"]["dtype"] == "float64"
