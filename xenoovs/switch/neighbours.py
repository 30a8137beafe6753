"""The neighbour table of the kernel: which MAC answers for which address (ip-neighbour(8))."""

from __future__ import annotations

from xenoovs.datapath.host import Neighbour
from xenoovs.switch.links import parse_neighbours
from xenoovs.switch.process import run

_TIMEOUT_S = 5.0


def read_neighbours(netns: str) -> tuple[Neighbour, ...]:
    """Those that have answered, in a network namespace by its name; empty: in ours. Raises SwitchError, ParseError."""
    inside = ["-n", netns] if netns else []
    return parse_neighbours(run(["ip", *inside, "-j", "neigh", "show"], timeout_s=_TIMEOUT_S).stdout)
