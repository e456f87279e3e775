"""Opens a site in a process of its own, started by `process_checks` in another folder, locale and time zone.

    python -m chestfed.testing.elsewhere CONFIG DATA_ROOT [OVERRIDE ...]  < pickled table

Prints the digests of the table that it opened and of the one that it was given.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

from chestfed.sites import load_site_config, open_site
from chestfed.testing.case import digest


def main() -> None:
    """Read the table, open the site, print both digests."""
    given = pickle.load(sys.stdin.buffer)
    config, root, *overrides = sys.argv[1:]
    opened = open_site(load_site_config(config, overrides), Path(root))
    print(json.dumps({"opened": digest(opened), "given": digest(given)}))


if __name__ == "__main__":
    main()
