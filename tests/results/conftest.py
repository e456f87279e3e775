"""Tests of results judge by the number of patients that users' results are judged by."""

from __future__ import annotations

import pytest

from chestfed.results.evaluation.labeled import LEAST_PATIENTS


@pytest.fixture(autouse=True)
def _ten_patients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chestfed.results.evaluation.labeled.LEAST_PATIENTS", LEAST_PATIENTS)
