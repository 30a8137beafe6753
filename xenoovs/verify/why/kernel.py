"""Reasons that the kernel's traffic control and the driver behind it give for a rule that they hold in software."""

from __future__ import annotations

from collections.abc import Iterator

from xenoovs.datapath.host import Feature
from xenoovs.datapath.megaflow import Verdict
from xenoovs.verify.why.case import Case, DriverAnswer, shape_of
from xenoovs.verify.why.reason import Cause, Likelihood, Reason

_ENOSPC = 28
"""errno(3) of Linux, all architectures that have eSwitches."""
_OFFLOAD_OFF = "TC offload is disabled on net device"
"""tc_can_offload_extack (include/net/pkt_cls.h of Linux)."""

_NOT_ASKED = "skip_hw"
"""The tc-policy with which no driver is asked: that a trial was accepted says nothing about why the rule is not."""

_AGAIN = "ovs-appctl revalidator/purge"

_FEWER_ENTRIES = (
    "xenoovs lint FILE --table-size ENTRIES",
    "# fewer blocks need fewer entries: a larger `tolerance` or a smaller `max_flows` of services in the config, then:",
    "xenoovs apply FILE",
    "# or a larger table, where the driver or the firmware has such a setting:",
    "devlink dev param show",
    "# what was refused is offered again only when it is installed anew:",
    _AGAIN,
)
"""For a full table: what it would have to hold, and what makes that less, or the table larger (devlink-dev(8))."""


def kernel_reasons(case: Case) -> Iterator[Reason]:
    """Only for TC_SW: the driver's own words where it was asked, else what the rule and its siblings tell."""
    if case.verdict is not Verdict.TC_SW:
        return
    answer = case.evidence.driver.get(case.megaflow.ufid or "")
    if answer is not None:
        if answer.error is not None or case.evidence.tc_policy != _NOT_ASKED:
            yield _told(answer, case)
        return
    if shape_of(case.megaflow) in case.evidence.in_hardware:
        yield Reason(
            Cause.TABLE_FULL,
            Likelihood.LIKELY,
            "the NIC holds other megaflows of this very shape, so its table was full when this one came",
            _rule(case),
            _FEWER_ENTRIES,
        )


def silent_refusal(case: Case) -> Reason:
    """What is left where nobody gave a reason for a rule that stays in traffic control."""
    return Reason(
        Cause.REFUSED_BY_DRIVER,
        Likelihood.POSSIBLE,
        "the driver refused the rule without a word in any log; --probe-driver asks it for the reason",
        _rule(case),
        ("xenoovs why FILE --probe-driver",),
    )


def _told(answer: DriverAnswer, case: Case) -> Reason:
    if answer.error is None:
        text = "the NIC takes the rule now, but Open vSwitch does not offer it a second time"
        return Reason(Cause.NOT_TRIED_AGAIN, Likelihood.TOLD, text, ("a trial was accepted",), (_AGAIN,))
    if answer.words is None:
        return Reason(Cause.REFUSED_BY_DRIVER, Likelihood.LIKELY, f"the driver refuses the rule: {answer.text}")
    said = (f"the driver says: {answer.words}",)
    if answer.error == _ENOSPC:
        text = "the table of the NIC is full: remove what others hold in it, or allow a larger tolerance (fewer blocks)"
        return Reason(Cause.TABLE_FULL, Likelihood.TOLD, text, said, _FEWER_ENTRIES)
    if _OFFLOAD_OFF in answer.words and _takes_no_rules(case):
        return Reason(Cause.NOT_ON_ESWITCH, Likelihood.TOLD, f"{case.in_port} is no port of a NIC's switch", said)
    if _OFFLOAD_OFF in answer.words:
        fix = (f"ethtool -K {case.in_port} hw-tc-offload on", _AGAIN)
        return Reason(Cause.HW_TC_OFFLOAD_OFF, Likelihood.TOLD, f"the device {case.in_port} takes no rules", said, fix)
    return Reason(Cause.REFUSED_BY_DRIVER, Likelihood.TOLD, "the driver refuses the rule", said)


def _takes_no_rules(case: Case) -> bool:
    """Whether nothing can turn it on: the driver of the ingress port knows no offload of rules."""
    device = case.evidence.device(case.in_port)
    feature = device.hw_tc_offload if device is not None else None
    return isinstance(feature, Feature) and feature.is_fixed and not feature.is_on


def _rule(case: Case) -> tuple[str, ...]:
    rule = case.filter
    if rule is None:
        return ("dp:tc without offloaded:yes",)
    state = {True: "in_hw", False: "not_in_hw", None: "neither in_hw nor not_in_hw"}[rule.in_hw]
    return (f"tc filter of {case.in_port}, pref {rule.pref} handle {rule.handle:#x}: {state}",)
