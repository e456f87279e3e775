"""Run the notebooks of this folder, and store what comes out in them.

    python docs/notebooks/execute.py                  (wants a finished default study in runs/: `chestfed study`)

Only what a reader needs is stored: no times, no name of a kernel's machine. The digest of the code that ran is written
beside the outputs, so that a test sees when code was changed and not run again.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode


def main(folder: Path) -> None:
    """Execute every notebook of a folder, in place."""
    for file in sorted(folder.glob("*.ipynb")):
        execute(file)
        print(f"{file.name}: executed", file=sys.stderr)


def execute(file: Path) -> None:
    """Execute one notebook in its own folder with this Python, and write it with its outputs.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        If a cell fails; the file is left as it was.
    """
    notebook = nbformat.read(file, as_version=4)
    own_python = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook.metadata = nbformat.from_dict({"kernelspec": own_python, "language_info": {"name": "python"}})
    # MONAI imports optuna where it is installed, and that a progress bar for which Jupyter needs widgets.
    os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"
    NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False).execute(cwd=str(file.parent))
    notebook.metadata["language_info"] = {"name": "python"}  # the kernel writes its version there
    notebook.metadata["executed_code"] = digest_of_code(notebook)
    nbformat.write(notebook, file)


def digest_of_code(notebook: NotebookNode) -> str:
    """Digest of the sources of all code cells, in their order."""
    sources = "\0".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    return hashlib.sha256(sources.encode()).hexdigest()


if __name__ == "__main__":
    main(Path(__file__).resolve().parent)
