"""An upgrade in place: this version leaves the flows that an older one installed as they are, also during drains."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.command_line import CommandLine, CommandResult, running
from tests.ovs.agents import running_agent
from tests.ovs.dummy import DummyBridge, DummyOvs, running_dummy_ovs, udp_packet
from tests.ovs.recorded_upgrade.record import CASES, CLIENTS, HERE, PORTS, config_of, hold_settling, packet
from tests.ovs.test_drain_dummy import receivers
from tests.patience import eventually
from xenoovs.agent.probe.run import Prober

DRAINS = [case for case in CASES if "drain" in case]
ONE, TWO, SIX = "02005e100011", "02005e100012", "02005e100013"
BEFORE = [ONE, TWO, ONE, SIX] * 2
"""Who has the clients before the drain, by CLIENTS."""
AFTER = {"drain.settling": [TWO, SIX, TWO, SIX] * 2, "drain.open": [TWO, SIX, TWO, SIX] * 2}
AFTER["undrain"] = [ONE, SIX, ONE, TWO] * 2

# ovs-ofctl prints IPv6 masks that it cannot read (test_wire_flows.py): these begin with 0, not with `::`.
_UNREADABLE = re.compile(r"/0:0:0:(\w+)::")
_STATISTICS = re.compile(r" (duration|n_packets|n_bytes|idle_age|hard_age)=[^ ,]+,")


@dataclass(frozen=True, slots=True)
class Upgraded:
    """A bridge with the recorded flows of a case, and this version of the command line."""

    bridge: DummyBridge
    case: str
    xenoovs: CommandLine

    @property
    def config(self) -> Path:
        return config_of(self.case)

    def command(self, name: str, *options: object) -> CommandResult:
        return self.xenoovs(name, self.config, "--db", self.bridge.ovs.db, *options)

    def flows(self) -> list[str]:
        return without_statistics(self.bridge.ofctl("dump-flows"))


def without_statistics(dump: str) -> list[str]:
    return sorted(_STATISTICS.sub("", line).strip() for line in dump.splitlines() if "actions=" in line)


@pytest.fixture(scope="module")
def ovs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DummyOvs]:
    with running_dummy_ovs(tmp_path_factory.mktemp("upgrade") / "run") as running:
        yield running


@pytest.fixture
def upgraded(request: pytest.FixtureRequest, ovs: DummyOvs, xenoovs: CommandLine) -> Iterator[Upgraded]:
    """`request.param`: the case. No drain goes on by itself."""
    hold_settling(ovs)
    with ovs.bridge(ports=PORTS) as bridge:
        recorded = (HERE / f"{request.param}.flows").read_text()
        bridge.add_flows(_UNREADABLE.sub(r"/::\1:0:0:0:0", recorded))
        made = Upgraded(bridge, request.param, xenoovs)
        assert made.flows() == without_statistics(recorded)
        yield made


def every(cases: list[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("upgraded", cases, indirect=True)


@every(list(CASES))
def test_the_plan_is_empty_and_apply_changes_nothing(upgraded: Upgraded) -> None:
    before = upgraded.flows()
    said = upgraded.command("plan", "-o", "json")
    assert said.status == 0, said.out
    learned = [flow for flow in before if flow.startswith("cookie=0x786f0106")]
    assert json.loads(said.out)["unchanged"] == len(before) - len(learned)
    if upgraded.case not in DRAINS:
        said = upgraded.command("apply", "--yes")
        assert (said.status, "nothing to do" in said.out) == (0, True), said.err
    assert upgraded.flows() == before


@every(list(CASES))
def test_an_agent_changes_nothing(upgraded: Upgraded) -> None:
    before, probe = upgraded.flows(), Prober(exec_allowed=True).probe
    with running_agent(upgraded.config, upgraded.bridge.ovs.directory, probe=probe) as agent:
        eventually(lambda: agent.state.round.last_s is not None, "a round")
    assert upgraded.flows() == before


@every(["drain.settling"])
def test_a_drain_goes_on(upgraded: Upgraded) -> None:
    """Connections stay where they were opened; only new ones go elsewhere."""
    let_settle(upgraded.bridge)
    eventually(lambda: upgraded.command("plan").status == 2, "a plan to go on")
    plan = json.loads(upgraded.command("plan", "-o", "json").out)
    assert (plan["added"], plan["removed"]) == ([], [])
    assert all("table=2, " in change["before"] for change in plan["changed"])
    assert {service["clients_moved"] for service in plan["services"]} == {0}

    before = upgraded.flows()
    with running("apply", upgraded.config, "--db", upgraded.bridge.ovs.db, "--yes"):
        eventually(lambda: upgraded.flows() != before, "other flows")
    assert upgraded.command("plan").status == 0
    upgraded.bridge.settle()
    assert connections(upgraded, port=1000) == BEFORE
    assert connections(upgraded, port=2000) == BEFORE
    assert connections(upgraded, port=3000, flags="syn") == AFTER[upgraded.case]


@every(["drain.open"])
def test_connections_stay_in_an_open_drain(upgraded: Upgraded) -> None:
    """Those of the time before the drain stay with their backend, and those that were opened in it with theirs."""
    assert upgraded.command("plan").status == 0
    assert connections(upgraded, port=2000) == BEFORE
    assert connections(upgraded, port=1000) == AFTER[upgraded.case]
    assert datagrams(upgraded) == BEFORE


@every(DRAINS)
def test_a_drain_ends(upgraded: Upgraded, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(upgraded.config.read_text().replace("timeout: 1h", "timeout: 1s"))
    let_settle(upgraded.bridge)
    said = upgraded.xenoovs("apply", config, "--db", upgraded.bridge.ovs.db, "--yes")
    assert said.status == 0, said.err
    assert not [flow for flow in upgraded.flows() if "table=0" not in flow and "table=1" not in flow]
    upgraded.bridge.settle()
    for port in (1000, 2000):
        assert connections(upgraded, port=port) == AFTER[upgraded.case]
    assert datagrams(upgraded) == AFTER[upgraded.case]


def let_settle(bridge: DummyBridge) -> None:
    bridge.ovs.vsctl("remove", "Open_vSwitch", ".", "other_config", "max-revalidator")
    # Revalidators that sleep for the time that was set do not notice; these commands wake them.
    bridge.ovs.appctl("revalidator/pause")
    bridge.ovs.appctl("revalidator/resume")


def connections(upgraded: Upgraded, *, port: int, flags: str = "ack") -> list[str]:
    """Which backend has each client's connection from this port, alike for IPv4 and IPv6."""
    found = [
        receivers(upgraded.bridge, *(packet(client, family, port=port, flags=flags) for client in CLIENTS))
        for family in (4, 6)
    ]
    assert found[0] == found[1]
    return found[0]


def datagrams(upgraded: Upgraded) -> list[str]:
    """Which backend gets each client's UDP packets."""
    return receivers(upgraded.bridge, *(udp_packet(f"198.51.100.{client}") for client in CLIENTS))
