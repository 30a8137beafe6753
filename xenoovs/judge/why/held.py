"""Reasons from two samples: the NIC holds the rule, and the CPU forwards."""

from __future__ import annotations

from collections.abc import Iterator

from xenoovs.datapath.ipsec import address_text
from xenoovs.datapath.megaflow import Verdict
from xenoovs.datapath.outer import encapsulations
from xenoovs.errors import counted
from xenoovs.judge.tree import filter_text
from xenoovs.judge.why.case import Case, HeldRule
from xenoovs.judge.why.reason import Cause, Likelihood, Reason

_REINSTALL = (
    "# a reset of the NIC leaves a line of its driver here:",
    "dmesg",
    "# installs all rules again, and compares two samples of them; run it while traffic flows:",
    "xenoovs why FILE --reinstall",
)


def held_reasons(case: Case, held: HeldRule) -> Iterator[Reason]:
    """Yield why the CPU forwards although the NIC holds the rule. The NIC accepted it, so no refusal is a reason."""
    evidence = tuple(_evidence(case, held))
    if case.verdict is Verdict.CONTRADICTED:
        text = (
            f"the NIC counts the packets, and {case.in_port} gave the CPU more than the megaflows explain: another "
            "program handles them before Open vSwitch, or the driver counts packets that it does not forward"
        )
        if held.port is not None and held.port.twice:
            text = "the driver counts packets as the NIC's that the CPU forwards"
        port = (str(held.port),) if held.port is not None else ()
        fix = tuple(command.format(port=case.in_port) for command in _CONTRADICTED)
        yield Reason(Cause.COUNTERS_CONTRADICTED, Likelihood.LIKELY, text, (*port, *evidence), fix)
        return
    if held.state.reason:
        yield Reason(Cause.RECIRCULATION, Likelihood.CERTAIN, held.state.reason, evidence[1:])
        return
    unresolved = tuple(_unresolved(case, evidence))
    if any(reason.likelihood is Likelihood.CERTAIN for reason in unresolved):
        yield from unresolved
        return
    if case.verdict is not Verdict.IDLE_HW:
        text = "the NIC forwards only a part of the packets by the rule that it holds"
        yield Reason(Cause.RULE_PARTLY_USED, Likelihood.CONFIRMED, text, evidence, _REINSTALL)
        return
    text = "the NIC holds the rule and does not use it; likely it was reset and lost its rules, or it evicted this one"
    yield Reason(Cause.RULE_UNUSED, Likelihood.CONFIRMED, text, evidence, _REINSTALL)
    yield from unresolved


def _unresolved(case: Case, evidence: tuple[str, ...]) -> Iterator[Reason]:
    """Yield that the MAC of the next hop of a tunnel is unknown, as certain if the kernel has asked in vain."""
    tunnels = case.evidence.host.tunnels
    for outer in encapsulations(case.megaflow.actions):
        remote = address_text(outer.remote, is_ipv6=outer.is_ipv6)
        fix = tuple(command.format(remote=remote) for command in _RESOLVE)
        hop, entry = (tunnels and tunnels.neighbour(remote)) or (remote, None)
        if entry is None:
            text = (
                f"the MAC of the next hop to {remote} may be unknown: until then mlx5 has a rule in place of this one "
                "that gives the packets to the CPU"
            )
            yield Reason(Cause.NEIGHBOUR_UNRESOLVED, Likelihood.POSSIBLE, text, (), fix)
        elif not entry.is_valid:
            text = f"the next hop to {remote} does not answer, and without its MAC the NIC cannot encapsulate"
            shown = f"{hop}: no answer ({entry.state})"
            yield Reason(Cause.NEIGHBOUR_UNRESOLVED, Likelihood.CERTAIN, text, (shown, *evidence), fix)


_RESOLVE = (
    "# the next hop must be REACHABLE or STALE:",
    "ip route get {remote}",
    "ip neigh show",
    "# makes the kernel ask for its MAC:",
    "ping -c 1 {remote}",
)
_CONTRADICTED = (
    "# rules without a cookie are not Open vSwitch's:",
    "tc -s filter show dev {port} ingress",
    "# `prog/xdp` is a program that gets packets before Open vSwitch:",
    "ip link show dev {port}",
    "# what reaches the CPU:",
    "tcpdump -c 20 -ni {port}",
    "# if these are packets of the megaflow and no other program is there, let Open vSwitch install the rules again:",
    "xenoovs why FILE --reinstall",
    "# if it stays so, report it to the vendor of the driver",
)


def _evidence(case: Case, held: HeldRule) -> Iterator[str]:
    state = held.state
    if state.growth is not None and state.growth.packets:
        came = f"{counted(state.growth.packets, 'packet')} came between two samples"
        yield f"{came}, {state.growth.hw_packets} of them in hardware"
    else:
        yield f"{counted(state.packets, 'packet')} since the rule was installed, {state.hw_packets} of them in hardware"
    if held.filter is not None:
        yield filter_text(held.filter, case.in_port or "-")
