"""What the processes of test_study_jobs.py do in place of training. It is quick to import: no torch."""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path
from typing import Any

from chestfed.core.errors import ChestfedWarning
from chestfed.studies.jobs import _send_warnings


class Cpu:
    """In place of an `Experiment`, whose module imports torch."""

    def at(self, _: int) -> Cpu:
        """The same for every process."""
        return self


def work(job: Any, messages: Any) -> None:
    """Write a file, or end as the label says."""
    messages.put((job.label, (f"{job.label}: step", 1, 2, "", ""), None))
    if job.label == "warning":
        _send_warnings(job.label, messages)
        warnings.warn("MLflow stopped", stacklevel=1)
        warnings.warn("no version", ChestfedWarning, stacklevel=1)
    if job.label == "killed":
        os._exit(9)
    if job.label == "endless":
        Path(job.out, "endless.pid").write_text(str(os.getpid()))
        time.sleep(600)
    if job.label != "failing":
        Path(job.out, job.label).touch()
    messages.put((job.label, None, "no memory" if job.label == "failing" else ""))
