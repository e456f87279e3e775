"""`torch.export` programs, checked before they are loaded.

`torch.export.load` trusts its file: it falls back to unpickling anything, evaluates shape expressions and guards as
Python, looks operators up by any dotted name, and writes the names of values, arguments and weights into the source of
a function that it compiles. Here a program may hold plain tensors, plain names and calls of ATen operators, nothing
else; guards and metadata, which a result does not depend on, are dropped. What is loaded is a copy of the archive with
the checked parts only.
"""

from __future__ import annotations

import ast
import io
import json
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chestfed.core.errors import ConfigError, first_line

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_MODEL, _SAMPLE = "models/model.json", "data/sample_inputs/model.pt"
_CONFIGS = {
    "data/weights/model_weights_config.json": ("data/weights/", re.compile(r"weight_\d+")),
    "data/constants/model_constants_config.json": ("data/constants/", re.compile(r"tensor_\d+")),
}

#: What an archive of torch.export says of its own format.
_FORMAT = ("archive_format", "archive_version", "byteorder", "version", ".data/version")

#: An ATen operator with its overload, or plain arithmetic on sizes. `from_file` reads files.
_OPERATOR = re.compile(
    r"torch\.ops\.aten\.(?!from_file)(_{0,2}[a-z0-9][A-Za-z0-9_]*)\.([A-Za-z0-9_]+)"
    r"|torch\.sym_(?:max|min|int|float|not|ite)"
    r"|_operator\.(?:getitem|add|sub|mul|truediv|floordiv|mod|neg|pos|pow|eq|ne|lt|le|gt|ge|and_|or_|not_)"
    r"|math\.(?:ceil|floor|trunc|sqrt)"
)
#: The only aten names with two leading underscores.
_DUNDER = {"__and__", "__or__", "__xor__", "__lshift__", "__rshift__"}

