"""A config of several files, on a real ovs-vswitchd: applied, and followed by an agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine
from tests.ovs.agents import running_agent
from tests.ovs.dummy import DummyBridge
from tests.ovs.test_agent_faults import FLOWS, flows
from tests.patience import eventually

pytestmark = pytest.mark.ovs

MAIL = """\
defaults: {services: {vip: 10.3.10.46, protocol: tcp}, backends: {weight: 1}}
services:
  - name: mail
    ports: [25]
    backends:
      - {name: fips2, mac: 02:00:5e:10:00:02}
"""


def test_services_of_included_files_are_applied_and_followed(
    xenoovs: CommandLine, bridge: DummyBridge, tmp_path: Path
) -> None:
    folder, config = tmp_path / "conf.d", tmp_path / "my.yaml"
    folder.mkdir()
    config.write_text(SMALL_CONFIG.replace("services:", "include: conf.d\nservices:"))
    (folder / "mail.yaml").write_text(MAIL)
    assert xenoovs("apply", config, "--db", bridge.ovs.db, "--yes").status == 0
    assert len(flows(bridge)) == FLOWS + 2
    assert "tp_dst=25" in "".join(flows(bridge))

    with running_agent(config, bridge.ovs.directory) as agent:
        eventually(lambda: agent.report.last_round_s is not None, "a first round")
        assert agent.rounds == 0
        (folder / "mail.yaml").write_text(MAIL.replace("[25]", "[587]"))
        eventually(lambda: "tp_dst=587" in "".join(flows(bridge)), "the new port")
        (folder / "mail.yaml").write_text("services: [")
        eventually(lambda: agent.config.problem is not None, "the mistake")
        assert "mail.yaml:2:1" in str(agent.config.problem)
        (folder / "mail.yaml").unlink()
        eventually(lambda: len(flows(bridge)) == FLOWS, "the service is gone")
