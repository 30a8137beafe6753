"""All checks in their order, including those of the backends, and the overall result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.host import BackendFacts
from xenoovs.evidence.command_target import CommandTarget
from xenoovs.judge.doctor import certificates, doca, nic, openvswitch, tunnels
from xenoovs.judge.doctor.check import CheckResult, CheckState, DoctorCase, Fix, HostCheck, RequiredBackend
from xenoovs.model.address import prefix_text, vip_of

# The backends' settings are those of direct server return: every backend has the VIP, none answers ARP for it.
# Values: kernel documentation, networking/ip-sysctl.rst; RFC 3704 for reverse path filtering.


_SYSCTLS: tuple[tuple[HostCheck, str, Callable[[int], bool], int], ...] = (
    (
        HostCheck("arp_ignore", "with 0 every backend answers ARP for the VIP"),
        "at least 1",
        lambda value: value >= 1,
        1,
    ),
    (
        HostCheck("arp_announce", "otherwise a backend sends ARP requests with the VIP as source and so claims it"),
        "2",
        lambda value: value == 2,
        2,
    ),
    (
        HostCheck("rp_filter", "with 1 the kernel drops packets whose replies would leave by another device"),
        "not 1",
        lambda value: value != 1,
        0,
    ),
)


def check_duplicates(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that each MAC belongs to one backend behind one port."""
    check = HostCheck("backend MAC unique", "a copied line in a config sends clients of two backends to one")
    by_mac: dict[str, list[RequiredBackend]] = {}
    for backend in case.wanted.backends:
        by_mac.setdefault(backend.mac, []).append(backend)
    for mac, backends in by_mac.items():
        names = ", ".join(dict.fromkeys(backend.name for backend in backends))
        ports = sorted({backend.egress for backend in backends})
        if len(ports) > 1:
            yield check.wrong(f"{names} share it behind different ports: {', '.join(ports)}", mac)
        elif len({backend.name for backend in backends}) > 1:
            yield check.unknown(f"{names} share it: one machine with two names, or a mistake", mac)
        else:
            yield check.ok(f"only {names}", mac)


