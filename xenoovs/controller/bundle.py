"""Bundles for a bridge that is connected to the controller."""

from __future__ import annotations

from collections.abc import Mapping

from xenoovs.controller.line import Line
from xenoovs.errors import NotEncodable, StandingBy
from xenoovs.openflow.action import Output
from xenoovs.openflow.bundle import Bundle
from xenoovs.openflow.text import render_name
from xenoovs.openflow.wire.ports import port_number
from xenoovs.switch.openflow import bundle as shared
from xenoovs.switch.stderr import rejected


def send_bundle(line: Line, bundle: Bundle) -> None:
    """Apply all flow-mods or none. Raises BundleRejected, StandingBy, SwitchUnreachable, MalformedOpenFlow.

    After SwitchUnreachable the change may or may not have happened, as a whole: read the tables again.
    """
    numbers = line.numbers
    try:
        with line.well_formed(), line.exchange() as exchange:
            shared.send_bundle(exchange, bundle, ofports=numbers)
    except StandingBy:
        line.is_standby = True
        raise
    except NotEncodable as unknown:
        raise rejected(line.bridge, None, _explain(bundle, numbers) or str(unknown)) from None


def _explain(bundle: Bundle, numbers: Mapping[str, int]) -> str | None:
    """Return which port is unknown, in the words of ovs-ofctl."""
    for mod in bundle.mods:
        port = mod.flow.match.in_port
        if port is not None and not _is_known(port, numbers):
            return f"{shared.describe_mod(mod)} ({render_name(port)}: invalid or unknown port for in_port)"
        for action in mod.flow.actions:
            if isinstance(action, Output) and not _is_known(action.port, numbers):
                return f"{shared.describe_mod(mod)} ({render_name(action.port)}: output to unknown port)"
    return None


def _is_known(port: str, numbers: Mapping[str, int]) -> bool:
    try:
        port_number(port, numbers)
    except NotEncodable:
        return False
    return True
