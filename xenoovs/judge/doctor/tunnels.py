"""Checks of tunnels: remotes, ports in OVSDB, and what packets need to leave by the NIC and encrypted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xenoovs.compile.tunnel_ports import WantedPort, settings_of
from xenoovs.datapath.database import BFD_STOPPED, BridgeState, PortState
from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.ike_log import IkeFailure
from xenoovs.datapath.ipsec import PACKET, IpsecState, RouteTo, address_text
from xenoovs.datapath.tunnel import BY_FLOW
from xenoovs.datapath.tunnel_facts import ESP_OVERHEAD, TunnelEnd, TunnelFacts
from xenoovs.errors import counted
from xenoovs.judge.doctor.check import WRITE_KEYS, CheckResult, CheckState, DoctorCase, Fix, HostCheck, vsctl
from xenoovs.judge.doctor.nic import judge_ingress
from xenoovs.model.tunnel import LINUX_SOURCE_PORTS

_ANSWERS = HostCheck("reflector answers", "without answers the state of the paths is unknown, and no block moves")
_PROBE_PORT = HostCheck("probe port", "the agent sends probes and receives answers by it")
_HOST_TOS = HostCheck("TOS of host", "the reflector sends packets with the TOS of probes back, so the remote gets none")
_TOS = HostCheck("TOS kept", "a fabric with classes would queue probes elsewhere than data")
_PORTS = HostCheck("source ports of host", "a path by source port costs one megaflow for each port that the host uses")


def check_probe_ports(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that the agent's internal port is on the bridge and up."""
    required = case.wanted
    if not case.has_database:
        return
    for port in dict.fromkeys(tunnel.probe_port for tunnel in required.tunnels if tunnel.probe_port is not None):
        up = ("ip", "link", "set", "dev", port, "up")
        found, home = case.interface(port), case.database.bridge_of(port)
        if found is None or home is None or home.name != required.bridge:
            where = "on no bridge" if home is None else f"on bridge {home.name}"
            add = vsctl("add-port", required.bridge, port, "--", "set", "interface", port, "type=internal")
            yield _PROBE_PORT.wrong(where, port, Fix((add, up), is_safe=True) if home is None else None)
        elif found.ofport is None:
            yield _PROBE_PORT.wrong(f"does not work: {found.error or 'it has no number'}", port)
        elif found.type != "internal":
            yield _PROBE_PORT.wrong(f"of type {found.type}, not internal", port)
        elif isinstance(device := case.device(port), Unknown):
            yield _PROBE_PORT.unknown(device.reason, port)
        else:
            yield _PROBE_PORT.judge(device.is_up, "up" if device.is_up else "down", port, Fix((up,), is_safe=True))


def check_reflectors(case: DoctorCase) -> Iterator[CheckResult]:
    """Check by the agent's probes that each remote answers, and with which TOS."""
    for tunnel in case.wanted.tunnels:
        if isinstance(tunnel.remotes, Unknown):
            yield _ANSWERS.unknown(tunnel.remotes.reason, tunnel.name)
            continue
        for remote in tunnel.remotes:
            if remote.problem:
                yield _ANSWERS.wrong(remote.problem, remote.name)
                continue
            if remote.tos is None:
                yield _ANSWERS.unknown("no answer yet", remote.name)
                continue
            yield _ANSWERS.ok("on at least one path", remote.name)
            seen = f"{remote.tos:#04x} came back"
            sent = "as it was sent" if remote.tos == remote.tos_sent else f"{remote.tos_sent:#04x} was sent"
            yield _TOS.judge(remote.tos == remote.tos_sent, f"{seen}, {sent}", remote.name)
            if remote.returned:
                came = f"{counted(remote.returned, 'packet')} of the host came back; choose another `tos` at both ends"
                yield _HOST_TOS.wrong(came, remote.name)
            else:
                yield _HOST_TOS.ok("no packet of the host came back", remote.name)


