"""`python -m chestfed` is `chestfed`."""

from chestfed.app.cli import main

main()
