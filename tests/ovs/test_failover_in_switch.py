"""Links are cut under a steady stream: the switch moves clients alone, and no agent moves one of them again."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from tests.command_line import CommandLine, start
from tests.ovs.cuts import CONFIG, MOST_LOST, PLAIN, applied, cuts, dump, route, set_link
from tests.ovs.lab_support import lab_name
from tests.ovs.paced import steady_stream
from tests.patience import eventually
from xenoovs.lab.lab import DIRECTORY_VARIABLE, Lab

pytestmark = pytest.mark.each_release

NAME = lab_name("failover")
CLIENTS, RATE_PPS = 40, 25


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("failover") / "my.yaml"


@pytest.fixture(scope="module")
def lab(release: None, config: Path) -> Iterator[Lab]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(DIRECTORY_VARIABLE, str(config.parent / "labs"))
        with applied(config, CONFIG, NAME) as made:
            yield made


def blocks(lab: Lab) -> list[tuple[int, int]]:
    """The bits of the clients' addresses that megaflows match and their mask, sorted. In a dump, unmatched bits are
    those of the first packet."""
    found = re.findall(r"ipv4\(src=([0-9.]+)/([0-9.]+),dst=10\.3\.10\.45,", lab.ovs.appctl("dpctl/dump-flows"))
    pairs = ((int(IPv4Address(value)), int(IPv4Address(mask))) for value, mask in found)
    return sorted((value & mask, mask) for value, mask in pairs)


def owners(xenoovs: CommandLine) -> str:
    said = xenoovs("status", "--lab", NAME, "-o", "json")
    if said.status not in (0, 2):
        return said.err
    (service,) = json.loads(said.out).get("snapshot", {"services": [{"backends": []}]})["services"]
    return " ".join(backend["state"] for backend in service["backends"])


@pytest.mark.parametrize("when", ["never", "afterwards", "throughout", "killed"])
def test_each_client_moves_once_and_returns_once(when: str, lab: Lab, config: Path, xenoovs: CommandLine) -> None:
    """The agent runs `when`: never, only after the cut, all the time, or until it is killed during the cut."""
    agents = list[subprocess.Popen[str]]()

    def agent(*wanted: str) -> None:
        if not agents:
            agents.append(start("agent", config, "--lab", NAME))
        eventually(lambda: owners(xenoovs) in wanted, f"the agent says {wanted}")

    before = dump(lab)
    with steady_stream(lab, clients=CLIENTS, rate_pps=RATE_PPS) as stream:
        try:
            stream.say("whole")
            if when in ("throughout", "killed"):
                agent("up up up")
            set_link(lab, "down")
            if when == "killed":
                agents[0].kill()
                agents.pop().communicate()
            # Packets that were on their way when the link went down are lost; those from now on are not.
            stream.say("again")
            if when != "never":
                agent("down up up")
                eventually(lambda: dump(lab) != before, "the agent moves the blocks too")
            set_link(lab, "up")
            if when != "never":
                agent("up up up")
            eventually(lambda: dump(lab) == before, "the flows are as before")
            stream.say("again")
        finally:
            set_link(lab, "up")
            for each in agents:
                each.send_signal(signal.SIGTERM)
                each.communicate()
        answers = stream.end()
    found = {client: route(of_client) for client, of_client in answers.items()}
    moved = [each for each in found.values() if each[0] == "b1"]
    assert 10 < len(moved) < 20
    assert all(len(each) == 3 and each[2] == "b1" and each[1] in ("b2", "b3") for each in moved)
    assert all(len(each) == 1 for each in found.values() if each[0] != "b1")
    assert {each[1] for each in moved} == {"b2", "b3"}


def test_hardware_entries_are_those_of_plain_flows(
    lab: Lab, config: Path, xenoovs: CommandLine, tmp_path: Path
) -> None:
    """Before a cut, and afterwards, when verify-offload and trace know which next hop is in use."""
    plain = tmp_path / "plain.yaml"
    plain.write_text(PLAIN)
    with steady_stream(lab, clients=CLIENTS, rate_pps=RATE_PPS) as stream:

        def seen() -> list[tuple[int, int]]:
            lab.ovs.appctl("revalidator/purge")
            stream.say("again")
            return blocks(lab)

        assert xenoovs("apply", str(plain), "--lab", NAME, "--yes").status == 0
        wanted = seen()
        assert xenoovs("apply", str(config), "--lab", NAME, "--yes").status == 0
        assert seen() == wanted
        assert "the switch" not in xenoovs("verify-offload", str(config), "--lab", NAME).out
        set_link(lab, "down")
        stream.say("again")
        try:
            assert seen() == wanted
            said = xenoovs("verify-offload", str(config), "--lab", NAME)
            assert re.search(
                r"^dns: \d blocks? of one: the switch sends to (two|three), as p1 is dead$", said.out, re.M
            )
            assert "misdelivered" not in said.out
            assert "the switch sends to" in xenoovs("status", str(config), "--lab", NAME).out
            for client in range(8):
                said = xenoovs("trace", str(config), "--lab", NAME, "--src", f"198.51.100.{client}")
                assert said.status == 0, said.out
                assert "-> backend one" not in said.out
        finally:
            set_link(lab, "up")
        stream.say("again")


def test_a_port_that_is_deleted_loses_its_clients_and_gets_them_back(
    lab: Lab, config: Path, xenoovs: CommandLine
) -> None:
    with steady_stream(lab, clients=CLIENTS, rate_pps=RATE_PPS) as stream:
        stream.say("again")
        lab.ovs.vsctl("del-port", "ovsbr1", "p2")
        stream.say("again")
        lab.ovs.vsctl("add-port", "ovsbr1", "p2")
        assert xenoovs("apply", str(config), "--lab", NAME, "--yes").status == 0
        stream.say("again")
        found = [route(each) for each in stream.end().values()]
    assert {len(each) for each in found} == {1, 3}
    assert all(each[0] == each[2] == "b2" != each[1] for each in found if len(each) == 3)
    assert all(each[0] != "b2" for each in found if len(each) == 1)
    assert xenoovs("plan", str(config), "--lab", NAME).status == 0


@pytest.mark.long
def test_a_cut_costs_few_packets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of links, ports and remotes: the acceptance on real packets."""
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "labs"))
    found = list(cuts(tmp_path))
    assert len(found) == 20
    assert [cut for cut in found if cut.moved_twice or not cut.moved] == []
    assert [cut for cut in found if cut.lost > MOST_LOST[cut.kind]] == []
