"""Scores of a network on the test set."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from chestfed.evaluation.auc import DiseaseAuc, auc_per_disease
from chestfed.evaluation.probabilities import probabilities
from chestfed.experiment.device import Machine
from chestfed.images.batches import EvalBatches
from chestfed.models import FlatModule
from chestfed.training.clients import TestSet


def score(
    network: FlatModule, parameters: Tensor, buffers: Tensor, test: TestSet, batch_size: int, machine: Machine
) -> np.ndarray:
    """Probabilities float64 `[n, J]` of the network with these parameters `[>= d]` and buffers, in row order."""
    network.bind(parameters)
    network.load_buffers(buffers)
    network.module.eval()
    batches = EvalBatches(test.images, test.labels, batch_size, channels_last=machine.channels_last)
    results = []
    with torch.inference_mode():
        for batch in batches:
            images = batch.images.to(machine.device)
            with torch.autocast(machine.device.type, torch.bfloat16, enabled=machine.autocast):
                logits = network.module(images)
            results.append(logits.float().cpu())
    return probabilities(torch.cat(results).numpy())


def evaluate(scores: np.ndarray, test: TestSet) -> list[DiseaseAuc]:
    """AUC of every disease on the test set."""
    return auc_per_disease(scores, test.labels, test.diseases)
