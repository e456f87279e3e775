"""A trained model as MLflow's `pyfunc`: paths of image files in, probabilities per disease out.

    model = mlflow.pyfunc.load_model("models:/NAME/1")
    model.predict(["a.png", "b.dcm"])

Files are decoded and preprocessed as in a study. The model folder holds the weights as safetensors and names this
module as its loader; nothing in it is pickled, so loading one runs no code but chestfed's, which has to be installed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from chestfed.core.errors import ChestfedError, ImageError
from chestfed.experiment.device import Machine
from chestfed.images.batches import Rows
from chestfed.images.database import KEY
from chestfed.images.decode import prepared
from chestfed.images.levels import Stored
from chestfed.scoring.model_outputs import score_images
from chestfed.scoring.scorers import Declared, Scorer, open_scorer

#: Images that are decoded and scored at a time.
BATCH = 32


class ImageModel:
    """Scores image files; `diseases` are the columns of a prediction, in order."""

    def __init__(self, scorer: Scorer, machine: Machine) -> None:
        self._scorer, self._machine = scorer, machine
        self.diseases = scorer.diseases

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Probabilities of image files.

        Parameters
        ----------
        model_input
            Paths of JPEG, PNG or DICOM files: a list, a series, or a frame with a column `path` (or one column).
        params
            `inverted`: the stored values are MONOCHROME1 though the format can't say so (as PadChest's PNG).

        Returns
        -------
        pandas.DataFrame
            One row per path, in order, with the index of a frame or series that was given: a column per disease,
            float64 in [0, 1], and `error`. A file that cannot be read has NaN, and under `error` its path and why; else
            `error` is empty.

        Raises
        ------
        ChestfedError
            If the input is not paths.
        """
        paths = _paths(model_input)
        preprocess, stored = self._scorer.preprocess, Stored(inverted=bool((params or {}).get("inverted", False)))
        scores, errors = np.full((len(paths), len(self.diseases)), np.nan), [""] * len(paths)
        for start in range(0, len(paths), BATCH):
            rows, pixels = [], []
            for row in range(start, min(start + BATCH, len(paths))):
                try:
                    pixels.append(prepared(Path(paths.iloc[row]), stored, preprocess)[0])
                    rows.append(row)
                except ImageError as error:
                    errors[row] = f"{paths.iloc[row]}: {error}"
                except OSError as error:
                    errors[row] = f"{paths.iloc[row]}: cannot be read ({error.strerror})"
            if rows:
                scores[rows] = score_images(self._scorer, _Decoded(pixels), BATCH, self._machine)
        found = pd.DataFrame(scores, index=paths.index, columns=list(self.diseases))
        return found.assign(error=errors)


def _load_pyfunc(data_path: str) -> ImageModel:
    """Open a `model.safetensors`, on CUDA if there is one; torch's number of threads is left as it is.

    MLflow calls it by this name.

    Raises
    ------
    ChestfedError
        If the file is damaged or not a model of chestfed.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    machine = Machine(device, torch.get_num_threads(), autocast=False, channels_last=True, loader_workers=0)
    scorer = open_scorer(data_path, Declared(), machine)
    for note in scorer.notes:
        logging.getLogger(__name__).warning(note)
    return ImageModel(scorer, machine)


class _Decoded:
    """Preprocessed pixels as the images that are scored."""

    def __init__(self, pixels: Sequence[np.ndarray]) -> None:
        self._pixels = pixels
        self.records = np.arange(len(pixels))
        self.digests = np.zeros(len(pixels), KEY)

    def read(self, rows: Rows) -> np.ndarray:
        """Pixels uint8 `[n, size, size]`."""
        return np.stack([self._pixels[row] for row in rows])


def _paths(given: Any) -> pd.Series:
    """The paths of a list, series or frame."""
    if isinstance(given, str | Path):
        given = [given]
    if isinstance(given, pd.DataFrame):
        if "path" not in given and len(given.columns) != 1:
            raise ChestfedError(f"give a column 'path'; the columns are {', '.join(map(str, given.columns))}")
        given = given["path"] if "path" in given else given.iloc[:, 0]
    paths = given if isinstance(given, pd.Series) else pd.Series(list(given), dtype=object)
    wrong = [type(path).__name__ for path in paths if not isinstance(path, str | Path)]
    if wrong:
        raise ChestfedError(f"paths of image files are expected, one each; found {wrong[0]}")
    return paths