def check_mac_is_known(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that the bridge has learned the MAC on the right port, or that this host has it as a neighbour."""
    check = HostCheck("backend MAC known", "packets to a MAC that no machine has are lost silently")
    learned = case.host.learned.get(case.wanted.bridge, {})
    for backend in case.wanted.backends:
        state, seen = _mac_location(case, backend, learned.get(backend.mac))
        fix = Fix((("ip", "link", "show"),), is_remote=True) if state is CheckState.UNKNOWN else None
        yield check.row(state, seen, f"{backend.name} {backend.mac}", fix=fix)


def _mac_location(case: DoctorCase, backend: RequiredBackend, port: str | None) -> tuple[CheckState, str]:
    if not isinstance(backend.facts, Unknown):
        if backend.mac in backend.facts.macs:
            return CheckState.OK, "the backend has it"
        return CheckState.WRONG, f"it has {', '.join(backend.facts.macs)}"
    if port is not None and port != backend.egress:
        return CheckState.WRONG, f"the bridge has learned it on {port}, the config says {backend.egress}"
    if port is not None:
        return CheckState.OK, f"the bridge has learned it on {port}"
    if isinstance(case.host.neighbours, Unknown):
        return CheckState.UNKNOWN, case.host.neighbours.reason
    known = [f"{n.address} on {n.device}" for n in case.host.neighbours if n.is_valid and n.mac == backend.mac]
    if known:
        return CheckState.OK, f"neighbour {', '.join(known)}"
    return CheckState.UNKNOWN, "neither learned by the bridge nor a neighbour of this host; compare it on the backend"


def check_vip(case: DoctorCase) -> Iterator[CheckResult]:
    check = HostCheck("VIP on lo", "a host drops packets to an address that it does not have")
    for backend in case.wanted.backends:
        for vip in backend.vips:
            subject = f"{backend.name} {vip}"
            if isinstance(backend.facts, Unknown):
                show = Fix((("ip", "address", "show", "dev", "lo"),), is_remote=True)
                yield check.unknown(_check_there(backend.facts), subject, show)
            elif "/" in vip:
                route = Fix((("ip", "route", "add", "local", vip, "dev", "lo"),), is_remote=True)
                yield check.unknown("a prefix has a local route there, and no address", subject, route)
            elif vip in backend.facts.loopback:
                yield check.ok("present", subject)
            else:
                add = ("ip", "address", "add", f"{vip}/{128 if ':' in vip else 32}", "dev", "lo")
                yield check.wrong("missing", subject, Fix((add,), is_remote=True))


def check_sysctls(case: DoctorCase) -> Iterator[CheckResult]:
    """Check the sysctls of backends with IPv4 VIPs: IPv6 has neither ARP nor rp_filter."""
    for backend in case.wanted.backends:
        if not any("." in vip for vip in backend.vips):
            continue
        for check, required, is_right, value in _SYSCTLS:
            key = check.name
            found = _sysctl(backend.facts, key)
            if isinstance(found, Unknown):
                show = Fix((("sysctl", f"net.ipv4.conf.all.{key}"),), is_remote=True)
                yield check.unknown(found.reason, backend.name, show)
            else:
                fix = Fix((("sysctl", "-w", f"net.ipv4.conf.all.{key}={value}"),), is_remote=True)
                yield check.judge(is_right(found), f"{found}, must be {required}", backend.name, fix=fix)


def _sysctl(facts: BackendFacts | Unknown, key: str) -> int | Unknown:
    if isinstance(facts, Unknown):
        return Unknown(_check_there(facts))
    return facts.sysctls.get(key, Unknown(f"the backend has no {key}"))


def _check_there(facts: Unknown) -> str:
    return f"{facts.reason}; check it on the backend"


def check_bgp(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that bgpd has a session, and that its configuration would announce the VIPs."""
    bgp = case.host.bgp
    if bgp is None:
        return
    check = HostCheck("BGP of VIPs", "clients elsewhere reach a VIP only while a router has a route for it")
    if isinstance(bgp, Unknown):
        yield check.wrong(bgp.reason)
        return
    if bgp.established:
        without = f"; without one: {', '.join(bgp.others)}" if bgp.others else ""
        yield check.ok(f"session with {', '.join(bgp.established)}{without}")
    elif bgp.others:
        fix = Fix((("vtysh", "-c", f"show bgp neighbors {bgp.others[0]}"),), is_remote=True)
        yield check.wrong(f"no session with {', '.join(bgp.others)}", fix=fix)
    else:
        yield check.wrong("bgpd has no neighbor; write `router bgp` and `neighbor` into its configuration")
    for vip in bgp.refused:
        seen = f"bgpd would not announce it: neither `redistribute kernel` nor `network {prefix_text(vip_of(vip))}`"
        yield check.wrong(seen, vip)


CheckFunction = Callable[[DoctorCase], Iterable[CheckResult]]

HOST_CHECKS: tuple[CheckFunction, ...] = (
    openvswitch.check_running,
    openvswitch.check_settings,
    openvswitch.check_fork,
    openvswitch.check_leftovers,
    openvswitch.check_restore_wait,
    openvswitch.check_vlan_limit,
    openvswitch.check_hw_offload,
    openvswitch.check_offload_in_effect,
    openvswitch.check_offload_priority,
    openvswitch.check_tc_policy,
    openvswitch.check_max_idle,
    openvswitch.check_max_revalidator,
    openvswitch.check_flow_limit,
    openvswitch.check_bridge,
    openvswitch.check_ovn,
    openvswitch.check_datapath_type,
    openvswitch.check_fail_mode,
    openvswitch.check_controllers,
    openvswitch.check_exporters,
    openvswitch.check_mirrors,
    openvswitch.check_foreign_flows,
    nic.check_on_bridge,
    nic.check_works,
    nic.check_up,
    nic.check_provider,
    nic.check_hw_tc_offload,
    nic.check_ingress_qdisc,
    nic.check_tc_rules,
    nic.check_same_eswitch,
    nic.check_eswitch_mode,
    nic.check_steering,
    nic.check_multiport,
    nic.check_subfunction,
    nic.check_mtu,
    nic.check_modules,
    doca.check_gone_ports,
    doca.check_hugepages,
    doca.check_doca_init,
    doca.check_ct_size,
    doca.check_notes,
    tunnels.check_tunnel_ports,
    tunnels.check_tunnel_ends,
    check_bgp,
    tunnels.check_probe_ports,
    tunnels.check_reflectors,
    tunnels.check_source_ports,
    tunnels.check_keys,
    certificates.check_certificates,
)
"""From the daemon to the wire. A check that does not apply returns no row."""

BACKEND_CHECKS: tuple[CheckFunction, ...] = (check_duplicates, check_mac_is_known, check_vip, check_sysctls)


def examine(case: DoctorCase, *, checks: Iterable[CheckFunction] = HOST_CHECKS) -> tuple[CheckResult, ...]:
    """Return every row in the order of the checks. Rows that are ok have no fix."""
    rows = (row for check in checks for row in check(case))
    return tuple(replace(row, fix=None) if row.state is CheckState.OK else row for row in rows)


def has_wrong(checks: Iterable[CheckResult]) -> bool:
    return any(check.state is CheckState.WRONG for check in checks)


def is_running(checks: Iterable[CheckResult]) -> bool:
    """Return whether Open vSwitch runs, so that fixes can reach it."""
    return not any(check.name == openvswitch.RUNS and check.state is CheckState.WRONG for check in checks)


def safe_fixes(checks: Iterable[CheckResult]) -> tuple[Fix, ...]:
    """Return the fixes that `--fix` may run, each once, in the order of the rows."""
    return tuple(dict.fromkeys(check.fix for check in checks if check.has_safe_fix and check.fix is not None))


def to_json(checks: Iterable[CheckResult], target: CommandTarget) -> list[dict[str, object]]:
    return [
        {
            "check": check.name,
            "subject": check.subject,
            "state": check.state.value,
            "seen": check.seen,
            "why": check.why,
            "fix": None if check.fix is None else check.fix.text(target),
            "safe_to_fix": check.has_safe_fix,
            "needs_restart": check.needs_restart,
        }
        for check in checks
    ]
