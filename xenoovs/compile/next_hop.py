"""Next hops in OpenFlow's actions: the only translation, both ways."""

from __future__ import annotations

from collections.abc import Iterable

from xenoovs.model.address import Mac
from xenoovs.model.next_hop import Direct, NextHop
from xenoovs.openflow.action import Action, Output, SetField
from xenoovs.openflow.field import Field


def rewrites(hop: NextHop, source_mac: Mac | None) -> tuple[SetField, ...]:
    """Return what is written into packets on their way to `hop`."""
    target = SetField(Field.DL_DST, hop.mac.value)
    return (target,) if source_mac is None else (SetField(Field.DL_SRC, source_mac.value), target)


def output_port(hop: NextHop) -> str:
    """Return the port that packets to `hop` leave by."""
    return hop.port


def deliver(hop: NextHop, source_mac: Mac | None) -> tuple[Action, ...]:
    """Return the actions that send a packet to `hop`."""
    return (*rewrites(hop, source_mac), Output(output_port(hop)))


def hop_of(actions: Iterable[Action]) -> NextHop | None:
    """Return where actions send packets; None: to no next hop, or to none that is known."""
    mac = port = None
    for action in actions:
        match action:
            case SetField(Field.DL_DST, value):
                mac = value
            case Output(name):
                port = name
            case _:
                pass
    return None if mac is None or port is None else Direct(Mac(mac), port)


def redirect(actions: Iterable[Action], hop: NextHop) -> tuple[Action, ...]:
    """Return the actions with `hop` in place of where they send packets."""
    return tuple(_redirect(action, hop) for action in actions)


def arrives(hop: NextHop, *, dl_dst: int, port: str | None) -> bool:
    """Whether a packet that leaves with this MAC by this port goes to `hop`."""
    return (hop.mac.value, hop.port) == (dl_dst, port)


def _redirect(action: Action, hop: NextHop) -> Action:
    match action:
        case SetField(Field.DL_DST):
            return SetField(Field.DL_DST, hop.mac.value)
        case Output():
            return Output(hop.port)
        case _:
            return action
