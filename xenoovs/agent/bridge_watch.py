"""Follows the bridge and its ports in the database of Open vSwitch, and policies of IPsec. Changes start a round.

This only makes rounds start sooner. While ovsdb-server does not answer, the agent detects a restart of Open vSwitch by
its socket, and external changes by comparing flows.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import nullcontext

from xenoovs.agent.state import BridgePorts
from xenoovs.agent.state_store import StateStore
from xenoovs.agent.tasks import within
from xenoovs.compile.program import Program
from xenoovs.dataclass import dataclass, replace
from xenoovs.datapath.database import PortState
from xenoovs.decision.decision import next_hops
from xenoovs.errors import SwitchUnreachable, counted, worded
from xenoovs.judge.expected import hops_in_use
from xenoovs.log import info, warn
from xenoovs.model.balancer import Balancer
from xenoovs.openflow.flow import output_ports
from xenoovs.show.snapshot import PortView, SwitchMove
from xenoovs.switch.ovsdb import Ports, follow_ports

_RETRY_S, _LONGEST_RETRY_S = 0.1, 2.0


@dataclass(frozen=True, slots=True)
class PortEvent:
    """A change of a port in the config, or of the bridge (`port` is empty). `is_bad`: an operator may have to act."""

    text: str
    port: str
    is_bad: bool
    needs_round: bool


def port_events(before: Ports | None, after: Ports, balancer: Balancer) -> tuple[PortEvent, ...]:
    """Return the changes of the bridge of a config and its ports. `before`: None at first."""
    bridge = balancer.uplinks.bridge
    now = after.get(bridge)
    if before is None:
        ports = now or {}
        there = (ports[name] for name in balancer.ports if name in ports)
        found = (event for port in there for event in _liveness(None, port, balancer))
        return tuple(event for event in found if event.is_bad)
    then = before.get(bridge)
    if now is None or then is None:
        if (now is None) == (then is None):
            return ()
        text = "bridge removed" if now is None else "bridge added"
        return (PortEvent(text, "", is_bad=now is None, needs_round=now is not None),)
    return tuple(_changed_ports(then, now, balancer))


def _changed_ports(
    then: Mapping[str, PortState], now: Mapping[str, PortState], balancer: Balancer
) -> Iterable[PortEvent]:
    for name in balancer.ports:
        old, new = then.get(name), now.get(name)
        if old == new:
            continue
        if new is None:
            yield PortEvent("port removed from the bridge", name, is_bad=True, needs_round=True)
        elif old is None:
            yield PortEvent("port added to the bridge", name, is_bad=False, needs_round=True)
        elif old.ofport != new.ofport:
            is_lost = new.ofport is None
            text = f"port does not work: {new.error or 'it has no number'}" if is_lost else "port number changed"
            yield PortEvent(text, name, is_bad=is_lost, needs_round=True)
        elif (old.type, old.options) != (new.type, new.options):
            # A tunnel may have another remote now, or be unencrypted.
            yield PortEvent("port has other options", name, is_bad=False, needs_round=True)
        else:
            yield from _liveness(old, new, balancer)


def _liveness(old: PortState | None, new: PortState, balancer: Balancer) -> Iterator[PortEvent]:
    """Yield changes of link and BFD. Groups of the switch follow links, so that with groups these need a round."""
    if new.link_up is not None and (old is None or old.link_up != new.link_up):
        text = f"link {'up' if new.link_up else 'down'}"
        yield PortEvent(text, new.name, is_bad=not new.link_up, needs_round=bool(balancer.uplinks.buckets))
    if new.bfd_state and (old is None or old.bfd_state != new.bfd_state):
        yield PortEvent(f"BFD {new.bfd_state}", new.name, is_bad=new.is_silent, needs_round=True)


def with_earlier_sessions(before: Ports | None, now: Ports) -> Ports:
    """Return the ports of now. A BFD session that begins again, as after a restart of Open vSwitch, keeps its state if
    it was down before, because its remote has not answered yet."""

    def kept(port: PortState, old: PortState | None) -> PortState:
        is_begun = port.bfd_status.get("forwarding") == "false" and not port.is_silent
        return replace(port, bfd_status=old.bfd_status) if is_begun and old is not None and old.is_silent else port

    known = {bridge: (before or {}).get(bridge, {}) for bridge in now}
    return {b: {name: kept(port, known[b].get(name)) for name, port in ports.items()} for b, ports in now.items()}


def port_views(known: Mapping[str, PortState], balancer: Balancer) -> tuple[PortView, ...]:
    """Return the known ports that the config names, in its order."""
    states = (known[name] for name in balancer.ports if name in known)
    watched = balancer.bfd_ports
    return tuple(
        PortView(each.name, each.ofport, each.link_up, each.error or "", each.bfd_state if each.name in watched else "")
        for each in states
    )


def moved_by_switch(
    program: Program, live: Collection[str], since_s: Callable[[Collection[str]], float | None] = lambda _ports: None
) -> Iterator[SwitchMove]:
    """Yield the backends whose clients were moved by groups of the switch, or are dropped. `live`: the live ports.
    `since_s`: returns when dead ports went down."""
    for made in program.services:
        names = {hop: name for name, hop in next_hops(made.service).items()}
        found = Counter[tuple[str, str, tuple[str, ...]]]()
        for block in made.blocks:
            ports = tuple(output_ports(block.flow.actions))
            if made.watch is not None and block.move is None and ports[0] not in live:
                hop = next(iter(hops_in_use(block.flow, live)), None)
                to = "" if hop is None else names.get(hop, str(hop))
                found[block.backend.name, to, ports if hop is None else ports[:1]] += 1
        for (backend, to, ports), blocks in sorted(found.items()):
            where = f"the switch sends to {to}" if to else "packets are dropped"
            dead = f"{', '.join(ports)} {worded(len(ports), 'is', 'are')} dead"
            text = f"{made.service.name}: {counted(blocks, 'block')} of {backend}: {where}, as {dead}"
            yield SwitchMove(made.service.name, backend, to, blocks, text, since_s(ports))


async def follow_bridge(
    db: str, store: StateStore, *, balancer: Callable[[], Balancer], request_round: Callable[[], None]
) -> None:
    """Follow the database until cancelled. Connect again with increasing pauses while it does not answer.
    `request_round`: called when flows may be wrong."""
    retry_s, seen = _RETRY_S, BridgePorts()
    while True:
        try:
            async for reported in follow_ports(db):
                retry_s = _RETRY_S
                if seen.problem:
                    info("database of Open vSwitch answers again", db=db)
                    request_round()
                ports = with_earlier_sessions(seen.bridges, reported)
                events = port_events(seen.bridges, ports, balancer())
                # The agent may have read the ports before this connection; no event reports changes since then.
                needs_round = seen.bridges is None or any(event.needs_round for event in events)
                seen = BridgePorts(ports)
                store.dispatch(seen)
                for event in events:
                    log = warn if event.is_bad else info
                    facts = {"port": event.port} if event.port else {}
                    log(event.text, bridge=balancer().uplinks.bridge, **facts)
                if needs_round:
                    request_round()
        except SwitchUnreachable as problem:
            if not seen.problem:
                warn("database of Open vSwitch does not answer; polling for changes", reason=str(problem))
            seen = replace(seen, problem=str(problem))
            store.dispatch(seen)
        await asyncio.sleep(retry_s)
        retry_s = min(2 * retry_s, _LONGEST_RETRY_S)


# Policies and SAs of IPsec: a change starts a round, which compares all flows and reads the policies.


_GROUPS = 1 << (2 - 1) | 1 << (3 - 1) | 1 << (4 - 1)
"""XFRMNLGRP_EXPIRE, _SA and _POLICY as bits of `nl_groups` (uapi/linux/xfrm.h, netlink(7))."""
_POLL_S = 1.0
"""Time between two checks whether the config requires IPsec, and whether the policies can be followed."""
_RECEIVE_BYTES = 1 << 16


def _open_ipsec_events() -> socket.socket:
    """Return a socket that receives a message for each change in the thread's network namespace. Raises OSError."""
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_XFRM)
    try:
        opened.bind((0, _GROUPS))
    except OSError:
        opened.close()
        raise
    return opened


