"""Who talks to whom in a network without a server: a connected, undirected graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from chestfed.errors import ConfigError


@dataclass(frozen=True)
class Graph:
    """Nodes 0..n-1, and edges (i, j) with i < j, each once, in ascending order."""

    nodes: int
    edges: tuple[tuple[int, int], ...]

    def neighbours(self, node: int) -> tuple[int, ...]:
        """The nodes that share an edge with `node`, ascending."""
        return tuple(sorted(j if i == node else i for i, j in self.edges if node in (i, j)))

    def degree(self, node: int) -> int:
        """Number of neighbours."""
        return len(self.neighbours(node))


def build_graph(topology: str, nodes: int) -> Graph:
    """A ring, star (node 0 is the centre) or complete graph, or the one in a file: a pair of nodes per line.

    Raises
    ------
    ConfigError
        If the file cannot be read, names a node that is not there, joins a node to itself, or does not connect all.
    """
    if topology == "ring":
        return _checked(nodes, ((node, (node + 1) % nodes) for node in range(nodes) if nodes > 1), topology)
    if topology == "star":
        return _checked(nodes, ((0, node) for node in range(1, nodes)), topology)
    if topology == "complete":
        return _checked(nodes, ((i, j) for i in range(nodes) for j in range(i + 1, nodes)), topology)
    return _checked(nodes, _read(Path(topology), nodes), topology)


def _read(path: Path, nodes: int) -> list[tuple[int, int]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(
            f"topology: '{path}' is neither ring, star nor complete, nor a file that can be read ({error.strerror})"
        ) from None
    edges = []
    for number, line in enumerate(lines, start=1):
        text = line.split("#")[0].replace(",", " ").split()
        if not text:
            continue
        if len(text) != 2 or not all(part.isdigit() for part in text):
            raise ConfigError(f"{path}:{number}: expected two node numbers, found '{line.strip()}'")
        i, j = map(int, text)
        if i == j or max(i, j) >= nodes:
            raise ConfigError(f"{path}:{number}: nodes are 0 to {nodes - 1}, and an edge joins two of them")
        edges.append((i, j))
    return edges


def _checked(nodes: int, edges: Iterable[tuple[int, int]], topology: str) -> Graph:
    graph = Graph(nodes, tuple(sorted({(min(edge), max(edge)) for edge in edges})))
    reached, frontier = {0}, [0]
    while frontier:
        found = [other for other in graph.neighbours(frontier.pop()) if other not in reached]
        reached |= set(found)
        frontier += found
    if len(reached) < nodes:
        lost = ", ".join(str(node) for node in range(nodes) if node not in reached)
        raise ConfigError(f"topology {topology}: no path leads from node 0 to {lost}; the graph must be connected")
    return graph
