from pathlib import Path

import pandas as pd


def read(paths: list[Path]) -> pd.DataFrame:
    table = pd.read_stata(paths[0])
    return table[["image", "patient", "edema"]]
