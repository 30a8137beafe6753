"""`xenoovs why` in every scenario: it explains the megaflows that are not in hardware, and names the true reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.nic.judged import Judged, judged_at, judgements
from tests.nic.recorded import VIP, Story, in_hardware_by_tc

_FOREIGN = "after 5 packets of each client, 2 of a few to foreign flows"

every_scenario = pytest.mark.parametrize(
    "story",
    [
        *("accepted", "ageing", "copying", "drain", "fixed", "foreign", "foreign_port", "limits", "overlapping"),
        *("skip_hw", "skip_sw", "switched", "tagged", "vlans"),
    ],
    indirect=True,
)


def _in_software(judged: Judged, ports: tuple[str, ...] = ("p0",)) -> set[str]:
    held = {rule.ufid for rule in judged.look.rules}
    return {flow.ufid or "" for flow in judged.look.megaflows if flow.in_port in ports and flow.ufid not in held}


@every_scenario
def test_exactly_the_megaflows_without_an_entry_of_the_nic_are_explained(story: Story) -> None:
    for judged in judgements(story, "why"):
        assert set(judged.explained) == _in_software(judged, ("p0", "p1", "x0")), judged.look.label


@every_scenario
def test_no_reason_is_unknown(story: Story) -> None:
    for judged in judgements(story, "why"):
        assert not [reasons for reasons in judged.explained.values() if reasons[0]["cause"] == "unknown"]


_WITHOUT_LIMIT = (("limits", "larger table"), ("switched", "on"))
"""The NIC takes now what it has refused; nowhere else may `why` say so."""


@every_scenario
def test_what_the_nic_refused_is_explained_in_its_own_words(story: Story) -> None:
    for judged in judgements(story, "why"):
        in_tc = judged.look.tc_ufids - in_hardware_by_tc(judged.look)
        for ufid in in_tc & story.refused.keys():
            first = next(reason for reason in judged.explained[ufid] if reason["cause"] != "overridden")
            if (story.name, judged.look.label) in _WITHOUT_LIMIT:
                assert (first["cause"], first["likelihood"]) == ("not-retried", "confirmed"), first
            else:
                assert first["likelihood"] == "confirmed", first
                # After a purge the same megaflow is offered again, and may be refused for another reason.
                answers = {f"the driver reports: {answer}" for answer in story.refusals[ufid]}
                assert answers & set(first["evidence"]), first


@pytest.mark.parametrize("story", ["overlapping"], indirect=True)
def test_beside_the_refusal_stands_the_flow_of_others_that_brought_the_key_in(story: Story) -> None:
    """The driver's `unsupported match key` named neither key nor flow, and no fix."""
    judged = judged_at(story, "a DSCP")
    key = "priority=3000,udp,in_port=p0,nw_dst=10.3.10.45,nw_tos=184"
    assert judged.why["megaflows"]
    for megaflow in judged.why["megaflows"]:
        refusal, widened = megaflow["reasons"][:2]
        assert (refusal["cause"], widened["cause"], widened["likelihood"]) == (
            "refused-by-driver",
            "unwildcarded",
            "likely",
        )
        assert "a foreign flow un-wildcards nw_tos 0xfc" in widened["text"]
        assert widened["evidence"] == [f"foreign flow on ovsbr1: {key} actions=output:pf0hpf"]
        assert any(command.endswith(f"--strict del-flows ovsbr1 table=0,{key}") for command in widened["fix"])


@pytest.mark.parametrize(
    ("story", "label", "destination", "cause"),
    [
        ("foreign", _FOREIGN, VIP, "refused-by-driver"),
        ("foreign", _FOREIGN, "10.3.10.46", "refused-by-driver"),
        ("foreign", _FOREIGN, "10.3.10.47", "refused-by-driver"),
        ("foreign", _FOREIGN, "10.3.10.48", "unsupported-action"),
        ("foreign", _FOREIGN, "10.3.10.49", "recirculation"),
        ("foreign", _FOREIGN, "10.3.10.50", "unsupported-action"),
        ("overlapping", "a DSCP", VIP, "refused-by-driver"),
        ("skip_sw", "primed", VIP, "refused-by-driver"),
        ("limits", "full table", VIP, "table-full"),
        ("limits", "larger table", VIP, "not-retried"),
        ("limits", "hash collisions", VIP, "refused-by-driver"),
        ("limits", "bucket chains", VIP, "refused-by-driver"),
        ("tagged", "one tag", VIP, "refused-by-driver"),
        ("tagged", "two tags", VIP, "refused-by-driver"),
        ("vlans", "without VLANs", VIP, "refused-by-driver"),
        ("copying", "exporting", VIP, "unsupported-action"),
        ("copying", "mirrored", VIP, "refused-by-driver"),
        ("switched", "off", VIP, "hw-offload-off"),
        ("switched", "on", VIP, "not-retried"),
        ("skip_hw", "after 5 packets of each client", VIP, "tc-policy-skip-hw"),
        ("fixed", "without its qdisc", VIP, "no-ingress-qdisc"),
        ("fixed", "without the feature", VIP, "hw-tc-offload-off"),
    ],
    indirect=["story"],
)
def test_the_true_reason_is_named_first(story: Story, label: str, destination: str, cause: str) -> None:
    assert judged_at(story, label).causes(to=destination) == {cause}


def _reasons_without_listening(story: Story) -> list[list[dict[str, Any]]]:
    [said] = [said for said in story.record["said"] if said["argv"][0] == "why" and "0" in said["argv"]]
    megaflows = json.loads(said["stdout"])["megaflows"]
    assert megaflows
    return [megaflow["reasons"] for megaflow in megaflows]


@pytest.mark.parametrize("story", ["limits"], indirect=True)
def test_without_a_trial_a_full_table_is_possible_as_a_refusal_by_value_is(story: Story) -> None:
    for reasons in _reasons_without_listening(story):
        found = {(reason["cause"], reason["likelihood"]) for reason in reasons}
        assert found == {("table-full", "possible"), ("refused-by-driver", "possible")}
        assert all(any("--probe-driver" in command for command in reason["fix"]) for reason in reasons)


@pytest.mark.parametrize("story", ["copying"], indirect=True)
def test_the_output_of_a_mirror_is_named_as_a_second_one(story: Story) -> None:
    for reasons in judged_at(story, "mirrored").explained.values():
        texts = [reason["text"] for reason in reasons if reason["cause"] == "egress-not-on-eswitch"]
        assert [text.partition(",")[0] for text in texts] == ["a copy of each packet leaves by x0"]


@pytest.mark.parametrize("story", ["overlapping"], indirect=True)
def test_the_flow_that_takes_the_packets_of_a_block_is_named(story: Story) -> None:
    """`why` said that there was no traffic yet, although verify-offload named the flow."""
    (reasons,) = _reasons_without_listening(story)
    assert [reason["cause"] for reason in reasons[:2]] == ["overridden", "refused-by-driver"]
    assert "packets of 7 blocks of dns match this megaflow" in reasons[0]["text"]
    assert "push_vlan" in reasons[0]["evidence"][0]
