"""Text of a bundled pipeline for another folder: files that it names are named as the suite finds them anywhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from chestfed.core.bundled import bundled

#: Value of a key that names a file from the pipeline's own folder.
_FILE: Final = re.compile(r"""(?<![\w-])((?:config|extends):\s*)(["']?)([^\s"'{},#]+\.yaml)\2""")
#: A command in a comment that takes the pipeline, which only the default one leaves out.
_COMMAND: Final = re.compile(r"^(#\s+chestfed (?:study|tune|power))(?: (?!--)(\S+))?(?=\s|$)")


def copy_text(source: Path, target: Path) -> str:
    """The bundled pipeline `source` as text of the file `target`, with its comments.

    Its sites and what it extends are named by their names (`config: synthetic/vindr`).
    """
    name = source.relative_to(bundled("pipelines")).with_suffix("").as_posix()
    lines = [f"# Copied from chestfed's own pipeline {name}, to be changed. Its commands:"]
    for line in source.read_text(encoding="utf-8").splitlines():
        code = line.partition("#")[0]
        if code.strip():
            line = _FILE.sub(lambda found: found[1] + _name(source, found[3]), code) + line[len(code) :]
        elif command := _COMMAND.match(line):
            line = _adapt(line, command, name, target)
        lines.append(line)
    return "\n".join(lines) + "\n"


def _name(source: Path, text: str) -> str:
    """The name of a bundled site or pipeline for its path from the folder of `source`; other paths as they are."""
    path = (source.parent / text).resolve()
    for folder in (bundled("site_configs").resolve(), bundled("pipelines").resolve()):
        if path.is_relative_to(folder):
            return path.relative_to(folder).with_suffix("").as_posix()
    return text


def _adapt(line: str, command: re.Match[str], name: str, target: Path) -> str:
    """The command line of a comment with the copy in the place of the pipeline."""
    words, given = command[1], command[2]
    if given is not None and given.removeprefix("pipelines/").removesuffix(".yaml") != name:
        return line
    rest = line[command.end() :].replace("(this file is the default)", "").rstrip()
    return f"{words} {target}{rest}"
