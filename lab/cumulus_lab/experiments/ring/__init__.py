"""Experiments with rings: the figures of the paper, by the nodes of `cumulus_ring.machine` in virtual time.

Owns set-ups, scripted queries, what must come out, and rules broken on purpose. It knows no rule of the ring.
"""
