"""Links are cut under a steady stream: the switch moves clients alone, and no agent moves one of them again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.ovs.cuts import CONFIG, MOST_LOST, PLAIN, WHEN, applied, cuts, cuts_of, set_link
from tests.ovs.lab_support import lab_name
from tests.ovs.paced import steady_stream
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


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for labs. Its name is short, as sockets of agents have at most 107 bytes (unix(7))."""
    made = tmp_path_factory.mktemp("cut")
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(made / "labs"))
    return made


@pytest.mark.parametrize("kind", ["link", "port"])
def test_each_client_of_a_cut_moves_once_and_returns_once(place: Path, kind: str) -> None:
    """Without an agent, beside one, and where it is killed meanwhile."""
    found = list(cuts_of(kind, place / "my.yaml", CONFIG, [*WHEN]))
    assert [cut for cut in found if cut.astray or not cut.moved] == []


@pytest.mark.long
def test_a_cut_costs_few_packets(place: Path) -> None:
    """Of links, ports and remotes: the acceptance on real packets."""
    found = list(cuts(place))
    assert len(found) == 20
    assert [cut for cut in found if cut.astray or not cut.moved] == []
    assert [cut for cut in found if cut.lost > MOST_LOST[cut.kind]] == []
