"""YAML text as plain data, with the file and line of each key."""

from __future__ import annotations

import re

import yaml

from chestfed.core.errors import ConfigError

#: Keys and positions from the top of a document to a value.
Location = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """SafeLoader that reads `1e-3` as a number, and `yes`/`no`/`on`/`off`, `010` and `1:30` as words (YAML 1.2)."""


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag not in [f"tag:yaml.org,2002:{kind}" for kind in ("bool", "float", "int", "timestamp")]
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false|True|False)$"), list("tfTF"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9_]*)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$|^[-+]?\.(?:inf|nan)$"),
    list("-+.0123456789"),
)


#: More values than any configuration has: aliases of aliases come to any number of them.
_MOST_VALUES = 200_000


class ParsedYaml:
    """One YAML text as plain data, and the place of each key's location: `name` and line."""

    def __init__(self, text: str, name: str) -> None:
        self._name = name
        self.places: dict[Location, str] = {}
        try:
            node = yaml.compose(text, Loader=_Loader)
            self.data = None if node is None else self._build(node, ())
        except yaml.YAMLError as error:
            mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
            place = self._place(mark.line) if mark else name
            raise ConfigError(f"{place}: not valid YAML: {getattr(error, 'problem', error)}") from None
        except RecursionError:
            raise ConfigError(f"{name}: nested too deeply, or an alias (*) contains itself") from None

    def _place(self, line: int) -> str:
        return self._name if self._name.startswith("--set ") else f"{self._name}:{line + 1}"

    def _build(self, node: yaml.Node, location: Location) -> object:
        self.places[location] = self._place(node.start_mark.line)
        if len(self.places) > _MOST_VALUES:
            raise ConfigError(f"{self._name}: more than {_MOST_VALUES:,} values: aliases (*) of lists of aliases?")
        if isinstance(node, yaml.MappingNode):
            mapping: dict[object, object] = {}
            pairs: list[tuple[yaml.Node, yaml.Node]] = node.value
            for key_node, value_node in pairs:
                key, place = self._plain(key_node), self._place(key_node.start_mark.line)
                if key in mapping:
                    raise ConfigError(f"{place}: duplicate key '{key}'")
                mapping[key] = self._build(value_node, (*location, key))
                self.places[(*location, key)] = place
            return mapping
        if isinstance(node, yaml.SequenceNode):
            children: list[yaml.Node] = node.value
            return [self._build(child, (*location, index)) for index, child in enumerate(children)]
        return self._plain(node)

    def _plain(self, node: yaml.Node) -> str | int:
        """A value that is neither a mapping nor a list; as a key it is a word or number."""
        place = self._place(node.start_mark.line)
        if not isinstance(node, yaml.ScalarNode):
            raise ConfigError(f"{place}: a key is one word or number, not a list or mapping")
        if node.tag == "tag:yaml.org,2002:merge":
            raise ConfigError(f"{place}: '<<' is not supported; extend another file with extends: FILE.yaml")
        try:
            value: str | int = _Loader("").construct_object(node, deep=True)
        except (
            ValueError,
            KeyError,
            AttributeError,
        ):  # the text does not fit its tag, or has too many digits
            raise ConfigError(f"{place}: not valid YAML: the value does not match its type") from None
        refuse_half_characters(value, place)
        return value


def refuse_half_characters(value: object, place: str) -> None:
    """Refuse text that UTF-8 cannot write: halves of characters (surrogates), which an escape may name."""
    if isinstance(value, str) and not value.isascii() and re.search("[\ud800-\udfff]", value):
        raise ConfigError(
            f"{place}: the text has half a character, such as \\ud800: write the character itself",
            kind="half a character",
            place=place,
        )
