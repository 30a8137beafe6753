"""Configs of other load balancers, and flows written by hand, turned into a config of xenoovs.

Each format has a module with a function `read_...(text) -> Draft`; `draft.render` writes the YAML. A line that cannot
be carried over becomes a comment with the reason. Without I/O.
"""
