"""Graphs of nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from chestfed.core.errors import ConfigError
from chestfed.leaves.decentralized.graph import build_graph, read_edges
from tests.cases import assert_refused


def test_the_named_graphs() -> None:
    assert build_graph("ring", 5).edges == ((0, 1), (0, 4), (1, 2), (2, 3), (3, 4))
    assert build_graph("star", 4).edges == ((0, 1), (0, 2), (0, 3))
    assert build_graph("complete", 4).edges == ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))
    assert [build_graph("star", 4).degree(node) for node in range(4)] == [3, 1, 1, 1]
    assert build_graph("ring", 8).neighbors(0) == (1, 7)
    assert build_graph("ring", 2).edges == ((0, 1),)
    assert build_graph("ring", 1).edges == ()


def test_a_file_of_edges(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("# two triangles\n0 1\n1,2\n2 0\n\n2 3  # the bridge\n3 4\n4 5\n5 3\n1 0\n")
    edges = read_edges(tmp_path / "edges.txt")
    assert edges == [[0, 1], [0, 2], [1, 2], [2, 3], [3, 4], [3, 5], [4, 5]]
    assert build_graph(edges, 6).edges == tuple(map(tuple, edges))
    assert build_graph([[5, 3], [3, 5], *edges], 6) == build_graph(edges, 6)


@pytest.mark.parametrize(
    ("edges", "kind"),
    [
        ([[0, 1], [2, 3]], "graph not connected"),
        ([[0, 1], [1, 1]], "impossible edge"),
        ([[0, 1], [1, 4]], "impossible edge"),
        ([[0, 1], [1, -1]], "impossible edge"),
        ([], "graph not connected"),
    ],
)
def test_unconnected_edges_are_refused(edges: list[list[int]], kind: str) -> None:
    with assert_refused(ConfigError, kind):
        build_graph(edges, 4)


@pytest.mark.parametrize("line", ["1 two", "1", "1 2 3", "1 -2", "1 ²"])
def test_malformed_edge_line_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "edges.txt").write_text(f"0 1\n{line}\n", encoding="utf-8")
    with assert_refused(ConfigError, "not an edge", file="edges.txt", row=2):
        read_edges(tmp_path / "edges.txt")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with assert_refused(ConfigError, "unreadable graph"):
        read_edges(tmp_path / "rign")
