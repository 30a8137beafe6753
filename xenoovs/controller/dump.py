"""Dumps and counts of the flows of a bridge that is connected to the controller."""

from __future__ import annotations

from xenoovs.controller.line import Line
from xenoovs.openflow.cookie import Cookies
from xenoovs.openflow.flow import ObservedFlow
from xenoovs.switch.openflow import flows


def dump(line: Line, only: Cookies) -> tuple[ObservedFlow, ...]:
    """Return the flows with these cookies and their counters. Raises SwitchUnreachable, MalformedOpenFlow."""
    with line.well_formed():
        with line.exchange() as exchange:
            frames = flows.request_flows(exchange, only)
        # Decoding thousands of flows takes long; other threads may use the connection meanwhile.
        return flows.decode_flows(frames, line.names)


def count(line: Line, only: Cookies) -> int:
    """Return how many flows have these cookies, likewise."""
    with line.well_formed(), line.exchange() as exchange:
        return sum(flows.count_flows(exchange, only))