def check_source_ports(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that the config bounds the source ports of the host, if they cost megaflows."""
    for tunnel in case.wanted.tunnels:
        if tunnel.has_source_ports:
            yield _PORTS.ok("bounded by `source_ports` in the config", tunnel.name)
        elif tunnel.has_source_ports is not None:
            count = LINUX_SOURCE_PORTS.last - LINUX_SOURCE_PORTS.first + 1
            why = f"`source_ports` is not in the config: up to {count} megaflows a remote"
            yield _PORTS.unknown(f"{why}; make the host's device with `srcport MIN MAX` (ip-link(8))", tunnel.name)


# Ports in OVSDB: missing, wrong, left over.


_PORT = HostCheck("tunnel port", "without it no packet reaches the backends behind the tunnel")
_INHERIT = HostCheck("tunnel port megaflows", "each value of a copied field is a megaflow of its own, in every block")
_COPIED = ("tos", "ttl")
"""Options whose value `inherit` copies a field of the inner IP header (ovs-vswitchd.conf.db(5), "Tunnel Options"). Open
vSwitch matches what it copies (tnl_port_send() of ofproto/tunnel.c)."""
_SESSION = HostCheck("tunnel BFD", "a remote whose session has gone down gets no clients")
_UNUSED = HostCheck("tunnel port unused", "hosts that reach it can send packets to the bridge, whose flows drop them")
_LOSING = HostCheck("tunnel port unused", "answers from its remote are lost, as Open vSwitch gives them to this port")


def check_tunnel_ports(case: DoctorCase) -> Iterator[CheckResult]:
    """Compare the ports of tunnels with those of the config; a config without tunnels has no row."""
    bridge = case.database.bridge(case.wanted.bridge)
    if bridge is None:
        return
    wanted = {port.name: port for port in case.wanted.tunnel_ports}
    for port in wanted.values():
        home = case.database.bridge_of(port.name)
        if home is not None and home.name != bridge.name:
            yield _PORT.wrong(f"is on bridge {home.name}; give the tunnel another name", port.name)
        else:
            state = bridge.port(port.name)
            yield _check_port(bridge, port, state)
            if state is not None:
                yield from _check_copied(state)
                if port.bfd:
                    yield _check_session(state)
    for state in bridge.ports:
        if state.mark is not None and state.name not in {*wanted, *case.wanted.egress}:
            fix = Fix((vsctl("del-port", bridge.name, state.name),))
            remote, options = state.options.get("remote_ip"), state.options
            shared = (one for one in wanted.values() if _takes_from(state.type, options, one.type, dict(one.options)))
            if (loser := next(shared, None)) is None:
                yield _UNUSED.unknown("xenoovs made it, and no backend of this config is behind it", state.name, fix)
            else:
                seen = f"Open vSwitch gives it the packets from {remote} instead of {loser.name}; no flow takes them"
                yield _LOSING.wrong(seen, state.name, fix)


def _takes_from(kind: str, options: Mapping[str, str], shared_kind: str, shared: Mapping[str, str]) -> bool:
    """Return whether a port with a fixed remote gets packets that a port to all remotes would otherwise get.

    Open vSwitch looks up ports with a fixed remote first (tnl_find() of ofproto/tunnel.c).
    """
    is_of_one = options.get("remote_ip", BY_FLOW) != BY_FLOW and shared.get("remote_ip") == BY_FLOW
    return is_of_one and kind == shared_kind and all(options.get(k) == shared.get(k) for k in ("local_ip", "dst_port"))


def _check_copied(state: PortState) -> Iterator[CheckResult]:
    copied = [option for option in _COPIED if state.options.get(option) == "inherit"]
    if copied:
        words = " and ".join(f"options:{option}=inherit" for option in copied)
        fix = Fix(tuple(vsctl("remove", "interface", state.name, "options", option) for option in copied))
        text = f"{words}: every value that clients send makes another megaflow of each block"
        yield _INHERIT.unknown(text, state.name, fix)


def _check_session(state: PortState) -> CheckResult:
    """Check that the session is up at both ends (ovs-vswitchd.conf.db(5), table Interface, "BFD Status")."""
    status, remote = state.bfd_status, state.options.get("remote_ip", "the remote")
    if not status:
        return _SESSION.unknown("Open vSwitch reports no session yet", state.name)
    if state.bfd_state == "up":
        return _SESSION.ok("up at both ends", state.name)
    match status.get("state"):
        case "down":
            why = f"no message comes from {remote}; what its bridge needs: `xenoovs tunnels FILE --far-end BACKEND`"
        case "init":
            why = f"messages come from {remote}, but ours do not reach it: check firewalls and the route to it"
        case "admin_down":
            why = "another program has switched it off here"
        case _ if state.bfd_state == BFD_STOPPED:
            why = f"`ovs-appctl bfd/set-forwarding {state.name} normal` ends that"
        case _:
            why = f"{remote} reports that it cannot forward"
    return _SESSION.wrong(f"{state.bfd_state}: {why}", state.name)


def _interrupts(bridge: BridgeState, wanted: WantedPort) -> str:
    """Return what is lost until a new port has flows; empty unless a port to all remotes gets those answers now."""
    options = dict(wanted.options)
    if not any(_takes_from(wanted.type, options, port.type, port.options) for port in bridge.ports):
        return ""
    lost = f"answers from {options['remote_ip']} are lost until `xenoovs apply`"
    return f"; once it is made, {lost}: run both without a pause"


def _check_port(bridge: BridgeState, wanted: WantedPort, state: PortState | None) -> CheckResult:
    if state is None:
        seen = f"does not exist{_interrupts(bridge, wanted)}"
        return _PORT.wrong(seen, wanted.name, Fix((wanted.command(bridge.name),), is_safe=True))
    found = settings_of(state)
    differs = [
        f"{key}={found.get(key, '-')} instead of {value}"
        for key, value in wanted.settings.items()
        if found.get(key) != value
    ]
    surplus = wanted.surplus(found)
    differs += [f"{key}={found[key]}, which the config does not have" for key in surplus]
    if state.type != wanted.type:
        differs.insert(0, f"type {state.type} instead of {wanted.type}")
    if differs:
        # Other options stay: without its key a port would send unencrypted for a moment.
        words = (word for key in surplus for word in (key.split(":") if ":" in key else ("options", key)))
        removed = (vsctl("remove", "interface", wanted.name, *words),)
        # `--fix` does not change ports of other programs.
        fix = Fix((*(removed if surplus else ()), wanted.command(bridge.name)), is_safe=state.mark is not None)
        return _PORT.wrong(", ".join(differs), wanted.name, fix)
    if state.ofport is None:
        return _PORT.wrong(f"Open vSwitch could not make it: {state.error or 'no reason in OVSDB'}", wanted.name)
    return _PORT.ok(f"{wanted.type}, remote_ip={state.options['remote_ip']}, OpenFlow port {state.ofport}", wanted.name)


# Ends: what packets need to leave by the NIC, and to leave encrypted.


_ROUTE = HostCheck("tunnel route", "the NIC encapsulates only what leaves by a port of its own, outside of all bridges")
_LOCAL = HostCheck("tunnel local", "packets to an address that this host does not have enter no tunnel")
_MTU = HostCheck("tunnel MTU", "hardware drops what does not fit without a message: connections hang")
_NEIGHBOUR = HostCheck("tunnel neighbour", "without the MAC of the next hop the NIC cannot encapsulate: the CPU does")
_QDISC = HostCheck("tunnel qdisc", "Open vSwitch attaches rules for received tunnel packets to it")
_CHECKSUM = HostCheck("tunnel checksum", "not every NIC makes the outer UDP checksum that the CPU makes")
_POLICY = HostCheck("IPsec policy", "without it packets of the tunnel leave unencrypted")
_KEYS = HostCheck("IPsec SA", "without one each way no packet of the tunnel passes")
_OFFLOAD = HostCheck("IPsec offload", "the NIC encrypts what it encapsulates only by an SA with `offload packet`")
_PROGRAMS = HostCheck("IPsec programs", "ovs-monitor-ipsec(8) writes the policies, an IKE daemon makes the keys")

_CLIENT_MTU = 1500
_OVN_OPTIONS = 8
"""Bytes of OVN's Geneve option: 4 of its header, 4 of data (ovn-architecture(7), "Tunnel Encapsulations")."""
_TAG = 4
"""Bytes of a tag (IEEE 802.1Q, 9.3), which counts for the MTU only in a tunnel."""
_KEY = HostCheck("IPsec key", "ovs-monitor-ipsec(8) begins with the port that has the key of its remote")
_IKE = ("charon", "pluto")
_MONITOR = "ovs-monitor-ipsec"


def check_tunnel_ends(case: DoctorCase) -> Iterator[CheckResult]:
    """Check every remote of every tunnel; a host without tunnels has no row."""
    facts = case.host.tunnels
    if facts is None:
        return
    yield from _check_programs(facts)
    for end in facts.ends:
        subject = f"{end.port} {end.remote}"
        route = facts.routes.get(end.remote, Unknown("not read"))
        if isinstance(route, Unknown):
            yield _ROUTE.wrong(f"none: {route.reason}", subject)
        else:
            yield _check_route(case, end, route, subject)
            yield _check_mtu(case, facts, end, route, subject)
            yield from _check_neighbour(facts, end, route, subject)
        if end.local is not None:
            yield _check_local(facts, end, subject)
        yield from _check_ipsec(case, facts, end, None if isinstance(route, Unknown) else route, subject)
    yield from _check_devices(case, facts)


def check_keys(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that Open vSwitch has the keys of the config, and that other users cannot read their files."""
    for key in case.wanted.keys:
        if isinstance(key.has_key, Unknown):
            yield _KEY.wrong(key.has_key.reason, key.port)
        elif not key.has_key:
            what = "the options of the certificate" if key.psk_file is None else f"the key of {key.psk_file}"
            yield _KEY.wrong(f"Open vSwitch does not have {what}", key.port, Fix((WRITE_KEYS,), is_safe=True))
        elif key.is_readable_by_all and key.psk_file is not None:
            fix = Fix((("chmod", "600", key.psk_file),), is_safe=True)
            yield _KEY.wrong(f"other users of this host can read {key.psk_file}", key.port, fix)
        else:
            yield _KEY.ok("Open vSwitch has it", key.port)


def _check_route(case: DoctorCase, end: TunnelEnd, route: RouteTo, subject: str) -> CheckResult:
    home = case.database.bridge_of(route.device)
    if route.is_local:
        return _ROUTE.wrong("it is an address of this host", subject)
    if end.is_userspace:
        if home is None:
            seen = f"by {route.device}, which is no port of a bridge: a userspace datapath sends only by its bridges"
            return _ROUTE.wrong(seen, subject)
        port = case.interface(route.device)
        if port is not None and port.type != "internal" and route.device != home.name:
            # Answers to such an address do not enter the tunnel (Open vSwitch, "Userspace Tunneling").
            needed = f"a userspace datapath needs the address on {home.name} itself"
            seen = f"by {route.device}, a port of bridge {home.name}: {needed}"
            return _ROUTE.wrong(seen, subject)
        return _ROUTE.ok(f"by {route.device} of bridge {home.name}", subject)
    if home is not None:
        seen = (
            f"by {route.device} of bridge {home.name}: the CPU encapsulates. Give the address to a port of the NIC "
            "that is in no bridge"
        )
        return _ROUTE.wrong(seen, subject)
    device = case.device(route.device)
    mine = None if isinstance(device, Unknown) else device.switch_id
    ingress = case.wanted.ingress
    known = (found for found in map(case.device, ingress) if not isinstance(found, Unknown))
    switches = {found.switch_id for found in known if found.switch_id is not None}
    if switches and mine not in switches:
        return _ROUTE.wrong(f"by {route.device}, which is not on the eSwitch of {', '.join(ingress)}", subject)
    on = f", on the eSwitch of {', '.join(ingress)}" if switches else ""
    return _ROUTE.ok(f"by {route.device}{on}", subject)


def _check_local(facts: TunnelFacts, end: TunnelEnd, subject: str) -> CheckResult:
    holders = [device for device, addresses in facts.addresses.items() if end.local in addresses]
    if not facts.addresses:
        return _LOCAL.unknown("the addresses of this host could not be read", subject)
    return _LOCAL.judge(bool(holders), f"{end.local} {f'on {holders[0]}' if holders else 'is on no device'}", subject)


def _check_mtu(case: DoctorCase, facts: TunnelFacts, end: TunnelEnd, route: RouteTo, subject: str) -> CheckResult:
    device = case.device(route.device)
    mtu = route.mtu or (None if isinstance(device, Unknown) else device.mtu)
    if mtu is None:
        return _MTU.unknown(f"that of {route.device} is not known", subject)
    need, needs = _needed_mtu(case, facts, end, route)
    if mtu >= need:
        return _MTU.ok(f"{mtu} of {route.device}, needed {need} ({needs})", subject)
    # All rows of a device set one MTU, so that their commands do not undo each other.
    most = max(
        _needed_mtu(case, facts, other, way)[0]
        for other in facts.ends
        if isinstance(way := facts.routes.get(other.remote), RouteTo) and way.device == route.device
    )
    fix = Fix((("ip", "link", "set", "dev", route.device, "mtu", str(most)),))
    return _MTU.wrong(f"{mtu} of {route.device} is below {need} ({needs}); or lower that of the clients", subject, fix)


def _needed_mtu(case: DoctorCase, facts: TunnelFacts, end: TunnelEnd, route: RouteTo) -> tuple[int, str]:
    """Return the smallest MTU for packets of the clients in a tunnel, and its parts as text."""
    sizes = [found.mtu for found in map(case.device, case.wanted.ingress) if not isinstance(found, Unknown)]
    inner, parts = max(sizes, default=_CLIENT_MTU), [f"{end.overhead} of {end.kind}"]
    need = inner + end.overhead
    if end.port in case.wanted.tagged:
        need += _TAG
        parts.append(f"{_TAG} of a tag")
    if end.kind == "geneve" and _is_of_ovn(case, end):
        need += _OVN_OPTIONS
        parts.append(f"{_OVN_OPTIONS} of OVN's option")
    if end.is_encrypted or _is_covered(facts, end, route):
        need += ESP_OVERHEAD
        parts.append(f"{ESP_OVERHEAD} of ESP")
    return need, f"{inner} of the clients + {' + '.join(parts)}"


def _is_of_ovn(case: DoctorCase, end: TunnelEnd) -> bool:
    home = case.database.bridge_of(end.port)
    return home is not None and home.ovn is not None and home.ovn.is_owner


def _check_neighbour(facts: TunnelFacts, end: TunnelEnd, route: RouteTo, subject: str) -> Iterator[CheckResult]:
    hop = route.gateway or end.remote
    found, ping = facts.neighbours.get(hop), Fix((("ping", "-c", "1", hop),))
    if end.is_userspace and hop in facts.cached:
        cached = facts.cached[hop]
        if found is not None and found.is_valid and found.mac != cached:
            # Open vSwitch overwrites its own entry only by a packet of the neighbour that passes its bridge.
            fix = Fix((("ovs-appctl", "tnl/neigh/flush"),), is_safe=True)
            seen = f"{hop} has {found.mac}, but ovs-vswitchd remembers {cached} and sends there"
            yield _NEIGHBOUR.wrong(seen, subject, fix)
        else:
            yield _NEIGHBOUR.ok(f"{hop} has {cached}", subject)
    elif end.is_userspace:
        yield _NEIGHBOUR.unknown(f"{hop}: ovs-vswitchd has no MAC yet and loses the first packet", subject)
    elif found is None or found.state in ("INCOMPLETE", "NONE"):
        yield _NEIGHBOUR.unknown(f"{hop}: no MAC yet; the CPU forwards the first packets", subject, ping)
    else:
        yield _NEIGHBOUR.judge(found.is_valid, f"{hop}: {found.mac or 'no answer'} ({found.state})", subject, ping)


def _check_devices(case: DoctorCase, facts: TunnelFacts) -> Iterator[CheckResult]:
    """Check the devices, which tunnels of one type share, and report ports with outer checksums."""
    for name in dict.fromkeys(end.device for end in facts.ends if not end.is_userspace):
        yield judge_ingress(_QDISC, case, name)
    for port in dict.fromkeys(end.port for end in facts.ends if end.has_checksum and end.dst_port is not None):
        seen = "option csum=true: compare packets that the NIC sent with `tcpdump -v` at the remote"
        yield _CHECKSUM.unknown(seen, port)


# IPsec.


def _covering(facts: TunnelFacts, end: TunnelEnd, route: RouteTo) -> tuple[IpsecState, int] | None:
    """Return the state of IPsec and the local address; None if one of them is unknown."""
    local = end.outer.local if end.local is not None else route.source
    return None if isinstance(facts.ipsec, Unknown) or local is None else (facts.ipsec, local)


def _is_covered(facts: TunnelFacts, end: TunnelEnd, route: RouteTo) -> bool:
    known = _covering(facts, end, route)
    return known is not None and known[0].policy(end.outer, known[1], route.device) is not None


def _check_programs(facts: TunnelFacts) -> Iterator[CheckResult]:
    if not any(end.is_encrypted for end in facts.ends):
        return
    ike = next((name for name in _IKE if name in facts.programs), None)
    if _MONITOR in facts.programs and ike is not None:
        yield _PROGRAMS.ok(f"{_MONITOR} and {ike} run")
        return
    missing = [name for name, runs in ((_MONITOR, _MONITOR in facts.programs), ("an IKE daemon", ike)) if not runs]
    seen, restart = f"{' and '.join(missing)} not running on this host", ("systemctl", "restart", "openvswitch-ipsec")
    if ike is None and "charon-systemd" in facts.programs:
        # charon-systemd reads swanctl.conf(5); StrongSwanHelper of ovs-monitor-ipsec writes ipsec.conf(5).
        fix = Fix((("apt-get", "install", "strongswan-charon"), restart))
        yield _PROGRAMS.wrong(f"{seen}; charon-systemd does not read what {_MONITOR} writes", fix=fix)
    else:
        yield _PROGRAMS.wrong(seen, fix=Fix((restart,)))


def _check_ipsec(
    case: DoctorCase, facts: TunnelFacts, end: TunnelEnd, route: RouteTo | None, subject: str
) -> Iterator[CheckResult]:
    """Check policy, SAs and offload of a tunnel that is encrypted, or that a policy covers."""
    if isinstance(facts.ipsec, Unknown):
        if end.is_encrypted:
            yield _POLICY.unknown(facts.ipsec.reason, subject)
        return
    known = None if route is None else _covering(facts, end, route)
    if route is None or known is None:
        if end.is_encrypted:
            yield _POLICY.unknown("packets to this remote have no route or no local address", subject)
        return
    state, local = known
    policy = state.policy(end.outer, local, route.device)
    if policy is None:
        if end.is_encrypted:
            seen = "none covers packets to this remote, so they leave unencrypted"
            failure = facts.ike_failure(end)
            yield _POLICY.wrong(seen if failure is None else f"{seen}; the last SA failed: {failure}", subject)
        return
    yield _POLICY.ok(policy.text, subject)
    if end.is_userspace:
        yield _OFFLOAD.wrong("a userspace datapath bypasses the kernel's IPsec: unencrypted", subject)
        return
    yield _check_associations(state, end, local, subject, facts.ike_failure(end))
    yield _check_offload(case, state, end, route, local, subject)


def _check_associations(
    state: IpsecState, end: TunnelEnd, local: int, subject: str, failure: IkeFailure | None
) -> CheckResult:
    outgoing = state.outgoing(end.outer, local)
    incoming = [each for each in state.associations if (each.source, each.destination) == (end.outer.remote, local)]
    here = address_text(local, is_ipv6=end.is_ipv6)
    if not outgoing or not incoming:
        way = f"from {here}" if not outgoing else f"to {here}"
        if failure is not None:
            return _KEYS.wrong(f"none {way}: {failure}", subject)
        fix = Fix((("ovs-appctl", "-t", _MONITOR, "tunnels/show"),))
        return _KEYS.wrong(
            f"none {way}; the IKE daemon makes it with the first packet that the CPU sends", subject, fix
        )
    counts = [sum(each.packets or 0 for each in way) for way in (outgoing, incoming)]
    return _KEYS.row(
        CheckState.OK if all(counts) else CheckState.UNKNOWN,
        f"{counts[0]} packets out, {counts[1]} in" + ("" if all(counts) else ": no ESP each way yet"),
        subject,
    )


def _check_offload(
    case: DoctorCase, state: IpsecState, end: TunnelEnd, route: RouteTo, local: int, subject: str
) -> CheckResult:
    on_device = [each for each in state.outgoing(end.outer, local) if each.device == route.device]
    modes = sorted({each.offload or "unknown" for each in on_device})
    if PACKET in modes:
        return _OFFLOAD.ok(f"packet, on {route.device}", subject)
    seen = f"{', '.join(modes)} on {route.device}" if modes else "none"
    if not case.offloads:
        return _OFFLOAD.ok(f"{seen}: the CPU encapsulates and encrypts", subject)
    text = f"{seen}, and Open vSwitch offloads: right only while the CPU encapsulates; see `xenoovs verify-offload`"
    return _OFFLOAD.unknown(text, subject)
