"""TorchScript programs, checked before they are loaded.

TorchScript cannot call Python, but it has operators that write a file (`torch.save`), map one (`from_file`) and call
other machines, and a module may use them while it is loaded (`__setstate__`). A network needs none of them, so a
program whose source names one is not loaded.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch

from chestfed.core.errors import ConfigError

#: What reaches beyond tensors, wherever it stands in the source: the grammar has many ways to write a call.
_OUTSIDE = re.compile(rb"\b(?:save|from_file|load_tensor|c10d|rpc_\w+)\b")
#: Attributes with a name that is no identifier, such as a layer of a `Sequential`, in the one form that torch writes.
_ATTRIBUTE = re.compile(rb'\bgetattr\([A-Za-z0-9_.]+, "[^"\\\n]*"\)')


def refuse_outside_calls(path: Path) -> None:
    """Refuse a program that could read or write files or reach other machines; nothing of it is run.

    Raises
    ------
    ConfigError
        If it could, or the archive cannot be read.
    """
    try:
        archive = torch._C.PyTorchFileReader(str(path))  # the parser that the loader uses: another may see other files
        sources = [archive.get_record(name) for name in archive.get_all_records() if name.lower().endswith(".py")]
    except RuntimeError:
        raise ConfigError(f"{path}: damaged: not an archive that torch can read") from None
    for source in sources:
        found = _OUTSIDE.search(source)
        word = found[0].decode() if found else None
        if word is None and b"getattr" in _ATTRIBUTE.sub(b"", source):
            word = "getattr"
        if word is not None:
            raise ConfigError(
                f"{path}: refused: the program names '{word}', which could read or write files or reach other "
                "machines. A program of tensors alone is needed"
            )
