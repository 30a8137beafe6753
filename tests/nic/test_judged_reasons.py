"""`xenoovs why` in every scenario: it explains the megaflows that are not in hardware, and names the true reason."""

from __future__ import annotations

import pytest

from tests.nic.guest.catalogue import SCENARIOS
from tests.nic.judged import Judged, judged_at, judgements
from tests.nic.recorded import Story, in_hardware_by_tc

_ACTIONS = "after 5 packets of each client, 2 of a few to each foreign address"

every_scenario = pytest.mark.parametrize("story", SCENARIOS, indirect=True)


def _in_software(judged: Judged, ports: tuple[str, ...] = ("p0",)) -> set[str]:
    held = {rule.ufid for rule in judged.look.rules}
    return {flow.ufid or "" for flow in judged.look.megaflows if flow.in_port in ports and flow.ufid not in held}


@every_scenario
def test_exactly_the_megaflows_without_an_entry_of_the_nic_are_explained(story: Story) -> None:
    for judged in judgements(story):
        assert set(judged.explained) == _in_software(judged, ("p0", "x0")), judged.look.label


@every_scenario
def test_no_reason_is_unknown(story: Story) -> None:
    for judged in judgements(story):
        assert not [reasons for reasons in judged.explained.values() if reasons[0]["cause"] == "unknown"]


@every_scenario
def test_what_the_nic_refused_is_explained_in_its_own_words(story: Story) -> None:
    for judged in judgements(story):
        in_tc = judged.look.tc_ufids - in_hardware_by_tc(judged.look)
        for ufid in in_tc & story.refused.keys():
            first = judged.explained[ufid][0]
            if first["cause"] != "not-retried":
                assert first["likelihood"] == "confirmed", first
                assert f"the driver reports: {story.refused[ufid]}" in first["evidence"], first


@pytest.mark.parametrize("story", ["widened_by_tos"], indirect=True)
def test_beside_the_refusal_stands_the_flow_of_others_that_brought_the_key_in(story: Story) -> None:
    """The driver's `unsupported match key` named neither key nor flow, and no fix."""
    judged = judged_at(story, "after 5 packets of each client")
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
        ("unsupported_key", "after 5 packets of each client, 3 of ICMP of a few", "10.3.10.45", "refused-by-driver"),
        ("widened_by_tos", "after 5 packets of each client", "10.3.10.45", "refused-by-driver"),
        ("unsupported_action", _ACTIONS, "10.3.10.46", "refused-by-driver"),
        ("unsupported_action", _ACTIONS, "10.3.10.47", "refused-by-driver"),
        ("unsupported_action", _ACTIONS, "10.3.10.48", "unsupported-action"),
        ("skip_sw", "primed", "10.3.10.45", "refused-by-driver"),
        ("table_full", "after 5 packets of each client", "10.3.10.45", "table-full"),
        ("table_full", "larger table, 5 more packets of each client", "10.3.10.45", "not-retried"),
        ("hw_offload_off", "after 5 packets of each client", "10.3.10.45", "hw-offload-off"),
        ("not_restarted", "on, 5 packets of each client", "10.3.10.45", "not-retried"),
        ("skip_hw", "after 5 packets of each client", "10.3.10.45", "tc-policy-skip-hw"),
        ("hw_tc_offload_off", "after 5 packets of each client", "10.3.10.45", "hw-tc-offload-off"),
        ("fixed", "without its qdisc", "10.3.10.45", "no-ingress-qdisc"),
        ("conntrack", "after 5 packets of each client", "10.3.10.46", "recirculation"),
        ("select_group", "after 5 packets of each client", "10.3.10.46", "unsupported-action"),
    ],
    indirect=["story"],
)
def test_the_true_reason_is_named_first(story: Story, label: str, destination: str, cause: str) -> None:
    assert judged_at(story, label).causes(to=destination) == {cause}
