"""Graphs of nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from chestfed.engines.topology import build_graph
from chestfed.errors import ConfigError


def test_the_named_graphs() -> None:
    assert build_graph("ring", 5).edges == ((0, 1), (0, 4), (1, 2), (2, 3), (3, 4))
    assert build_graph("star", 4).edges == ((0, 1), (0, 2), (0, 3))
    assert build_graph("complete", 4).edges == ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))
    assert [build_graph("star", 4).degree(node) for node in range(4)] == [3, 1, 1, 1]
    assert build_graph("ring", 8).neighbours(0) == (1, 7)
    assert build_graph("ring", 2).edges == ((0, 1),)
    assert build_graph("ring", 1).edges == ()


def test_a_file_of_edges(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("# two triangles\n0 1\n1,2\n2 0\n\n2 3  # the bridge\n3 4\n4 5\n5 3\n1 0\n")
    graph = build_graph(str(tmp_path / "edges.txt"), 6)
    assert graph.edges == ((0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (3, 5), (4, 5))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1\n2 3\n", "no path leads from node 0 to 2, 3; the graph must be connected"),
        ("0 1\n1 1\n", r"edges\.txt:2: nodes are 0 to 3, and an edge joins two of them"),
        ("0 1\n1 4\n", r"edges\.txt:2: nodes are 0 to 3"),
        ("0 1\n1 two\n", r"edges\.txt:2: expected two node numbers, found '1 two'"),
        ("", "no path leads"),
    ],
)
def test_a_file_that_is_no_connected_graph_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "edges.txt").write_text(text)
    with pytest.raises(ConfigError, match=message):
        build_graph(str(tmp_path / "edges.txt"), 4)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="'rign' is neither ring, star nor complete"):
        build_graph("rign", 4)
