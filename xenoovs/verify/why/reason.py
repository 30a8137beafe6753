"""Reasons as values: what keeps a megaflow out of the NIC, how sure that is, who says so, and what mends it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, IntEnum


class Cause(Enum):
    """What it is, as a word for programs; the words stay from release to release."""

    TOLD_BY_DATAPATH = "told-by-datapath"
    SOFTWARE_DATAPATH = "software-datapath"
    HW_OFFLOAD_OFF = "hw-offload-off"
    NOT_RESTARTED = "not-restarted"
    TC_POLICY_SKIP_HW = "tc-policy-skip-hw"
    NO_PROVIDER = "port-without-provider"
    NO_INGRESS_QDISC = "no-ingress-qdisc"
    HW_TC_OFFLOAD_OFF = "hw-tc-offload-off"
    NOT_ON_ESWITCH = "port-not-on-eswitch"
    EGRESS_ELSEWHERE = "egress-not-on-eswitch"
    SLOW_PATH = "slow-path"
    UNSUPPORTED_MATCH = "unsupported-match"
    UNSUPPORTED_ACTION = "unsupported-action"
    WIDENED = "widened"
    RECIRCULATION = "recirculation"
    REFUSED_BY_OVS = "refused-by-ovs"
    REFUSED_BY_KERNEL = "refused-by-kernel"
    REFUSED_BY_DRIVER = "refused-by-driver"
    TABLE_FULL = "table-full"
    NOT_TRIED_AGAIN = "not-tried-again"
    UNKNOWN = "unknown"


class Likelihood(IntEnum):
    """How sure a reason is, the surest first.

    TOLD:     the datapath, Open vSwitch or the driver said it of this very megaflow.
    CERTAIN:  a setting or property that keeps every such megaflow out.
    LIKELY:   what was seen points there, and nothing seen speaks against it.
    POSSIBLE: worth a look.
    """

    TOLD = 0
    CERTAIN = 1
    LIKELY = 2
    POSSIBLE = 3


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason.

    text:     one sentence without a full stop.
    evidence: what was seen: a setting, a line of the log, the driver's own words.
    mend:     commands to type, in their order, of which `#` begins a comment; empty: nothing mends it where it is.
    source:   where Open vSwitch decides so, or writes the line of the log that tells it.
    """

    cause: Cause
    likelihood: Likelihood
    text: str
    evidence: tuple[str, ...] = ()
    mend: tuple[str, ...] = ()
    source: str | None = None


def rank(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Most likely first; each once, with the evidence of all who gave it and the mending of the surest."""
    merged: dict[tuple[Cause, str], Reason] = {}
    for reason in sorted(reasons, key=lambda reason: reason.likelihood):
        key = reason.cause, reason.text
        first = merged.setdefault(key, reason)
        if first is not reason:
            evidence = tuple(dict.fromkeys((*first.evidence, *reason.evidence)))
            merged[key] = replace(first, evidence=evidence, mend=first.mend or reason.mend)
    return tuple(merged.values())
