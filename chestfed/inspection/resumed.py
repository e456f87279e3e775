"""Work on a site's image files that can be stopped and resumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TypeVar

from chestfed.core.workers import spread

Job = TypeVar("Job")
Found = TypeVar("Found")
Keys = Sequence[bytes | None]

_BATCH = 64  # files between two writes


def resumed(
    keys: Keys,
    jobs: Callable[[int], Job],
    work: Callable[[Job], Found],
    *,
    find: Callable[[Sequence[bytes]], dict[bytes, Found]],
    keep: Callable[[Sequence[bytes], Sequence[Found]], None],
    lasting: Callable[[Found], bool],
    crashed: Callable[[Job], Found],
    what: str,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[bytes, Found]:
    """What is found of every file with a key, by key: what was kept, and the rest made now and kept.

    Parameters
    ----------
    keys
        Per row; None for a row without work.
    jobs
        The job of a row. `work` does it in another process.
    find, keep
        Read and write what lasts.
    lasting
        Whether a result is kept: one that another try may change is not.
    """
    known = find([key for key in keys if key is not None])
    todo = [row for row, key in enumerate(keys) if key is not None and key not in known]
    results = spread(work, [jobs(row) for row in todo], workers, what=what, crashed=crashed)
    done = 0
    while part := list(islice(results, _BATCH)):
        pairs = [(keys[row], one) for row, one in zip(todo[done : done + len(part)], part, strict=True)]
        found = {key: one for key, one in pairs if key is not None}
        kept = {key: one for key, one in found.items() if lasting(one)}
        keep(list(kept), list(kept.values()))
        known |= found
        done += len(part)
        if progress is not None:
            progress(done, len(todo))
    return known
