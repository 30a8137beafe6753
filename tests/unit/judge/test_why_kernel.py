"""Reasons of traffic control and of the driver for a rule that stays in software."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.judge.why_cases import COOKIE, UFID, WHOLE, case, device, host, megaflow
from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.host import Feature, KernelFacts
from xenoovs.datapath.tc import DriverAnswer, Objection, TcFilter, objection_of
from xenoovs.evidence.command_target import CommandTarget
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.why.case import shape_of
from xenoovs.judge.why.kernel import chain_reasons, kernel_reasons, silent_refusal
from xenoovs.judge.why.reason import Cause, Likelihood

RULE = TcFilter("ip", 2, 0, 8, COOKIE, in_hw=False, counters=None)


def test_without_a_trial_the_rule_itself_is_the_evidence() -> None:
    reason = silent_refusal(
        case(evidence=Evidence(host(), filters={COOKIE: RULE}, target=CommandTarget(config="my.yaml")))
    )
    assert (reason.cause, reason.likelihood) == (Cause.REFUSED_BY_DRIVER, Likelihood.POSSIBLE)
    assert reason.evidence == ("tc filter of p0, pref 2 handle 0x8: not_in_hw",)
    assert reason.fix == ("xenoovs why FILE --probe-driver",)


def test_a_rule_of_a_tunnel_device_cannot_be_tried_so_the_usual_cause_is_named() -> None:
    came = megaflow(keys="tunnel(src=192.0.2.2,dst=192.0.2.1)", in_port="genev_sys_6081")
    reason = silent_refusal(case(came, evidence=Evidence(host(), filters={COOKIE: RULE})))
    assert (reason.cause, reason.likelihood) == (Cause.REFUSED_BY_DRIVER, Likelihood.POSSIBLE)
    assert "`tunnel route` and `tunnel local` of `xenoovs doctor`" in reason.text
    assert reason.fix == ("xenoovs doctor",)


def test_an_answer_about_the_preference_of_the_trial_is_no_reason() -> None:
    answer = DriverAnswer(95, "Operation not supported", "requested priority is not supported", is_about_trial=True)
    (reason,) = kernel_reasons(case(evidence=Evidence(host(), driver={UFID: answer})))
    assert (reason.likelihood, "refuses preference or chain of the trial" in reason.text) == (Likelihood.POSSIBLE, True)


def test_a_trial_that_was_held_as_another_rule_is_no_reason() -> None:
    """The reason was `not-retried`, confirmed: "the NIC accepts the rule now"."""
    answer = DriverAnswer(None, is_about_trial=True)
    (reason,) = kernel_reasons(case(evidence=Evidence(host(), driver={UFID: answer})))
    assert (reason.cause, reason.likelihood) == (Cause.REFUSED_BY_DRIVER, Likelihood.POSSIBLE)
    assert "proves nothing" in reason.text


def test_the_words_of_all_trials_are_shown() -> None:
    answer = DriverAnswer(95, "Operation not supported", "unsupported match key", further=("unsupported priority",))
    (reason,) = kernel_reasons(case(evidence=Evidence(host(), driver={UFID: answer})))
    assert reason.evidence == (
        "the driver reports: unsupported match key",
        "the driver reports: unsupported priority",
    )


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("eswitch: only prefix masks are supported", "`match: {bits: [31, 30, ...]}`"),
        ("mlx5_core: Flow is not offloaded due to min inline setting", "inline-mode transport"),
        ("mlx5_core: devices are not the same uplink, can't offload forwarding", "esw_multiport"),
    ],
)
def test_a_refusal_that_has_a_remedy_names_it(words: str, command: str) -> None:
    answer = DriverAnswer(95, "Operation not supported", words)
    (reason,) = kernel_reasons(case(evidence=Evidence(host(), driver={UFID: answer})))
    assert any(command in line for line in reason.fix), reason.fix


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


def test_no_room_for_a_value_is_no_full_table() -> None:
    answer = DriverAnswer(28, "No space left on device", "eswitch: hash collision")
    (reason,) = kernel_reasons(case(evidence=Evidence(host(), driver={UFID: answer})))
    assert (reason.cause, reason.likelihood, reason.fix) == (Cause.REFUSED_BY_DRIVER, Likelihood.CONFIRMED, ())


@pytest.mark.parametrize(
    ("error", "words", "cause"),
    [
        (95, "eswitch: unsupported match key", Cause.REFUSED_BY_DRIVER),
        (95, "TC offload is disabled on net device", Cause.HW_TC_OFFLOAD_OFF),
        (28, "eswitch: rule table is full", Cause.TABLE_FULL),
        (None, None, Cause.NOT_RETRIED),
    ],
)
def test_the_message_of_the_driver(error: int | None, words: str | None, cause: Cause) -> None:
    answer = DriverAnswer(error, "as strerror says", words)
    (reason,) = kernel_reasons(case(evidence=Evidence(host(), driver={UFID: answer})))
    assert (reason.cause, reason.likelihood) == (cause, Likelihood.CONFIRMED)
    assert words is None or reason.evidence == (f"the driver reports: {words}",)


def test_a_device_that_cannot_offload_gets_no_fix() -> None:
    answer = DriverAnswer(95, "Operation not supported", "TC offload is disabled on net device")
    veth = replace(device("p0", switch_id=None), hw_tc_offload=Feature(is_on=False, is_fixed=True))
    (reason,) = kernel_reasons(case(evidence=Evidence(host(devices=(veth,)), driver={UFID: answer})))
    assert (reason.cause, reason.fix) == (Cause.NOT_ON_ESWITCH, ())


def test_with_skip_hw_an_accepted_trial_is_no_evidence() -> None:
    skip_hw = host(history=replace(WHOLE, tc_policy="skip_hw"))
    assert list(kernel_reasons(case(evidence=Evidence(skip_hw, driver={UFID: DriverAnswer(None)})))) == []


def test_a_driver_without_a_message_ranks_below_surer_reasons() -> None:
    answer = DriverAnswer(95, "Operation not supported")
    (reason,) = kernel_reasons(case(evidence=Evidence(host(), driver={UFID: answer})))
    assert reason.likelihood is Likelihood.LIKELY
    assert "Operation not supported" in reason.text


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
