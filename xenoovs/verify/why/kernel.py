"""Reasons from the kernel's traffic control and the driver for a rule that stays in software."""

from __future__ import annotations

from collections.abc import Iterator

from xenoovs.datapath.host import Feature
from xenoovs.datapath.megaflow import Verdict
from xenoovs.verify.why.case import Case, DriverAnswer, shape_of
from xenoovs.verify.why.reason import REVALIDATOR_PURGE, Cause, Likelihood, Reason

_ENOSPC = 28
"""errno(3) of Linux, all architectures that have eSwitches."""
_OFFLOAD_OFF = "TC offload is disabled on net device"
"""tc_can_offload_extack (include/net/pkt_cls.h of Linux)."""

_SKIP_HW = "skip_hw"
"""With this tc-policy Open vSwitch offers no rule to the driver, so an accepted trial explains nothing."""

_FEWER_ENTRIES = (
    "xenoovs lint FILE --table-size ENTRIES",
    "# fewer blocks need fewer entries: a larger `tolerance` or a smaller `max_flows` of services in the config, then:",
    "xenoovs apply FILE",
    "# or a larger table, if the driver or the firmware has such a setting:",
    "devlink dev param show",
    "# a refused rule is offered again only when its megaflow is reinstalled:",
    REVALIDATOR_PURGE,
)
"""For a full table: how many entries are needed, and how to need fewer or have a larger table (devlink-dev(8))."""


def kernel_reasons(case: Case) -> Iterator[Reason]:
    """Yield reasons for TC_SW: the driver's answer if it was asked, else a conclusion from similar megaflows."""
    if case.verdict is not Verdict.TC_SW:
        return
    answer = case.evidence.driver.get(case.megaflow.ufid or "")
    if answer is not None:
        if answer.error is not None or case.evidence.tc_policy != _SKIP_HW:
            yield _answered(answer, case)
        return
    if shape_of(case.megaflow) in case.evidence.in_hardware:
        yield Reason(
            Cause.TABLE_FULL,
            Likelihood.LIKELY,
            "the NIC holds other megaflows of this shape, so its table was full when this one was installed",
            _rule(case),
            _FEWER_ENTRIES,
        )


def silent_refusal(case: Case) -> Reason:
    """Return the reason for a rule that stays in traffic control without any other reason."""
    return Reason(
        Cause.REFUSED_BY_DRIVER,
        Likelihood.POSSIBLE,
        "the driver refused the rule without a message in any log; --probe-driver asks it for the reason",
        _rule(case),
        ("xenoovs why FILE --probe-driver",),
    )


def _answered(answer: DriverAnswer, case: Case) -> Reason:
    if answer.error is None:
        text = "the NIC accepts the rule now, but Open vSwitch does not offer it a second time"
        return Reason(
            Cause.NOT_RETRIED,
            Likelihood.CONFIRMED,
            text,
            ("a trial was accepted",),
            (REVALIDATOR_PURGE,),
        )
    if answer.message is None:
        return Reason(Cause.REFUSED_BY_DRIVER, Likelihood.LIKELY, f"the driver refuses the rule: {answer.text}")
    evidence = (f"the driver reports: {answer.message}",)
    if answer.error == _ENOSPC:
        text = (
            "the table of the NIC is full: remove entries of other programs, or allow a larger tolerance (fewer blocks)"
        )
        return Reason(Cause.TABLE_FULL, Likelihood.CONFIRMED, text, evidence, _FEWER_ENTRIES)
    if _OFFLOAD_OFF in answer.message and _cannot_offload(case):
        return Reason(Cause.NOT_ON_ESWITCH, Likelihood.CONFIRMED, f"{case.in_port} is no port of an eSwitch", evidence)
    if _OFFLOAD_OFF in answer.message:
        fix = (f"ethtool -K {case.in_port} hw-tc-offload on", REVALIDATOR_PURGE)
        return Reason(
            Cause.HW_TC_OFFLOAD_OFF, Likelihood.CONFIRMED, f"the device {case.in_port} accepts no rules", evidence, fix
        )
    return Reason(Cause.REFUSED_BY_DRIVER, Likelihood.CONFIRMED, "the driver refuses the rule", evidence)


def _cannot_offload(case: Case) -> bool:
    """Return whether the driver of the ingress port supports no offload of rules."""
    device = case.evidence.device(case.in_port)
    feature = device.hw_tc_offload if device is not None else None
    return isinstance(feature, Feature) and feature.is_fixed and not feature.is_on


def _rule(case: Case) -> tuple[str, ...]:
    rule = case.filter
    if rule is None:
        return ("dp:tc without offloaded:yes",)
    state = {True: "in_hw", False: "not_in_hw", None: "neither in_hw nor not_in_hw"}[rule.in_hw]
    return (f"tc filter of {case.in_port}, pref {rule.pref} handle {rule.handle:#x}: {state}",)
