"""Checks of OVN on the same Open vSwitch: what belongs to it, and what it shares."""

from __future__ import annotations

from collections.abc import Iterator

from xenoovs.datapath.database import BridgeState
from xenoovs.datapath.ovn import OvnChassis
from xenoovs.verify.doctor.check import CheckResult, CheckState, DoctorCase, HostCheck


def check_ovn(case: DoctorCase) -> Iterator[CheckResult]:
    """Report the bridges of OVN; one of them in the config is wrong. A host without OVN has no row."""
    check = HostCheck("OVN here", "ovn-controller deletes flows of other programs from its bridge")
    if case.database is None:
        return
    wanted = None if case.required is None else case.required.bridge
    for bridge in case.database.bridges:
        if bridge.ovn is None:
            continue
        if not bridge.ovn.is_owner:
            seen = f"shared with OVN: {bridge.ovn.evidence}; give no service an address of its networks"
            yield check.row(CheckState.UNKNOWN if bridge.name == wanted else CheckState.OK, seen, bridge.name)
        elif bridge.name == wanted:
            yield check.wrong(
                f"the config names it, but {_owner(bridge, bridge.ovn.evidence, case.database.chassis)}", bridge.name
            )
        else:
            yield check.ok(f"{_owner(bridge, bridge.ovn.evidence, case.database.chassis)}; not touched", bridge.name)


def _owner(bridge: BridgeState, evidence: str, chassis: tuple[OvnChassis, ...]) -> str:
    """Return whose bridge it is, a clause."""
    owner = next((each for each in chassis if each.bridge == bridge.name), None)
    if owner is None:
        return f"it belongs to OVN ({evidence})"
    name = owner.name or "without system-id"
    return f"it belongs to OVN ({', '.join((f'chassis {name}', *owner.encap))})"
