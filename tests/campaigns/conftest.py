"""What the campaigns share: an undisturbed study."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.campaigns.children import STUDY, Campaign, import_modules, make_store


@pytest.fixture(scope="session")
def campaign(tiny_hospitals: Path, tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """A folder with the tiny hospitals and, in `sound`, an undisturbed study; all children have its imports."""
    from chestfed.reports.tracking.store import connect, local_store

    home, store = tmp_path_factory.mktemp("campaign"), tmp_path_factory.mktemp("store")
    (home / "synthetic_hospitals").symlink_to(tiny_hospitals)
    connect(local_store(store))  # sets how MLflow is imported
    import_modules((*STUDY, "--out", "sound", "--no-tracking"), home, partial(make_store, store))
    return Campaign(home, home / "sound")