async def follow_ipsec(
    locate: Callable[[], str | None], *, wanted: Callable[[], bool], request_round: Callable[[], None]
) -> None:
    """Follow policies and SAs until cancelled. If that is impossible, the next periodic round finds changes. `locate`:
    returns the network namespace in which Open vSwitch is now; None for that of this process."""
    # Commands without an agent read ports by this module, and need no ctypes.
    from xenoovs.agent.probe.sockets import in_namespace

    problem, loop = "", asyncio.get_running_loop()
    while True:
        try:
            # After a restart Open vSwitch may be in another namespace; the socket stays in its own.
            with in_namespace(place := locate(), _open_ipsec_events) if wanted() else nullcontext() as events:
                if events is not None:
                    # A change before the socket was open sent no message.
                    problem = ""
                    request_round()
                while events is not None and wanted() and locate() == place:
                    try:
                        await within(_POLL_S, loop.sock_recv(events, _RECEIVE_BYTES))
                    except asyncio.TimeoutError:
                        continue
                    except OSError as error:
                        # Messages of changes were lost.
                        if error.errno != errno.ENOBUFS:
                            raise
                    request_round()
        except OSError as error:
            if not problem:
                warn("changes of IPsec policies cannot be followed; polling", reason=str(error))
            problem = str(error)
        await asyncio.sleep(_POLL_S)
