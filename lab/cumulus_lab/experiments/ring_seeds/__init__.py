"""Random rings in a virtual world: nodes that crash, chunks that are lost, late or doubled, engines that are scripts.

The nodes are those that real processes run; memory, disks and engines are simulated, and check what nodes do to them.
"""
