"""Reasons from the kernel's traffic control and the driver for a rule that stays in software."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.host import Feature
from xenoovs.datapath.megaflow import Verdict
from xenoovs.datapath.tc import DriverAnswer, Objection, objection_of
from xenoovs.datapath.tunnel import is_tunnel_device
from xenoovs.judge.chains import is_hop
from xenoovs.judge.why.case import Case, shape_of
from xenoovs.judge.why.reason import REVALIDATOR_PURGE, Cause, Likelihood, Reason

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
"""Commands for a full table: show the entries needed, need fewer, or enlarge the table (devlink-dev(8))."""


_REMEDIES: Mapping[Objection, tuple[str, ...]] = {
    Objection.TABLE_FULL: _FEWER_ENTRIES,
    Objection.PREFIX_MASK: (
        "# the NIC matches prefixes only, and low bits are none: let the highest bits that differ choose backends,",
        "# by `match: {{bits: [31, 30, ...]}}` of the service in the config (`xenoovs explain match.bits`), then:",
        "xenoovs plan FILE",
        "xenoovs apply FILE",
    ),
    Objection.PREFERENCE: (
        "# Open vSwitch gives each new mask the next preference, and begins at 1 again only when it restarts:",
        "systemctl restart openvswitch-switch",
        "xenoovs apply FILE",
    ),
    Objection.INLINE_MODE: ("devlink dev eswitch set pci/{pci} inline-mode transport", REVALIDATOR_PURGE),
    Objection.UPLINK: ("devlink dev param set pci/{pci} name esw_multiport value 1 cmode runtime", REVALIDATOR_PURGE),
    Objection.OFFLOAD_OFF: ("ethtool -K {port} hw-tc-offload on", REVALIDATOR_PURGE),
}
"""Commands; those with a PCI address are for mlx5 (networking/devlink/mlx5.rst of Linux)."""


_OTHER_KERNEL = "# use a kernel that is built with CONFIG_NET_TC_SKB_EXT=y, as those of RHEL and Ubuntu"


def chain_reasons(case: Case) -> Iterator[Reason]:
    """Yield a reason for a megaflow that recirculates packets, if this kernel cannot offload chains."""
    kernel = case.evidence.host.kernel
    if isinstance(kernel, Unknown) or kernel.has_tc_chains is not False:
        return
    if case.verdict is Verdict.SW and is_hop(case.megaflow) and case.may_be_in_kernel:
        text = (
            "the kernel is built without CONFIG_NET_TC_SKB_EXT: Open vSwitch offloads no megaflow that recirculates "
            "packets, as for connection tracking or hashing by OVN"
        )
        seen, fix = f"the config of kernel {kernel.release} does not set it", _OTHER_KERNEL
        source = "lib/dpif-netlink.c, dpif_netlink_set_features()"
        yield Reason(Cause.RECIRCULATION, Likelihood.CERTAIN, text, (seen,), (fix,), source)


def kernel_reasons(case: Case) -> Iterator[Reason]:
    """Yield reasons for TC_SW: the driver's answer if it was asked, else a conclusion from similar megaflows."""
    if case.verdict is not Verdict.TC_SW:
        return
    answer = case.driver_answer
    if answer is not None and not answer.is_about_trial:
        if not answer.is_accepted or case.evidence.tc_policy != _SKIP_HW:
            yield _answered(answer, case)
        return
    if answer is not None:
        yield _unanswered(answer, case)
    if shape_of(case.megaflow) in case.evidence.in_hardware:
        held, is_asked = "the NIC holds other megaflows of this shape", answer is not None
        ask, hint = ((), "") if is_asked else (("xenoovs why FILE --probe-driver",), "; --probe-driver asks the driver")
        text = f"{held}, so its table may have been full when this one was installed{hint}"
        yield Reason(Cause.TABLE_FULL, Likelihood.POSSIBLE, text, _rule(case), (*ask, *_FEWER_ENTRIES))
        text = f"{held}, so the driver may refuse some by their values, as in a hash collision{hint}"
        yield Reason(Cause.REFUSED_BY_DRIVER, Likelihood.POSSIBLE, text, _rule(case), ask)


def silent_refusal(case: Case) -> Reason:
    """Return the reason for a rule that stays in traffic control without any other reason."""
    text = "the driver refused the rule without a message in any log; --probe-driver asks it for the reason"
    fix = "xenoovs why FILE --probe-driver"
    if is_tunnel_device(case.in_port):
        # The kernel refuses a trial here itself, without the driver.
        text = (
            "the driver took no rule for packets of this tunnel; most often their local address is on no port of its "
            "eSwitch, as on a bridge; see `tunnel route` and `tunnel local` of `xenoovs doctor`, and dmesg"
        )
        fix = "xenoovs doctor"
    return Reason(Cause.REFUSED_BY_DRIVER, Likelihood.POSSIBLE, text, _rule(case), (fix,))


def _answered(answer: DriverAnswer, case: Case) -> Reason:
    if answer.error is None:
        text = "the NIC accepts the rule now, but Open vSwitch does not offer it a second time"
        return Reason(Cause.NOT_RETRIED, Likelihood.CONFIRMED, text, ("a trial was accepted",), (REVALIDATOR_PURGE,))
    if answer.message is None:
        return Reason(Cause.REFUSED_BY_DRIVER, Likelihood.LIKELY, f"the driver refuses the rule: {answer.text}")
    objection, evidence = objection_of(answer.error, answer.message), _reports(answer)
    device = case.evidence.device(case.in_port)
    pci = "ADDRESS" if device is None or device.pci is None else device.pci
    fix = tuple(command.format(pci=pci, port=case.in_port) for command in _REMEDIES.get(objection, ()))
    if objection is Objection.TABLE_FULL:
        text = (
            "the table of the NIC is full: remove entries of other programs, or allow a larger tolerance (fewer blocks)"
        )
        return Reason(Cause.TABLE_FULL, Likelihood.CONFIRMED, text, evidence, fix)
    feature = None if device is None else device.hw_tc_offload
    if objection is Objection.OFFLOAD_OFF and isinstance(feature, Feature) and feature.is_fixed and not feature.is_on:
        return Reason(Cause.NOT_ON_ESWITCH, Likelihood.CONFIRMED, f"{case.in_port} is no port of an eSwitch", evidence)
    if objection is Objection.OFFLOAD_OFF:
        text = f"the device {case.in_port} accepts no rules"
        return Reason(Cause.HW_TC_OFFLOAD_OFF, Likelihood.CONFIRMED, text, evidence, fix)
    return Reason(Cause.REFUSED_BY_DRIVER, Likelihood.CONFIRMED, "the driver refuses the rule", evidence, fix)


def _unanswered(answer: DriverAnswer, case: Case) -> Reason:
    """Return the reason for a rule about which the trial proves nothing."""
    if answer.error is None:
        text = "the trial proves nothing: the kernel took it as another rule than the one of this megaflow"
    else:
        text = "the driver refuses the preference or chain of the trial, and reports nothing about the rule"
    return Reason(Cause.REFUSED_BY_DRIVER, Likelihood.POSSIBLE, text, (*_reports(answer), *_rule(case)))


def _reports(answer: DriverAnswer) -> tuple[str, ...]:
    """Return the messages of the driver; first the one about the rule."""
    words = (answer.message, *answer.further)
    return tuple(f"the driver reports: {message}" for message in words if message is not None)


def _rule(case: Case) -> tuple[str, ...]:
    return ("dp:tc without offloaded:yes" if case.filter is None else case.filter.text(case.in_port),)
