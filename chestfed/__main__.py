"""`python -m chestfed` is `chestfed`."""

from chestfed.cli import main

main()
