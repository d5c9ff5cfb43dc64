"""The one tree along which partition states are merged, whatever runs the tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Node:
    """The merged states of partitions ``index * 2^level`` to ``(index + 1) * 2^level - 1``."""

    level: int
    index: int

    @property
    def parent(self) -> Node:
        return Node(self.level + 1, self.index // 2)

    @property
    def sibling(self) -> Node:
        return Node(self.level, self.index ^ 1)

    def partitions(self, count: int) -> range:
        """Return the numbers of its partitions, of ``count`` in all."""
        return range(self.index << self.level, min((self.index + 1) << self.level, count))

    def covers(self, other: Node) -> bool:
        """Whether the other node is this one or below it."""
        up = self.level - other.level
        return up >= 0 and other.index >> up == self.index


class Tree:
    """Merges of ``count`` partitions: neighbours pair up, an odd one out rises as it is."""

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"{count} partitions make no tree")
        self.count = count
        self.root = Node((count - 1).bit_length(), 0)

    def risen(self, node: Node) -> Node:
        """Return the highest node with the same state: without a sibling there is no merge."""
        while node != self.root and not node.sibling.partitions(self.count):
            node = node.parent
        return node

    def highest(self, nodes: Iterable[Node]) -> list[Node]:
        """Return those nodes that no other one covers."""
        kept: list[Node] = []
        for node in sorted(nodes, reverse=True):
            if not any(other.covers(node) for other in kept):
                kept.append(node)
        return kept
