"""All checks in their order, those of the backends among them, and what they say together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from xenoovs.datapath.host import BackendFacts, Unknown
from xenoovs.verify.commands import CommandTarget
from xenoovs.verify.doctor import nic, openvswitch
from xenoovs.verify.doctor.check import Case, Check, Fix, State, WantedBackend

# Checks of the backends: is the MAC of the config that of a machine, and is the machine set up to answer for the VIP?
#
# The settings are those of direct server return: every backend has the VIP, none of them tells so by ARP. Values:
# kernel documentation, networking/ip-sysctl.rst; RFC 3704 for the check of the way back.


_SYSCTLS: tuple[tuple[str, str, Callable[[int], bool], int, str], ...] = (
    ("arp_ignore", "at least 1", lambda value: value >= 1, 1, "with 0 every backend answers ARP for the VIP"),
    ("arp_announce", "2", lambda value: value == 2, 2, "otherwise a backend asks in the name of the VIP and claims it"),
    (
        "rp_filter",
        "not 1",
        lambda value: value != 1,
        0,
        "with 1 packets that come another way than answers go are lost",
    ),
)


def check_duplicates(case: Case) -> Iterator[Check]:
    """One MAC, one machine, one port."""
    name, why = "backend MAC is its own", "a copied line in a config sends two backends' clients to one"
    by_mac: dict[str, list[WantedBackend]] = {}
    for backend in _backends(case):
        by_mac.setdefault(backend.mac, []).append(backend)
    for mac, backends in by_mac.items():
        names = ", ".join(dict.fromkeys(backend.name for backend in backends))
        ports = sorted({backend.egress for backend in backends})
        if len(ports) > 1:
            seen = f"{names} share it behind different ports: {', '.join(ports)}"
            yield Check(name, State.WRONG, seen, why, subject=mac)
        elif len({backend.name for backend in backends}) > 1:
            yield Check(name, State.UNKNOWN, f"{names}: one machine with two names, or a mistake", why, subject=mac)
        else:
            yield Check(name, State.OK, f"only {names}", why, subject=mac)


def check_mac_is_known(case: Case) -> Iterator[Check]:
    """The MAC has been heard: by the bridge behind the right port, or by this host as a neighbour."""
    if case.wanted is None:
        return
    why = "packets to a MAC that nobody has are lost without a sign"
    learned = case.host.learned.get(case.wanted.bridge, {})
    for backend in _backends(case):
        state, seen = _whereabouts(case, backend, learned.get(backend.mac))
        fix = Fix((("ip", "link", "show"),), is_elsewhere=True) if state is State.UNKNOWN else None
        yield Check("backend MAC heard", state, seen, why, subject=f"{backend.name} {backend.mac}", fix=fix)


def _whereabouts(case: Case, backend: WantedBackend, port: str | None) -> tuple[State, str]:
    if not isinstance(backend.facts, Unknown):
        found = backend.mac in backend.facts.macs
        return (State.OK, "the backend has it") if found else (State.WRONG, f"it has {', '.join(backend.facts.macs)}")
    if port is not None and port != backend.egress:
        return State.WRONG, f"the bridge has learned it on {port}, the config says {backend.egress}"
    if port is not None:
        return State.OK, f"the bridge has learned it on {port}"
    if isinstance(case.host.neighbours, Unknown):
        return State.UNKNOWN, case.host.neighbours.reason
    heard = [f"{n.address} on {n.device}" for n in case.host.neighbours if n.mac == backend.mac]
    if heard:
        return State.OK, f"neighbour {', '.join(heard)}"
    return State.UNKNOWN, "neither learned by the bridge nor a neighbour of this host; compare on the backend"


def check_vip(case: Case) -> Iterator[Check]:
    why = "a machine drops packets to an address that it does not have"
    for backend in _backends(case):
        for vip in backend.vips:
            fix = Fix((("ip", "address", "add", f"{vip}/{128 if ':' in vip else 32}", "dev", "lo"),), is_elsewhere=True)
            subject = f"{backend.name} {vip}"
            if isinstance(backend.facts, Unknown):
                look = Fix((("ip", "address", "show", "dev", "lo"),), is_elsewhere=True)
                yield Check("VIP on lo", State.UNKNOWN, _ask(backend.facts), why, subject=subject, fix=look)
            elif vip in backend.facts.loopback:
                yield Check("VIP on lo", State.OK, "there", why, subject=subject)
            else:
                yield Check("VIP on lo", State.WRONG, "not there", why, subject=subject, fix=fix)


def check_sysctls(case: Case) -> Iterator[Check]:
    """IPv4 alone: IPv6 has neither ARP nor rp_filter."""
    for backend in _backends(case):
        if not any("." in vip for vip in backend.vips):
            continue
        for key, wanted, is_right, value, why in _SYSCTLS:
            found = _sysctl(backend.facts, key)
            if isinstance(found, Unknown):
                look = Fix((("sysctl", f"net.ipv4.conf.all.{key}"),), is_elsewhere=True)
                yield Check(key, State.UNKNOWN, found.reason, why, subject=backend.name, fix=look)
            else:
                fix = Fix((("sysctl", "-w", f"net.ipv4.conf.all.{key}={value}"),), is_elsewhere=True)
                state = State.OK if is_right(found) else State.WRONG
                yield Check(key, state, f"{found}, wanted {wanted}", why, subject=backend.name, fix=fix)


def _sysctl(facts: BackendFacts | Unknown, key: str) -> int | Unknown:
    if isinstance(facts, Unknown):
        return Unknown(_ask(facts))
    return facts.sysctls.get(key, Unknown(f"the backend has no {key}"))


def _ask(facts: Unknown) -> str:
    return f"{facts.reason}; look on the backend"


def _backends(case: Case) -> tuple[WantedBackend, ...]:
    return () if case.wanted is None else case.wanted.backends


CheckFunction = Callable[[Case], Iterable[Check]]

HOST_CHECKS: tuple[CheckFunction, ...] = (
    openvswitch.check_running,
    openvswitch.check_settings,
    openvswitch.check_fork,
    openvswitch.check_leftovers,
    openvswitch.check_restore_wait,
    openvswitch.check_hw_offload,
    openvswitch.check_offload_in_effect,
    openvswitch.check_tc_policy,
    openvswitch.check_max_idle,
    openvswitch.check_max_revalidator,
    openvswitch.check_flow_limit,
    openvswitch.check_bridge,
    openvswitch.check_datapath_type,
    openvswitch.check_fail_mode,
    openvswitch.check_controllers,
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
    nic.check_hugepages,
    nic.check_doca_init,
)
"""From the daemon to the wire; what does not apply to a case gives no row."""

BACKEND_CHECKS: tuple[CheckFunction, ...] = (
    check_duplicates,
    check_mac_is_known,
    check_vip,
    check_sysctls,
)


def examine(case: Case, *, checks: Iterable[CheckFunction] = HOST_CHECKS) -> tuple[Check, ...]:
    """Every row, in the order of the checks. A row that is ok carries no command."""
    rows = (row for check in checks for row in check(case))
    return tuple(replace(row, fix=None) if row.state is State.OK else row for row in rows)


def has_wrong(checks: Iterable[Check]) -> bool:
    return any(check.state is State.WRONG for check in checks)


def is_running(checks: Iterable[Check]) -> bool:
    """Whether there is an Open vSwitch that a fix could be told to."""
    return not any(check.name == openvswitch.RUNS and check.state is State.WRONG for check in checks)


def safe_fixes(checks: Iterable[Check]) -> tuple[Fix, ...]:
    """What `--fix` may do, each once, in the order of the rows."""
    return tuple(dict.fromkeys(check.fix for check in checks if check.is_safely_mended and check.fix is not None))


def to_json(checks: Iterable[Check], where: CommandTarget) -> list[dict[str, object]]:
    """Rows as JSON; absent values are null. `where`: the Open vSwitch that commands have to reach."""
    return [
        {
            "check": check.name,
            "subject": check.subject,
            "state": check.state.value,
            "seen": check.seen,
            "why": check.why,
            "fix": None if check.fix is None else check.fix.text(where),
            "safe_to_fix": check.is_safely_mended,
            "needs_restart": check.needs_restart,
        }
        for check in checks
    ]
