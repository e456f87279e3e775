"""Checks in another process: does the table depend on where it is opened, and can it be handed over?"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from chestfed.testing.case import Case, digest

_SECONDS = 600


def elsewhere(case: Case) -> Iterator[str]:
    """Another process, working folder, locale, time zone and hash seed give the same table, which survives pickling."""
    try:
        pickled = pickle.dumps(case.table)
    except Exception as error:  # what a table of a reader may hold that cannot be handed over
        yield f"the table cannot be pickled, so no worker process could have it: {type(error).__name__}: {error}"
        return
    names = "".join([str(case.data_root), str(case.config_file), *case.table.frame["image"]])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path),
        "PYTHONHASHSEED": "4242",
        "TZ": "Pacific/Kiritimati",
        # A program that forgets to name an encoding fails here, as it would on Windows.
        **(
            {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"} if names.isascii() else {"LC_ALL": "C.UTF-8"}
        ),
    }
    folder = case.scratch / "elsewhere"
    folder.mkdir()
    paths = [str(path.absolute()) for path in (case.config_file, case.data_root)]
    command = [sys.executable, "-m", "chestfed.testing.elsewhere", *paths, *case.overrides]
    result = subprocess.run(
        command, input=pickled, cwd=folder, env=environment, capture_output=True, timeout=_SECONDS, check=False
    )
    if result.returncode:
        last = result.stderr.decode("utf-8", errors="replace").strip().splitlines()[-1:]
        yield f"in another folder, locale and time zone the site does not open: {' '.join(last)}"
        return
    found = json.loads(result.stdout.splitlines()[-1])
    if found["opened"] != digest(case.table):
        yield "in another folder, locale and time zone the site has another table"
    if found["given"] != digest(case.table):
        yield "a table that another process was given is another one there"
