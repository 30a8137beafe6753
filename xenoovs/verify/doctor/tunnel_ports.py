"""Checks of the ports that tunnels of Open vSwitch need in OVSDB: missing, wrong, left over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xenoovs.compile.tunnel_ports import WantedPort
from xenoovs.datapath.database import BridgeState, PortState
from xenoovs.verify.doctor.check import CheckResult, DoctorCase, Fix, HostCheck, vsctl

_PORT = HostCheck("tunnel port", "without it no packet reaches the backends behind the tunnel")
_INHERIT = HostCheck("tunnel port megaflows", "each value of a copied field is a megaflow of its own, in every block")
_COPIED = ("tos", "ttl")
"""Options that copy a field of the inner IP header if they say `inherit` (ovs-vswitchd.conf.db(5), "Tunnel Options").
What is copied is matched (tnl_port_send() of ofproto/tunnel.c)."""
_UNUSED = HostCheck("tunnel port unused", "who reaches it can send packets to the bridge, whose flows drop them")
_LOSING = HostCheck("tunnel port unused", "answers from its remote are lost, as Open vSwitch gives them to this port")

_FLOW = "flow"
"""The value of remote_ip with which flows choose it (ovs-vswitchd.conf.db(5), table Interface)."""


def check_tunnel_ports(case: DoctorCase) -> Iterator[CheckResult]:
    """Compare the ports of tunnels with those of the config; a config without tunnels has no row."""
    if case.required is None or case.database is None:
        return
    bridge = case.database.bridge(case.required.bridge)
    if bridge is None:
        return
    wanted = {port.name: port for port in case.required.tunnel_ports}
    for port in wanted.values():
        home = case.database.bridge_of(port.name)
        if home is not None and home.name != bridge.name:
            yield _PORT.wrong(f"is on bridge {home.name}; give the tunnel another name", port.name)
        else:
            state = bridge.port(port.name)
            yield _check_port(bridge, port, state)
            if state is not None:
                yield from _check_copied(state)
    for state in bridge.ports:
        if state.mark is not None and state.name not in {*wanted, *case.required.egress}:
            fix = Fix((vsctl("del-port", bridge.name, state.name),))
            remote, shared = state.options.get("remote_ip"), _shared_beside(state, wanted.values())
            if shared is None:
                yield _UNUSED.unknown("xenoovs made it, and no backend of this config is behind it", state.name, fix)
            else:
                seen = f"Open vSwitch gives it the packets from {remote} instead of {shared.name}; no flow takes them"
                yield _LOSING.wrong(seen, state.name, fix)


def _shared_beside(state: PortState, wanted: Iterable[WantedPort]) -> WantedPort | None:
    """Return the port to all remotes that loses the packets of one remote to this port; None: there is none.

    Open vSwitch asks ports with a remote of their own first (tnl_find() of ofproto/tunnel.c).
    """
    if state.options.get("remote_ip") in (None, _FLOW):
        return None
    same = ("local_ip", "dst_port")
    return next(
        (
            port
            for port in wanted
            if port.type == state.type
            and (options := dict(port.options)).get("remote_ip") == _FLOW
            and all(options.get(key) == state.options.get(key) for key in same)
        ),
        None,
    )


def _check_copied(state: PortState) -> Iterator[CheckResult]:
    copied = [option for option in _COPIED if state.options.get(option) == "inherit"]
    if copied:
        words = " and ".join(f"options:{option}=inherit" for option in copied)
        fix = Fix(tuple(vsctl("remove", "interface", state.name, "options", option) for option in copied))
        text = f"{words}: every value that clients send makes another megaflow of each block"
        yield _INHERIT.unknown(text, state.name, fix)


def _interrupts(bridge: BridgeState, wanted: WantedPort) -> str:
    """Return what making a port breaks until the flows for it are there: a port to all remotes has its answers now."""
    options = dict(wanted.options)
    remote, ends = options["remote_ip"], ("local_ip", "dst_port")
    loses = any(
        port.type == wanted.type
        and port.options.get("remote_ip") == _FLOW
        and all(port.options.get(key) == options.get(key) for key in ends)
        for port in bridge.ports
    )
    if remote == _FLOW or not loses:
        return ""
    return f"; once it is made, answers from {remote} are lost until `xenoovs apply`: run both without a pause"


def _check_port(bridge: BridgeState, wanted: WantedPort, state: PortState | None) -> CheckResult:
    if state is None:
        seen = f"does not exist{_interrupts(bridge, wanted)}"
        return _PORT.wrong(seen, wanted.name, Fix((wanted.command(bridge.name),), is_safe=True))
    differs = [
        f"{key}={state.options.get(key, '-')} instead of {value}"
        for key, value in wanted.options
        if state.options.get(key) != value
    ]
    surplus = wanted.surplus(state.options)
    differs += [f"{key}={state.options[key]}, which the config has not" for key in surplus]
    if state.type != wanted.type:
        differs.insert(0, f"type {state.type} instead of {wanted.type}")
    if differs:
        # Other options stay: without its key a port would send unencrypted for a moment.
        removed = (vsctl("remove", "interface", wanted.name, *(word for key in surplus for word in ("options", key))),)
        # A port that another program made is its own.
        fix = Fix((*(removed if surplus else ()), wanted.command(bridge.name)), is_safe=state.mark is not None)
        return _PORT.wrong(", ".join(differs), wanted.name, fix)
    if state.ofport is None:
        return _PORT.wrong(f"Open vSwitch could not make it: {state.error or 'no reason in OVSDB'}", wanted.name)
    return _PORT.ok(f"{wanted.type}, remote_ip={state.options['remote_ip']}, OpenFlow port {state.ofport}", wanted.name)
