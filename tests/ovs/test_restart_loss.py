"""`restart-ovs` on a lab's datapath in user space: packets of the time in between are lost, and no others.

`python -m pytest tests/ovs/test_restart_loss.py -rP` prints how many.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, finish, start
from tests.ovs.lab_support import lab_name, running_lab
from tests.ovs.paced import steady_stream
from tests.patience import eventually
from xenoovs.config.load import parse_config
from xenoovs.lab.lab import DIRECTORY_VARIABLE

pytestmark = pytest.mark.ovs

CLIENTS, RATE_PPS = 20, 25


def test_packets_are_lost_only_between_the_order_and_the_end(tmp_path: Path) -> None:
    config = tmp_path / "my.yaml"
    config.write_text(SMALL_CONFIG)
    here = {DIRECTORY_VARIABLE: str(tmp_path / "labs")}
    named = ("--lab", lab_name("restart"), "--yes")
    with running_lab("restart", parse_config(SMALL_CONFIG, file="my.yaml"), tmp_path / "labs") as lab:
        assert finish(start("apply", config, *named, env=here)).status == 0
        before = lab.ovs.pids()
        with steady_stream(lab, clients=CLIENTS, rate_pps=RATE_PPS) as stream:
            eventually(lambda: stream.say("reached") >= RATE_PPS, "a second of traffic")
            ordered = stream.say("whole")
            said = finish(start("restart-ovs", *named, "--output", "json", env=here))
            ended = stream.say("reached")
            eventually(lambda: stream.say("reached") >= ended + RATE_PPS, "a second of traffic afterwards")
            answers = stream.end()
        vswitchd, database = lab.ovs.pids()
    assert (said.status, said.err) == (0, "")
    assert (vswitchd != before[0], database) == (True, before[1])

    lost = {client: [number for number, by in enumerate(who) if by is None] for client, who in answers.items()}
    owners = {client: {by for by in who if by is not None} for client, who in answers.items()}
    assert len(answers) == CLIENTS
    assert all(ordered <= number < ended for numbers in lost.values() for number in numbers)
    assert {len(labels) for labels in owners.values()} == {1}
    assert len(set().union(*owners.values())) == 2
    packets, gap_s = sum(map(len, lost.values())), json.loads(said.out)["gap_s"]
    # Without ovs-vswitchd nothing is forwarded in user space.
    assert packets > 0
    print(f"{packets} packets of {CLIENTS * RATE_PPS} a second are lost; the command reported {gap_s:.2f} s")
