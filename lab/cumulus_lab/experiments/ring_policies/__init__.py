"""Policies of section 7 in the ring's figures: cores of nodes, queries that move, kept results; set-ups and gates.

The rules themselves are those of `cumulus_ring.machine.policies`.
"""
