"""Converts configs of other load balancers, and flows written by hand, into a config of xenoovs.

Each format has a module with a function `read_...(text) -> Draft`; `draft.render` writes the YAML. A line that cannot
be converted becomes a comment with the reason. This room does no I/O.
"""
