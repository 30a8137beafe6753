"""The costs and faults of hand-written flows that rewrite or reflect tunnel packets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import Enum

from xenoovs.dataclass import dataclass
from xenoovs.model.tunnel import LINUX_SOURCE_PORTS, TunnelType
from xenoovs.openflow.flow import Field, Flow, Foreign, OutputInPort, SetField
from xenoovs.openflow.text import render_flow
from xenoovs.regex import regex

ROCE_PORT = 4791
"""RoCEv2 (InfiniBand Architecture, Annex A17). Its ICRC covers the UDP source port, so no switch can rewrite it."""

_TUNNEL_PORTS = frozenset(kind.dst_port for kind in TunnelType if kind.dst_port)
_MASKED_PORT = regex(r"set_field:[^/>]+/[^>]+->(?:udp|tcp|sctp|tp)_(?:src|dst)", re.ASCII)
_SETS_TOS = regex(r"mod_nw_tos:|set_field:[^>]+->(?:ip_dscp|nw_tos)", re.ASCII)
_OFFLOADED_DUMP = regex(r"^[^#\n]*dpctl/dump-flows[^\n]*type=offloaded", re.ASCII | re.MULTILINE)
_TURNS_ON = regex(r"^[^#\n]*hw-offload=\"?true", re.ASCII | re.MULTILINE | re.IGNORECASE)
_RESTARTS = regex(
    r"^[^#\n]*(?:openvswitch|ovs-vswitchd|ovs-ctl)[^\n]*restart|^[^#\n]*restart[^\n]*openvswitch",
    re.ASCII | re.MULTILINE,
)


class RewriteRule(Enum):
    """A mistake in a flow or a script."""

    SOURCE_PORT = "source-port"
    """It rewrites the source port, so each port in use is a megaflow."""
    MASKED_PORT = "masked-port"
    """It writes some bits of a port, which OpenFlow 1.0 turns into the whole port."""
    ROCE = "roce"
    REFLECTED_PORT = "reflected-port"
    """A reflector keeps the source port of probes."""
    REFLECTED_SOURCE = "reflected-source"
    """A reflector matches source addresses."""
    PROBE_TOS = "probe-tos"
    """Probes are recognised by a type of service that other flows rewrite."""
    DUMP_TOO_EARLY = "dump-too-early"
    NO_RESTART = "no-restart"


@dataclass(frozen=True, slots=True)
class RewriteFinding:
    """One mistake. `flow`: its text in a dump; empty if the order of commands is wrong."""

    rule: RewriteRule
    flow: str
    text: str


def check_rewrites(flows: Iterable[Flow]) -> tuple[RewriteFinding, ...]:
    """Return what is wrong with flows for tunnel packets, in their order."""
    listed = tuple(flows)
    rewrites_tos = [flow for flow in listed if _foreign(flow, _SETS_TOS)]
    return tuple(finding for flow in listed for finding in _check(flow, rewrites_tos))


def check_script(text: str) -> tuple[RewriteFinding, ...]:
    """Return what is wrong with the order of the commands of a script."""
    turned_on, dumped = _TURNS_ON.search(text), _OFFLOADED_DUMP.search(text)
    found = []
    if turned_on is not None and dumped is not None and dumped.start() < turned_on.start():
        found.append(
            RewriteFinding(
                RewriteRule.DUMP_TOO_EARLY,
                "",
                "`dpctl/dump-flows type=offloaded` runs before `hw-offload=true`, so it lists nothing; dump after it, "
                "and after a restart and traffic",
            )
        )
    if turned_on is not None and not _RESTARTS.search(text, turned_on.end()):
        found.append(
            RewriteFinding(
                RewriteRule.NO_RESTART,
                "",
                "`hw-offload=true` takes effect when ovs-vswitchd starts (ovs-vswitchd.conf.db(5)), and nothing "
                "restarts it; use `xenoovs doctor --set offload=on`",
            )
        )
    return tuple(found)


def _check(flow: Flow, rewrites_tos: list[Flow]) -> Iterator[RewriteFinding]:
    written = {action.field for action in flow.actions if isinstance(action, SetField)}
    shown, to_port = render_flow(flow), flow.match.get(Field.TP_DST)
    is_reflector = OutputInPort() in flow.actions and Field.TP_DST in written
    if Field.TP_SRC in written and to_port is not None and to_port.value == ROCE_PORT:
        text = "RoCEv2 (UDP 4791) with another source port is dropped by its receiver: the ICRC covers the port"
        yield RewriteFinding(RewriteRule.ROCE, shown, text)
    elif Field.TP_SRC in written and not is_reflector:
        yield from _source_port(flow, shown)
    if _foreign(flow, _MASKED_PORT):
        text = (
            "a part of a port is written; by OpenFlow 1.0, which ovs-ofctl uses without -O, it becomes the whole port: "
            "add `-O OpenFlow13`"
        )
        yield RewriteFinding(RewriteRule.MASKED_PORT, shown, text)
    if is_reflector and to_port is not None and to_port.value in _TUNNEL_PORTS:
        yield from _reflector(flow, shown, written, rewrites_tos)


def _source_port(flow: Flow, shown: str) -> Iterator[RewriteFinding]:
    key = flow.match.get(Field.TP_SRC)
    if key is not None and key.is_exact:
        return
    mask = 0 if key is None else key.mask
    value = 0 if key is None else key.value
    ports = sum(port & mask == value for port in range(LINUX_SOURCE_PORTS.first, LINUX_SOURCE_PORTS.last + 1))
    text = (
        f"it rewrites the source port, which Open vSwitch then matches as a whole: one entry for each port in use, up "
        f"to {ports} of those that Linux uses; bound them where the tunnel is made (`srcport`), or choose an uplink"
    )
    yield RewriteFinding(RewriteRule.SOURCE_PORT, shown, text)


def _reflector(flow: Flow, shown: str, written: set[Field], rewrites_tos: list[Flow]) -> Iterator[RewriteFinding]:
    if Field.TP_SRC not in written:
        text = (
            "a reflector that keeps the source port of probes sends answers back by as many paths as probes took, so "
            "that a congested way back looks like a bad way out; add `mod_tp_src:4788`"
        )
        yield RewriteFinding(RewriteRule.REFLECTED_PORT, shown, text)
    if (source := flow.match.get(Field.NW_SRC)) is not None and source.mask:
        text = "nw_src splits the megaflows of all packets from this port by their senders; remove it from the match"
        yield RewriteFinding(RewriteRule.REFLECTED_SOURCE, shown, text)
    tos = flow.match.get(Field.NW_TOS)
    if tos is not None and rewrites_tos:
        text = (
            f"probes are known by the type of service {tos.value:#x}, and another flow rewrites it: "
            f"{render_flow(rewrites_tos[0])}"
        )
        yield RewriteFinding(RewriteRule.PROBE_TOS, shown, text)


def _foreign(flow: Flow, pattern: re.Pattern[str]) -> bool:
    return any(isinstance(action, Foreign) and pattern.match(action.text) for action in flow.actions)
