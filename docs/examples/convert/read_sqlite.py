import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd


def read(paths: list[Path]) -> pd.DataFrame:
    with closing(sqlite3.connect(f"{paths[0].resolve().as_uri()}?mode=ro", uri=True)) as file:
        return pd.read_sql("SELECT image, patient, edema FROM labels", file, dtype={"edema": "Int64"})
