"""Reasons of traffic control and of the driver for a rule that stays in software."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.judged import assert_shown
from tests.unit.judge.why_cases import COOKIE, UFID, WHOLE, case, device, host, megaflow, shown
from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.host import Feature, HostFacts, KernelFacts
from xenoovs.datapath.tc import DriverAnswer, Objection, TcFilter, objection_of
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.why.case import Case, shape_of
from xenoovs.judge.why.kernel import chain_reasons, kernel_reasons, silent_refusal
from xenoovs.judge.why.reason import Cause, Likelihood

RULE = TcFilter("ip", 2, 0, 8, COOKIE, in_hw=False, counters=None)


@pytest.mark.parametrize(
    ("keys", "in_port", "wanted"),
    [
        (
            "dp_hash(0/0)",
            "p0",
            "refused-by-driver, possible: ...[tc filter of p0, pref 2 handle 0x8: not_in_hw] -> "
            "xenoovs why FILE --probe-driver",
        ),
        (
            "tunnel(src=192.0.2.2,dst=192.0.2.1)",
            "genev_sys_6081",
            "refused-by-driver, possible: ...`tunnel route` and `tunnel local` of `xenoovs doctor`...-> xenoovs doctor",
        ),
    ],
    ids=["the rule itself is the evidence", "one of a tunnel device cannot be tried"],
)
def test_without_a_trial(keys: str, in_port: str, wanted: str) -> None:
    evidence = Evidence(host(), filters={COOKIE: RULE})
    assert_shown(shown([silent_refusal(case(megaflow(keys=keys, in_port=in_port), evidence=evidence))]), wanted)


def _answered(error: int | None, words: str | None, *, seen: HostFacts | None = None, **more: Any) -> Case:
    text = "" if error is None else "No space left on device" if error == 28 else "Operation not supported"
    return case(evidence=Evidence(seen or host(), driver={UFID: DriverAnswer(error, text, words, **more)}))


OFF = "TC offload is disabled on net device"
VETH = replace(device("p0", switch_id=None), hw_tc_offload=Feature(is_on=False, is_fixed=True))
ANSWERS = {
    "about the preference of the trial": (
        _answered(95, "requested priority is not supported", is_about_trial=True),
        "refused-by-driver, possible: the driver refuses the preference or chain of the trial...",
    ),
    # Bug: `not-retried`, confirmed: "the NIC accepts the rule now".
    "held as another rule": (
        _answered(None, None, is_about_trial=True),
        "refused-by-driver, possible: the trial proves nothing...",
    ),
    "the words of all trials": (
        _answered(95, "unsupported match key", further=("unsupported priority",)),
        "...[the driver reports: unsupported match key; the driver reports: unsupported priority]",
    ),
    "prefixes alone": (
        _answered(95, "eswitch: only prefix masks are supported"),
        "...-> # by `match: {bits: [31, 30, ...]}`...",
    ),
    "inline mode": (
        _answered(95, "mlx5_core: Flow is not offloaded due to min inline setting"),
        "...-> devlink dev eswitch set pci/ADDRESS inline-mode transport...",
    ),
    "two uplinks": (
        _answered(95, "mlx5_core: devices are not the same uplink, can't offload forwarding"),
        "...-> devlink dev param set pci/ADDRESS name esw_multiport...",
    ),
    "no room for a value": (
        _answered(28, "eswitch: hash collision"),
        "refused-by-driver, confirmed: the driver refuses the rule [the driver reports: eswitch: hash collision]",
    ),
    "a key": (
        _answered(95, "eswitch: unsupported match key"),
        "refused-by-driver, confirmed: ...[the driver reports: eswitch: unsupported match key]",
    ),
    "offload is off": (_answered(95, OFF), f"hw-tc-offload-off, confirmed: ...[the driver reports: {OFF}] -> ..."),
    "a device that cannot offload": (
        _answered(95, OFF, seen=host(devices=(VETH,))),
        f"port-not-on-eswitch, confirmed: p0 is no port of an eSwitch [the driver reports: {OFF}]",
    ),
    "a full table": (
        _answered(28, "eswitch: rule table is full"),
        "table-full, confirmed: ...[the driver reports: eswitch: rule table is full] -> ...",
    ),
    "accepted": (_answered(None, None), "not-retried, confirmed: ..."),
    "accepted, with skip_hw": (_answered(None, None, seen=host(history=replace(WHOLE, tc_policy="skip_hw"))), ""),
    "without a message": (
        _answered(95, None),
        "refused-by-driver, likely: the driver refuses the rule: Operation not supported []",
    ),
}


@pytest.mark.parametrize(("found", "wanted"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_of_the_driver(found: Case, wanted: str) -> None:
    assert_shown(shown(kernel_reasons(found)), wanted)


@pytest.mark.parametrize(
    ("error", "words", "objection"),
    [
        (28, "eswitch: hash collision", Objection.COLLISION),
        (28, "eswitch: hash table is full", Objection.TABLE_FULL),
        (17, "bucket chain too long", Objection.OTHER),
        (95, "mlx5_core: Setting VLAN prio is not supported", Objection.OTHER),
        (95, "inline crypto is not possible", Objection.OTHER),
        (95, "mlx5_core: Requested priority is out of supported range", Objection.PREFERENCE),
        (95, None, Objection.OTHER),
    ],
)
def test_what_a_driver_objects_to(error: int, words: str | None, objection: Objection) -> None:
    """A restart of Open vSwitch was the fix for a refused VLAN tag, and a full hash table was called a collision."""
    assert objection_of(error, words) is objection


def test_blocks_under_different_masks_have_one_shape_and_other_keys_another() -> None:
    narrow = megaflow()
    wide = megaflow(keys="dp_hash(0/0),ct_state(0/0)")
    assert shape_of(narrow) == shape_of(megaflow(actions="set(eth(dst=02:00:5e:10:00:03)),p1"))
    assert shape_of(narrow) != shape_of(wide)
    assert shape_of(narrow) != shape_of(megaflow(keys="dp_hash(0x1/0xf)"))


@pytest.mark.parametrize("answer", [None, DriverAnswer(28, "No space left on device", "rule table is full")])
def test_a_full_table_comes_with_what_makes_it_fit(answer: DriverAnswer | None) -> None:
    """An inferred full table had `revalidator/purge` as its only fix, which leaves the table just as full."""
    in_hardware = frozenset((shape_of(megaflow("offloaded:yes, dp:tc")),))
    driver = {} if answer is None else {UFID: answer}
    reason, *_ = kernel_reasons(case(evidence=Evidence(host(), in_hardware=in_hardware, driver=driver)))
    assert reason.cause is Cause.TABLE_FULL
    assert "xenoovs lint FILE --table-size ENTRIES" in reason.fix[:2]
    assert any("`tolerance`" in line and "`max_flows`" in line for line in reason.fix)
    assert ("xenoovs apply FILE" in reason.fix, "devlink dev param show" in reason.fix) == (True, True)
    assert reason.fix[-1] == "ovs-appctl revalidator/purge"


_TRACKED = "ct(zone=1),recirc(0x1)"


@pytest.mark.parametrize(
    ("layer", "actions", "has_tc_chains", "reasons"),
    [
        ("dp:ovs", _TRACKED, False, 1),
        ("dp:ovs", _TRACKED, True, 0),
        ("dp:ovs", _TRACKED, Unknown("no config"), 0),
        ("dp:ovs", "trunc(100),p1", False, 0),
        ("dp:tc", _TRACKED, False, 0),
    ],
)
def test_a_kernel_without_chains_is_the_reason_of_what_recirculates(
    layer: str, actions: str, has_tc_chains: bool | Unknown, reasons: int
) -> None:
    kernel = KernelFacts("6.1.0-56-amd64", {}, 0, has_tc_chains)
    seen = replace(host(), kernel=kernel)
    found = list(chain_reasons(case(megaflow(layer, actions), seen=seen)))
    assert len(found) == reasons
    assert all((one.cause, one.likelihood) == (Cause.RECIRCULATION, Likelihood.CERTAIN) for one in found)
