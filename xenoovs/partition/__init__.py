"""The mathematics of splitting clients over weighted backends with masked matches. Numbers in, numbers out.

`solve.partition` makes an assignment, `change.update` changes it, `change.overlay` lends out the addresses of those
that are down.
"""
