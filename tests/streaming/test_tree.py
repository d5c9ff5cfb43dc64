"""The merge tree: every partition once, whatever is merged first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kmufs_stream.streaming.tree import Node, Tree


@given(count=st.integers(1, 300), data=st.data())
def test_any_order_of_merges_ends_at_the_root(count: int, data: st.DataObject) -> None:
    tree = Tree(count)
    waiting: set[Node] = set()
    for index in data.draw(st.permutations(range(count))) if count < 40 else range(count):
        node = tree.risen(Node(0, index))
        while node != tree.root and node.sibling in waiting:
            waiting.remove(node.sibling)
            node = tree.risen(node.parent)
        waiting.add(node)
    assert waiting == {tree.root}
    assert tree.root.partitions(count) == range(count)


@given(count=st.integers(1, 200), data=st.data())
def test_the_highest_nodes_cover_each_partition_at_most_once(
    count: int, data: st.DataObject
) -> None:
    nodes = [Node(level, i) for level in range(8) for i in range(200 >> level)]
    nodes = [node for node in nodes if node.partitions(count)]
    drawn = data.draw(st.lists(st.sampled_from(nodes), max_size=20))
    seen = [i for node in Tree(count).highest(drawn) for i in node.partitions(count)]
    assert len(seen) == len(set(seen))
    assert set(seen) == {i for node in drawn for i in node.partitions(count)}
