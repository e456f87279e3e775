"""The sample hospitals of a study: `samples` in a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from chestfed.studies.experiment.data import SampleHospitals
from chestfed.studies.experiment.providers import ProviderSpec, Unwritten
from chestfed.studies.training.reporting import current

SAMPLES = ProviderSpec(
    "samples",
    write=f"{__name__}:write_samples",
    labels=f"{__name__}:label_samples",
    estimate=f"{__name__}:estimate_samples",
)


def write_samples(folder: Path, options: SampleHospitals) -> None:
    """Write the synthetic hospitals unless they exist."""
    from chestfed.leaves.samples.writing import is_complete, write_hospitals

    if is_complete(folder, seed=options.seed, size=options.size):
        return
    text = f"writing five SYNTHETIC hospitals (no patients) to {folder}"
    current().tell(lambda reporter: reporter.noted(text))
    write_hospitals(folder, seed=options.seed, size=options.size, progress=current().bind("drawing"))


def estimate_samples(folder: Path, options: SampleHospitals) -> Unwritten:
    """The time that drawing the hospitals takes that are not in the folder, from one image of each."""
    from chestfed.leaves.samples.writing import time_drawing

    return Unwritten(*time_drawing(folder, seed=options.seed, size=options.size))


@contextmanager
def label_samples(folder: Path, options: SampleHospitals) -> Iterator[Path]:
    """The folder or, if its synthetic hospitals do not exist yet, a temporary one with their label files.

    Links to what else there is in the folder are beside them: hospitals that were added may be there.
    """
    from chestfed.leaves.samples.writing import is_complete, write_labels

    if is_complete(folder, seed=options.seed, size=options.size):
        yield folder
        return
    with TemporaryDirectory(prefix="chestfed-") as place:
        write_labels(Path(place), folder, seed=options.seed, size=options.size)
        for path in folder.glob("[!.]*"):
            if not Path(place, path.name).exists():
                Path(place, path.name).symlink_to(path.absolute())
        yield Path(place)
