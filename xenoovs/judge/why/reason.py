"""Why a megaflow is not in hardware: causes, how certain they are, and the commands that fix them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, IntEnum

from xenoovs.dataclass import dataclass, replace

REVALIDATOR_PURGE = "ovs-appctl revalidator/purge"
"""Makes Open vSwitch reinstall all megaflows: it never offers an installed one to the hardware a second time, and a
megaflow that is narrower than needed stays while packets come (revalidate_ukey() of ofproto-dpif-upcall.c)."""


class Cause(Enum):
    """Name of a cause for programs; the names are stable."""

    REPORTED_BY_DATAPATH = "reported-by-datapath"
    SOFTWARE_DATAPATH = "software-datapath"
    HW_OFFLOAD_OFF = "hw-offload-off"
    NOT_RESTARTED = "not-restarted"
    TC_POLICY_SKIP_HW = "tc-policy-skip-hw"
    NO_PROVIDER = "port-without-provider"
    NO_INGRESS_QDISC = "no-ingress-qdisc"
    HW_TC_OFFLOAD_OFF = "hw-tc-offload-off"
    NOT_ON_ESWITCH = "port-not-on-eswitch"
    EGRESS_NOT_ON_ESWITCH = "egress-not-on-eswitch"
    SLOW_PATH = "slow-path"
    UNSUPPORTED_MATCH = "unsupported-match"
    UNSUPPORTED_ACTION = "unsupported-action"
    OVERRIDDEN = "overridden"
    UNWILDCARDED = "unwildcarded"
    RECIRCULATION = "recirculation"
    REFUSED_BY_OVS = "refused-by-ovs"
    REFUSED_BY_KERNEL = "refused-by-kernel"
    REFUSED_BY_DRIVER = "refused-by-driver"
    TABLE_FULL = "table-full"
    NOT_RETRIED = "not-retried"
    RULE_UNUSED = "rule-unused"
    RULE_PARTLY_USED = "rule-partly-used"
    NEIGHBOUR_UNRESOLVED = "neighbour-unresolved"
    COUNTERS_CONTRADICTED = "counters-contradicted"
    UNKNOWN = "unknown"


class Likelihood(IntEnum):
    """How certain a reason is.

    CONFIRMED: the datapath, Open vSwitch or the driver reported it for this very megaflow.
    CERTAIN:   a setting or property that keeps every such megaflow out.
    LIKELY:    the evidence suggests it, and none contradicts it.
    POSSIBLE:  worth checking.
    """

    CONFIRMED = 0
    CERTAIN = 1
    LIKELY = 2
    POSSIBLE = 3


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason. `fix`: commands to type, in order; `#` begins a comment; empty if nothing on this host fixes it.
    `source`: where Open vSwitch decides it or writes the line of the log."""

    cause: Cause
    likelihood: Likelihood
    text: str
    evidence: tuple[str, ...] = ()
    fix: tuple[str, ...] = ()
    source: str | None = None


def rank(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Return the reasons, most likely first. Equal ones are merged, with all evidence and the fix of the first."""
    merged: dict[tuple[Cause, str], Reason] = {}
    for reason in sorted(reasons, key=lambda reason: reason.likelihood):
        key = reason.cause, reason.text
        first = merged.setdefault(key, reason)
        if first is not reason:
            evidence = tuple(dict.fromkeys((*first.evidence, *reason.evidence)))
            merged[key] = replace(first, evidence=evidence, fix=first.fix or reason.fix)
    return tuple(merged.values())
