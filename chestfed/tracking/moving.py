"""A local MLflow store that was moved: MLflow notes full paths of artifacts, which are brought up to date."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

#: Beside the store.
ARTIFACTS: Final = "mlflow-artifacts"
#: The columns of MLflow's tables that hold where artifacts are.
_PLACES: Final = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)


def follow(uri: str, experiment: str) -> None:
    """Point a local store at the artifacts beside it, if it names another place and they are there.

    Other stores are left as they are, and so are artifacts elsewhere: a folder that is not called `mlflow-artifacts`.
    """
    file = Path(uri.removeprefix("sqlite:///"))
    here = file.resolve().parent / ARTIFACTS
    if not uri.startswith("sqlite:///") or not file.is_file() or not here.is_dir():
        return
    with closing(sqlite3.connect(file)) as store, suppress(sqlite3.OperationalError):  # not a store, or of old
        asked = store.execute("SELECT artifact_location FROM experiments WHERE name = ?", [experiment])
        (found,) = asked.fetchone() or [""]
        if not found.endswith(f"/{ARTIFACTS}") or found == here.as_uri():
            return
        for table, column in _PLACES:
            inside = f"substr({column} || '/', 1, ?) = ? || '/'"
            values = [here.as_uri(), len(found) + 1, len(found) + 1, found]
            store.execute(f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE {inside}", values)
        store.commit()
