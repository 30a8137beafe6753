"""The stage of blocks that move: open connections stay with the old backend, new ones go to the new one.

A packet that opens a TCP connection goes to the new backend and makes Open vSwitch learn a flow for all others of that
connection; TCP packets of any other connection go to the old one, as do all other protocols. While a block settles,
connections that open are learned too, but stay with the old backend. docs/adr/0008 says why, and why the flow for open
connections copies fields onto themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xenoovs.compile.key import BlockRule, block_conditions
from xenoovs.compile.matching import family_is
from xenoovs.compile.next_hop import deliver, rewrites
from xenoovs.compile.pipeline import (
    OUTPUT_PORT,
    SERVICE_ID,
    PinPriority,
    Stage,
    block_priority,
    cookie_of,
    pin_priority,
)
from xenoovs.model.address import Family
from xenoovs.model.next_hop import NextHop
from xenoovs.model.service import Protocol, Service
from xenoovs.openflow.action import Action, Learn, Move, SetField
from xenoovs.openflow.field import TCP, TCP_ACK, TCP_SYN, Field
from xenoovs.openflow.flow import Flow, FlowKey
from xenoovs.openflow.match import Masked, exact, match_of

MAX_LEARNED = 65_536
"""Connections of one service that are learned during a drain. A flood of SYNs learns no more; connections beyond it
go to the old backend after their first packet."""

_LONGEST_S = 65_535
_SPARE_S = 60
"""A connection that is silent all through a drain is still known at its end."""

_OPENS = Masked(Field.TCP_FLAGS, TCP_SYN, TCP_SYN | TCP_ACK)


@dataclass(frozen=True, slots=True)
class Pin:
    """The block `rule` moves from `old` to `new`.

    is_settling: megaflows from before may still be there, so that new connections go to `old` for now.
    port_number: the OpenFlow port number of the port to which new connections go.
    """

    rule: BlockRule
    old: NextHop
    new: NextHop
    port_number: int
    is_settling: bool = False

    @property
    def opens(self) -> NextHop:
        """Who gets new connections now."""
        return self.old if self.is_settling else self.new


def pin_flows(service: Service, pin: Pin, *, service_id: int) -> Iterator[Flow]:
    """The flows of one block in `pin`, and the memory of where it moves, for each IP family."""
    for family in service.claim.served_families:
        block = (exact(SERVICE_ID, service_id), *block_conditions(service, family, pin.rule))
        key = FlowKey(Stage.NEXT.table, block_priority(pin.rule.depth), match_of(block))
        yield Flow(key, cookie_of(Stage.NEXT, service_id), deliver(pin.new, service.source_mac))
        for kind, conditions, actions in _kinds(service, pin, family, service_id):
            # A key may ask for the protocol too.
            match = match_of(dict.fromkeys((*block, *conditions)))
            key = FlowKey(Stage.PIN.table, pin_priority(kind, pin.rule.depth), match)
            yield Flow(key, cookie_of(Stage.PIN, service_id), actions)


_Kind = tuple[PinPriority, tuple[Masked, ...], tuple[Action, ...]]


def _kinds(service: Service, pin: Pin, family: Family, service_id: int) -> Iterator[_Kind]:
    stays = deliver(pin.old, service.source_mac)
    if service.claim.protocol in (None, Protocol.TCP):
        tcp = exact(Field.NW_PROTO, TCP)
        number = SetField(OUTPUT_PORT, pin.port_number)
        learn = _learn(service, pin, family, service_id)
        yield PinPriority.NEW_CONNECTION, (tcp, _OPENS), (number, learn, *deliver(pin.opens, service.source_mac))
        # Without the copies one wide megaflow would take the first packets of new connections too, until Open vSwitch
        # sees that their flows were learned: a field that an action reads is matched as a whole.
        copies = (Move(field, field) for field in _connection(family))
        yield PinPriority.OPEN_CONNECTION, (tcp,), (*copies, *stays)
    if service.claim.protocol is not Protocol.TCP:
        yield PinPriority.REST, (), stays


def _learn(service: Service, pin: Pin, family: Family, service_id: int) -> Learn:
    return Learn(
        table=Stage.LEARNED.table,
        priority=pin_priority(PinPriority.LEARNED),
        cookie=cookie_of(Stage.LEARNED, service_id),
        idle_timeout_s=min(_LONGEST_S, -(-service.drain.timeout_ms // 1000) + _SPARE_S),
        limit=MAX_LEARNED,
        dl_type=family_is(family).value,
        nw_proto=TCP,
        same=(SERVICE_ID, *_connection(family)),
        writes=rewrites(pin.opens, service.source_mac),
        output=OUTPUT_PORT,
    )


def _connection(family: Family) -> tuple[Field, ...]:
    is_ipv4 = family is Family.IPV4
    addresses = (Field.NW_SRC, Field.NW_DST) if is_ipv4 else (Field.IPV6_SRC, Field.IPV6_DST)
    return *addresses, Field.TP_SRC, Field.TP_DST
