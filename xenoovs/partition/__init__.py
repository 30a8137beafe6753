"""The mathematics of splitting clients over weighted backends with masked matches. Numbers in, numbers out.

`choose.partition` makes an assignment, `update.update` changes it, `overlay.overlay` lends out the addresses of those
that are down.
"""
