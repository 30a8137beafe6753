"""All checks in their order, and what they say together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from xenoovs.verify.commands import Where
from xenoovs.verify.doctor import backends, bridge, daemon, kernel, nic, ports
from xenoovs.verify.doctor.case import Case
from xenoovs.verify.doctor.check import Check, Fix, State

CheckFunction = Callable[[Case], Iterable[Check]]

HOST_CHECKS: tuple[CheckFunction, ...] = (
    daemon.check_running,
    daemon.check_settings,
    daemon.check_fork,
    daemon.check_leftovers,
    daemon.check_restore_wait,
    daemon.check_hw_offload,
    daemon.check_offload_in_effect,
    daemon.check_tc_policy,
    daemon.check_max_idle,
    daemon.check_max_revalidator,
    daemon.check_flow_limit,
    bridge.check_bridge,
    bridge.check_datapath_type,
    bridge.check_fail_mode,
    bridge.check_controllers,
    bridge.check_foreign_flows,
    ports.check_on_bridge,
    ports.check_works,
    ports.check_up,
    ports.check_provider,
    ports.check_hw_tc_offload,
    ports.check_ingress_qdisc,
    ports.check_tc_rules,
    nic.check_same_eswitch,
    nic.check_eswitch_mode,
    nic.check_steering,
    nic.check_multiport,
    nic.check_subfunction,
    nic.check_mtu,
    kernel.check_modules,
    kernel.check_hugepages,
    kernel.check_doca_init,
)
"""From the daemon to the wire; what does not apply to a case gives no row."""

BACKEND_CHECKS: tuple[CheckFunction, ...] = (
    backends.check_duplicates,
    backends.check_mac_is_known,
    backends.check_vip,
    backends.check_sysctls,
)


def examine(case: Case, *, checks: Iterable[CheckFunction] = HOST_CHECKS) -> tuple[Check, ...]:
    """Every row, in the order of the checks. A row that is ok carries no command."""
    rows = (row for check in checks for row in check(case))
    return tuple(replace(row, fix=None) if row.state is State.OK else row for row in rows)


def has_wrong(checks: Iterable[Check]) -> bool:
    return any(check.state is State.WRONG for check in checks)


def is_running(checks: Iterable[Check]) -> bool:
    """Whether there is an Open vSwitch that a fix could be told to."""
    return not any(check.name == daemon.RUNS and check.state is State.WRONG for check in checks)


def safe_fixes(checks: Iterable[Check]) -> tuple[Fix, ...]:
    """What `--fix` may do, each once, in the order of the rows."""
    return tuple(dict.fromkeys(check.fix for check in checks if check.is_safely_mended and check.fix is not None))


def to_json(checks: Iterable[Check], where: Where) -> list[dict[str, object]]:
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
