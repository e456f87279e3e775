"""The reference of the Python API: the public names of a few modules, with their docstrings."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from docs.generate.markdown import escaped

HEAD = """# Python API

What a script, a notebook or a package of your own may rely on.
"""
#: Modules of which every name in `__all__` is public.
MODULES = ("chestfed", "chestfed.plugins", "chestfed.statistics", "chestfed.testing")
#: Other modules and their public names: the parts of a study, for a training loop of one's own.
PARTS = {
    "chestfed.leaves.samples.writing": ("write_hospitals",),
    "chestfed.learning.models": ("FlatModule", "build_model", "network_options", "reset_classifier"),
    "chestfed.learning.objectives": ("OBJECTIVES",),
    "chestfed.data.collections.memory": ("Samples",),
    "chestfed.learning.algorithms": ("ALGORITHMS",),
    "chestfed.results.evaluation.estimates": ("Estimate", "auc_estimates"),
    "chestfed.results.evaluation.intervals.methods": ("Intervals",),
    "chestfed.results.evaluation.labeled": ("Scored",),
}
#: A heading of a numpy docstring: a word with dashes below.
SECTION = re.compile(r"^([A-Z][A-Za-z ]+)\n-{3,}\n", re.MULTILINE)


def page() -> str:
    """The whole page, as Markdown."""
    lines = [HEAD]
    for module_name, names in {**dict.fromkeys(MODULES), **PARTS}.items():
        module = importlib.import_module(module_name)
        lines += [f"## {module.__name__}\n", f"{_docstring(module)}\n"]
        for name in sorted(names or module.__all__, key=str.lower):
            if not name.startswith("__"):
                lines += entry(f"{module.__name__}.{name}", getattr(module, name))
    return "\n".join(lines)


def entry(name: str, value: Any) -> Iterator[str]:
    """The section of one public name."""
    yield f"### `{name}`\n"
    if inspect.isclass(value):
        yield from _class(value)
    elif inspect.isroutine(value):
        yield _code(value.__name__, value)
        yield f"{_docstring(value)}\n"
    else:
        text = repr(value)
        yield f"```python\n{name.rpartition('.')[2]} = {text if len(text) < 400 else type(value).__name__}\n```\n"


def _class(value: type) -> Iterator[str]:
    """A class: how it is made, its fields, its public methods and properties."""
    fields = getattr(value, "model_fields", None)
    if not getattr(value, "_is_protocol", False) and fields is None:
        yield _code(value.__name__, value)
    yield f"{_docstring(value)}\n"
    for name, field in (fields or {}).items():
        default = "required" if field.is_required() else f"default `{field.get_default(call_default_factory=True)!r}`"
        yield f"`{name}` ({default})\n: {escaped(field.description or '')}\n"
    for name, member in vars(value).items():
        if name.startswith("_") or not _written(member):
            continue
        if isinstance(member, property):
            yield f"`{name}`\n: {_indented(_docstring(member))}\n"
            continue
        function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if inspect.isfunction(function):
            yield f"`{name}{_signature(function, drop_first=not isinstance(member, staticmethod))}`"
            yield f": {_indented(_docstring(function))}\n"


def _written(member: Any) -> bool:
    return bool(inspect.getdoc(getattr(member, "__func__", member)))


def _code(name: str, value: Callable[..., Any]) -> str:
    return f"```python\n{name}{_signature(value)}\n```\n"


class _AsWritten:
    """An annotation that is shown without quotes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _signature(value: Callable[..., Any], *, drop_first: bool = False) -> str:
    """Parameters and result as they are written in the source."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    parameters = list(signature.parameters.values())[1 if drop_first else 0 :]
    plain = [one.replace(annotation=_unquoted(one.annotation), default=_named(one.default)) for one in parameters]
    return str(signature.replace(parameters=plain, return_annotation=_unquoted(signature.return_annotation)))


def _named(default: Any) -> Any:
    return (
        _AsWritten(default.__name__) if inspect.isclass(default) and default is not inspect.Parameter.empty else default
    )


def _unquoted(annotation: Any) -> Any:
    return _AsWritten(annotation) if isinstance(annotation, str) else annotation


def _docstring(value: Any) -> str:
    """A docstring as Markdown: the sections of numpy's form become bold words with a list."""
    text = inspect.getdoc(value) or ""
    head, *sections = SECTION.split(text)
    pieces = [head.strip()]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        pieces.append(f"**{title}**\n\n{_entries(body)}")
    return "\n\n".join(filter(None, pieces))


def _entries(body: str) -> str:
    """The names of a section and what is said of them, as a list."""
    lines = []
    for line in body.strip("\n").splitlines():
        if line and not line.startswith(" "):
            lines.append(f"* `{line}`")
        elif line.strip():
            lines.append(f"  {line.strip()}")
    return "\n".join(lines)


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ").replace("\n  \n", "\n\n")