#: What a shape expression may call.
_FUNCTIONS = {
    "Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Max", "Min", "Eq", "Ne", "Gt", "Ge", "Lt", "Le",
    "And", "Or", "Not", "Mod", "FloorDiv", "PythonMod", "CleanDiv", "CeilDiv", "CeilToInt", "FloorToInt",
    "PowByNatural", "IntTrueDiv", "FloatTrueDiv", "ToFloat", "TruncToInt", "RoundToInt", "Where", "ModularIndexing",
    "LShift", "RShift", "StrictGreaterThan", "GreaterThan", "StrictLessThan", "LessThan", "Equality", "Unequality",
}  # fmt: skip
_SYNTAX = (
    ast.Expression, ast.Call, ast.keyword, ast.Name, ast.Load, ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp,
    ast.Compare, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip

#: A name of the program: nothing that could be more than a name where it is written into source.
_NAME = re.compile(r"[A-Za-z0-9_.]*(?:@[0-9]+)?|-Infinity")
#: A name of a weight, which is written between quotes there: as above, and what a key of `ModuleDict` may hold.
_WEIGHT_NAME = re.compile(r"[A-Za-z0-9_.@/ -]*")
_WEIGHT_KEYS = {"parameter_name", "buffer_name", "tensor_constant_name", "fqn"}
#: Texts with a check of their own, or that no source is made of.
_TEXTS = {"target", "as_operator", "expr_str", "in_spec", "out_spec", "as_string", "as_strings", "torch_version"}

_TREE_TYPES = {None, "builtins.tuple", "builtins.list", "builtins.dict"}


class _Refused(Exception):
    """Why a program is not loaded."""


def load_exported(path: Path) -> tuple[ExportedProgram, dict[str, str]]:
    """The program of a `.pt2` file, and its extra files by name.

    Raises
    ------
    ConfigError
        If it is not such a file, or holds anything that could run Python code.
    """
    import torch

    try:
        checked, extra = _checked_copy(path)
        return torch.export.load(checked), extra
    except _Refused as error:
        raise ConfigError(
            f"{path}: refused: {error}. Only programs of plain tensors and ATen operators are accepted"
        ) from None
    except Exception as error:
        raise ConfigError(f"{path}: not a program of torch.export: {first_line(error)[:300]}") from None


def _checked_copy(path: Path) -> tuple[io.BytesIO, dict[str, str]]:
    stored = _stored(path)
    needed = {_MODEL, _SAMPLE, *_CONFIGS}
    if needed - set(stored):
        raise _Refused(f"it lacks {', '.join(sorted(needed - set(stored)))} (written by an old version of torch?)")
    if any(name.startswith("data/aotinductor/") for name in stored):
        raise _Refused("it holds compiled code")
    _check_sample(stored[_SAMPLE])
    kept = {name: stored[name] for name in (_SAMPLE, *_CONFIGS, *_FORMAT) if name in stored}
    model = json.loads(stored[_MODEL]) | {"guards_code": []}
    _check(model)
    kept[_MODEL] = json.dumps(model).encode()
    for config, (folder, pattern) in _CONFIGS.items():
        kept |= {folder + name: stored[folder + name] for name in _payloads(json.loads(stored[config]), pattern)}
    copy = io.BytesIO()
    with zipfile.ZipFile(copy, "w", zipfile.ZIP_STORED) as archive:
        for name, content in kept.items():
            archive.writestr(f"checked/{name}", content)
    copy.seek(0)
    extra = {name.removeprefix("extra/"): content for name, content in stored.items() if name.startswith("extra/")}
    return copy, {name: content.decode("utf-8", "replace") for name, content in extra.items()}


def _stored(path: Path) -> dict[str, bytes]:
    """The files of the archive, without its outer folder."""
    with zipfile.ZipFile(path) as archive:
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
            raise _Refused("it is compressed, which torch.export never does")
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def _check_sample(content: bytes) -> None:
    import torch

    try:
        torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception:
        raise _Refused("its sample inputs are a pickle that could run code") from None


def _payloads(config: dict[str, Any], pattern: re.Pattern[str]) -> set[str]:
    """Names of a configuration's raw tensors."""
    names = set()
    for name, entry in config["config"].items():
        _check_name(name, _WEIGHT_NAME)
        if entry["use_pickle"] or not pattern.fullmatch(entry["path_name"]):
            raise _Refused("one of its tensors is stored as a pickle that could run code")
        names.add(entry["path_name"])
    return names


def _check(value: Any) -> None:
    """Check every name, operator, expression and tree in nested data; metadata is dropped."""
    if isinstance(value, str):
        _check_name(value, _NAME)
    if isinstance(value, list):
        for part in value:
            _check(part)
    if not isinstance(value, dict):
        return
    if "metadata" in value and ("target" in value or "graph" in value):
        value["metadata"] = {}
    if "target" in value and "inputs" in value:
        _check_operator(value["target"])
    if "expr_str" in value:
        _check_expression(value["expr_str"])
    for spec in ("in_spec", "out_spec"):
        if spec in value:
            _check_tree(value[spec], names=spec == "in_spec")
    if "as_operator" in value:
        _check_operator(value["as_operator"])
    if value.get("as_custom_obj") is not None:
        raise _Refused("it contains an object that is not a tensor")
    for key, part in value.items():
        _check_name(key, _NAME)
        if isinstance(part, str) and key in _WEIGHT_KEYS:
            _check_name(part, _WEIGHT_NAME)
        elif key not in _TEXTS or not _is_text(part):
            _check(part)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(part, str) for part in value))


def _check_name(name: str, pattern: re.Pattern[str]) -> None:
    if not pattern.fullmatch(name):
        raise _Refused(f"a name in it is {name[:80]!r}")


def _check_operator(target: Any) -> None:
    match = _OPERATOR.fullmatch(target) if isinstance(target, str) else None
    names = () if match is None else match.groups(default="")
    if match is None or any(name.startswith("__") and name not in _DUNDER for name in names):
        raise _Refused(f"it calls {str(target)[:80]!r}, which is not an ATen operator")


def _check_expression(text: Any) -> None:
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, TypeError, ValueError):
        raise _Refused("a shape in it is not an expression") from None
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else None
        if (
            not isinstance(node, _SYNTAX)
            or (called is not None and not (isinstance(called, ast.Name) and called.id in _FUNCTIONS))
            or (isinstance(node, ast.Constant) and isinstance(node.value, str) and not node.value.isidentifier())
        ):
            raise _Refused(f"a shape in it is the expression {str(text)[:80]!r}")


def _check_tree(text: Any, *, names: bool) -> None:
    """A pytree of tuples, lists and dicts with plain keys: others name classes to import.

    With `names` the keys are those of arguments.
    """
    version, root = json.loads(text)
    waiting = [root]
    while waiting:
        node = waiting.pop()
        context = None if node["context"] is None else json.loads(node["context"])
        keys_are_plain = context is None or (
            isinstance(context, list) and all(isinstance(key, (str, int)) for key in context)
        )
        if version != 1 or node["type"] not in _TREE_TYPES or not keys_are_plain:
            raise _Refused(f"its inputs or outputs are of the type {str(node['type'])[:80]!r}")
        for key in context or () if names else ():
            _check_name(str(key), _NAME)
        waiting += node["children_spec"]
