"""Who talks to whom: a connected, undirected graph, and its options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field

from chestfed.plugins import ConfigError, NamesFile, Options

#: Graphs that have a name.
NamedGraph = Literal["ring", "star", "complete"]
NAMED_GRAPHS = get_args(NamedGraph)
Topology = NamedGraph | Sequence[Sequence[int]]
Edge = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)]

#: Edges that exchange messages after the local steps.
Schedule = Literal["synchronous", "random_edge", "round_robin"]


@dataclass(frozen=True)
class Graph:
    """Nodes 0..n-1, and edges (i, j) with i < j, each once, in ascending order."""

    nodes: int
    edges: tuple[tuple[int, int], ...]

    def neighbors(self, node: int) -> tuple[int, ...]:
        """The nodes that share an edge with `node`, ascending."""
        return tuple(sorted(j if i == node else i for i, j in self.edges if node in (i, j)))

    def degree(self, node: int) -> int:
        return len(self.neighbors(node))


def build_graph(topology: Topology, nodes: int) -> Graph:
    """A ring, star (node 0 is the center) or complete graph, or the one with these edges, pairs of nodes."""
    if topology == "ring":
        return _checked(nodes, ((node, (node + 1) % nodes) for node in range(nodes) if nodes > 1))
    if topology == "star":
        return _checked(nodes, ((0, node) for node in range(1, nodes)))
    if topology == "complete":
        return _checked(nodes, ((i, j) for i in range(nodes) for j in range(i + 1, nodes)))
    edges = []
    for edge in topology:
        i, j = map(int, edge)
        if i == j or not 0 <= min(i, j) <= max(i, j) < nodes:
            raise ConfigError(
                f"topology: edge {i} {j}: with {nodes} clients the nodes are 0 to {nodes - 1}, and an edge joins two "
                "of them",
                kind="impossible edge",
            )
        edges.append((i, j))
    return _checked(nodes, edges)


def read_edges(path: Path) -> list[list[int]]:
    """The edges `[i, j]`, i < j, each once and in ascending order, of a file with a pair of nodes per line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no text"
        raise ConfigError(
            f"neither ring, star nor complete, nor a file that can be read: {path} ({reason})",
            kind="unreadable graph",
            file=path.name,
        ) from None
    edges = set()
    for number, line in enumerate(lines, start=1):
        text = line.split("#")[0].replace(",", " ").split()
        if not text:
            continue
        if len(text) != 2 or not all(re.fullmatch("[0-9]{1,9}", part) for part in text):
            raise ConfigError(
                f"{path}:{number}: expected two node numbers, found '{line.strip()}'",
                kind="not an edge",
                file=path.name,
                row=number,
            )
        i, j = sorted(map(int, text))
        edges.add((i, j))
    return [[i, j] for i, j in sorted(edges)]


def _checked(nodes: int, edges: Iterable[tuple[int, int]]) -> Graph:
    graph = Graph(nodes, tuple(sorted({(min(edge), max(edge)) for edge in edges})))
    reached, frontier = {0}, [0]
    while frontier:
        unvisited = [other for other in graph.neighbors(frontier.pop()) if other not in reached]
        reached |= set(unvisited)
        frontier += unvisited
    if len(reached) < nodes:
        lost = ", ".join(str(node) for node in range(nodes) if node not in reached)
        raise ConfigError(
            f"topology: no path leads from node 0 to {lost}; the graph must be connected",
            kind="graph not connected",
            nodes=lost,
        )
    return graph


class DecentralizedOptions(Options):
    """The graph, and which of its edges exchange."""

    topology: Annotated[NamedGraph | list[Edge], NamesFile(NAMED_GRAPHS, read_edges)] = Field(
        "ring",
        description="ring, star, complete, a list of edges (pairs of node numbers from 0), or a file with one "
        "edge per line, relative to the pipeline's file and replaced by its edges when read",
    )
    exchange: Schedule = Field(
        "synchronous",
        description="edges that exchange messages after the local steps. synchronous: all; random_edge: one at "
        "random; round_robin: one in turn",
    )
