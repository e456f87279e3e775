"""chestfed in Python: run a study, open a hospital, score a model, compare, tune; for notebooks and scripts.

The functions do what the commands of the same names do, write the same files, and resume as these do.
"""

from __future__ import annotations

from chestfed.app.api.running import Tuned, load_pipeline, run, tune
from chestfed.app.api.scoring import compare, evaluate

__all__ = ["Tuned", "compare", "evaluate", "load_pipeline", "run", "tune"]
