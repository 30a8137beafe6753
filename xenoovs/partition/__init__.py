"""The mathematics of splitting clients over weighted backends with masked matches: exact, without I/O.

`solve.partition` makes an assignment, `change.update` changes it, `change.failover` gives the blocks of backends that
are down to the others.
"""
