"""The cluster: switches that order events, and nodes that pass each other what they change.

`versions` is the order, `spread` says what of a program nodes can compute alone, `program` makes the program that every
node runs, and `eventual` runs it. `statement_placement` chooses on which node a statement is computed, `layout` follows
from that and says which node holds what, `dispatch` sends events there; `planning` says all this before anything runs.
"""
