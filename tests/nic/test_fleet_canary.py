"""A roll-out whose megaflows the canary's NIC refuses: it is taken back, and the other DPU gets no flow-mod."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from tests.nic.guest.scenarios.fleet import ADDED_MAC, CANARY, OTHER
from tests.nic.recorded import Seen, Story
from tests.nic.test_nic import BLOCKS, SHARES
from xenoovs.datapath.megaflow import Verdict


def _verdicts(look: Seen) -> Counter[Verdict]:
    return Counter(look.verdicts().values())


def _changes(story: Story, dpu: str) -> str:
    printed = str(next(said["stdout"] for said in story.record["said"] if said["argv"] == ["changes", dpu]))
    # Open vSwitch asks whether a slow monitor is there (inactivity_probe).
    return re.sub(r"^OFPT_ECHO_REQUEST .*\n", "", printed, flags=re.MULTILINE)


def _clients(burst: dict[str, Any]) -> dict[str, int]:
    """How many clients of a burst got which backend, by its MAC."""
    return {one["frame"]["mac"]: one["packets"] // burst["packets_each"] for one in burst["arrived"]["p1"]}


def test_fleet__the_first_config_is_in_the_nic_and_fills_it(story: Story) -> None:
    look = story.look("first config")
    assert _verdicts(look) == {Verdict.HW: BLOCKS}
    assert len(look.rules) == BLOCKS


def test_fleet__the_nic_refuses_megaflows_of_the_second_config_because_its_table_is_full(story: Story) -> None:
    look = story.look("second config")
    verdicts = _verdicts(look)
    assert (verdicts[Verdict.HW], set(verdicts)) == (BLOCKS, {Verdict.HW, Verdict.TC_SW})
    in_software = {ufid for ufid, verdict in look.verdicts().items() if verdict is Verdict.TC_SW}
    assert in_software <= story.refusals.keys()
    assert {reason for reasons in story.refusals.values() for reason in reasons} == {"eswitch: rule table is full"}


def test_fleet__the_gate_refuses_the_config_and_names_the_share(story: Story) -> None:
    said = next(said for said in story.record["said"] if "--canary" in said["argv"])
    assert said["exit_code"] == 1
    reason = rf"was refused: wave 1: {CANARY}: (\S+)% of its megaflows are in hardware, 100% before \((\d+) TC_SW\)"
    found = re.search(reason, said["stdout"])
    assert found is not None, said["stdout"]
    # The sample may be older than the look.
    assert 0 < int(found[2]) <= _verdicts(story.look("second config"))[Verdict.TC_SW]
    assert float(found[1]) < 99
    assert "; the fleet has what it had" in said["stdout"]


def test_fleet__the_canary_has_its_old_flows_again_and_the_other_dpu_got_no_flow_mod(story: Story) -> None:
    changes = re.findall(rf"event=(\w+) .*{ADDED_MAC}", _changes(story, CANARY))
    assert Counter(changes).keys() == {"ADDED", "DELETED"}
    assert _changes(story, OTHER) == ""
    first, tried, back = (story.record["bursts"][number] for number in (1, 2, 3))
    assert _clients(first) == _clients(back) == SHARES
    assert _clients(tried)[ADDED_MAC] > 0


def test_fleet__what_the_nic_had_refused_is_in_hardware_once_open_vswitch_asks_again(story: Story) -> None:
    """Megaflows narrower than the old blocks stay while packets come, and with them what the NIC said to them."""
    assert _verdicts(story.look("taken back"))[Verdict.TC_SW] > 0
    assert _verdicts(story.look("purged")) == {Verdict.HW: BLOCKS}
