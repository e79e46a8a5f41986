"""A tree over the nodes of a cluster: a switch sends a block to its root, and each node sends it on to its children.

Nodes are numbered as in a heap: node 0 is the root, and the children of a node follow those of the node before it. So
the tree is always the same for a number of nodes and a fan-out, and there is one path to each node.

References
----------
Cumulus consistency paper, section 3.2 ("a distribution tree over the nodes themselves").
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DistributionTree:
    """The tree over some nodes.

    Parameters
    ----------
    nodes
        How many there are.
    arity
        The fan-out: a node has at most so many children. With 1 the tree is a chain.

    Examples
    --------
    >>> tree = DistributionTree(6, 2)
    >>> [list(tree.children(node)) for node in range(6)], [tree.parent(node) for node in range(6)], tree.hops
    ([[1, 2], [3, 4], [5], [], [], []], [None, 0, 0, 1, 1, 2], 2)
    >>> DistributionTree(6, 1).hops, DistributionTree(6, 5).hops, DistributionTree(1, 2).hops
    (5, 1, 0)
    """

    nodes: int
    arity: int

    def __post_init__(self) -> None:
        assert min(self.nodes, self.arity) > 0, (self.nodes, self.arity)

    def children(self, node: int) -> range:
        """Return the nodes to which a node sends blocks on."""
        first = node * self.arity + 1
        return range(min(first, self.nodes), min(first + self.arity, self.nodes))

    def parent(self, node: int) -> int | None:
        """Return the node from which a node gets blocks; None for the root, which gets them from the switch."""
        return (node - 1) // self.arity if node else None

    @property
    def hops(self) -> int:
        """How often a block is sent on until the last node has it: at most ⌈log N⌉ by the arity."""
        node, found = self.nodes - 1, 0
        while (parent := self.parent(node)) is not None:
            node, found = parent, found + 1
        return found
