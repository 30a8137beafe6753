"""`xenoovs why` in every scenario: it explains the megaflows that are not in hardware, and names the true reason."""

from __future__ import annotations

import pytest

from tests.nic.guest.catalogue import SCENARIOS
from tests.nic.judged import Judged, judged_at, judgements, megaflows_of
from tests.nic.recorded import Story, in_hardware_by_tc

pytestmark = [pytest.mark.nic, pytest.mark.timeout(1800)]

every_scenario = pytest.mark.parametrize("story", SCENARIOS, indirect=True)


def _in_software(judged: Judged) -> set[str]:
    held = {rule.ufid for rule in judged.look.rules}
    flows = [flow for block in judged.verify["blocks"] for flow in megaflows_of(block, judged.look)]
    return {flow.ufid or "" for flow in flows} - held


@every_scenario
def test_exactly_the_megaflows_of_blocks_without_an_entry_of_the_nic_are_explained(story: Story) -> None:
    for judged in judgements(story):
        assert {megaflow["ufid"] for megaflow in judged.why["megaflows"]} == _in_software(judged), judged.look.label


@every_scenario
def test_what_the_nic_refused_is_explained_in_its_own_words(story: Story) -> None:
    for judged in judgements(story):
        in_tc = judged.look.tc_ufids - in_hardware_by_tc(judged.look)
        for ufid in in_tc & story.refused.keys() & judged.explained.keys():
            first = judged.explained[ufid][0]
            if first["cause"] != "not-tried-again":
                assert first["likelihood"] == "told", first
                assert f"the driver says: {story.refused[ufid]}" in first["evidence"], first


@pytest.mark.parametrize(
    ("story", "label", "destination", "cause"),
    [
        ("widened_by_tos", "after 5 packets of each client", "10.3.10.45", "refused-by-driver"),
        ("table_full", "after 5 packets of each client", "10.3.10.45", "table-full"),
        ("table_full", "larger table, 5 more packets of each client", "10.3.10.45", "not-tried-again"),
        ("hw_offload_off", "after 5 packets of each client", "10.3.10.45", "hw-offload-off"),
        ("skip_hw", "after 5 packets of each client", "10.3.10.45", "tc-policy-skip-hw"),
        ("hw_tc_offload_off", "after 5 packets of each client", "10.3.10.45", "hw-tc-offload-off"),
        ("mended", "without its qdisc", "10.3.10.45", "no-ingress-qdisc"),
    ],
    indirect=["story"],
)
def test_the_true_reason_is_named_first(story: Story, label: str, destination: str, cause: str) -> None:
    assert judged_at(story, label).causes(to=destination) == {cause}
