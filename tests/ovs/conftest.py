"""Fixtures of the tests against a real ovs-vswitchd. They fail where Open vSwitch is missing; they never skip."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, Command, CommandLine
from tests.golden.cases import balancer_of
from tests.ovs.dummy import DummyBridge, DummyOvs, lead_to_remotes, running_dummy_ovs
from tests.ovs.fleets import FleetServers, running_fleet
from tests.ovs.releases import SUITES, difference, running_programs_of
from tests.ovs.ways import Record, Way, running_server
from xenoovs.compile.tunnel_ports import wanted_ports


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test of this directory; deselect those that the Open vSwitch they would run on cannot pass."""
    other = list[pytest.Item]()
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.ovs)
            call = getattr(item, "callspec", None)
            if difference(item.nodeid, call.params.get("release", "") if call else ""):
                other.append(item)
    if other:
        config.hook.pytest_deselected(items=other)
        items[:] = [item for item in items if item not in other]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests marked `each_release` on the Open vSwitch of this host and on the other ones."""
    if metafunc.definition.get_closest_marker("each_release"):
        ids = [pytest.HIDDEN_PARAM, *SUITES]
        metafunc.parametrize("release", ["", *SUITES], ids=ids, indirect=True, scope="session")


@pytest.fixture(scope="session", autouse=True)
def release(request: pytest.FixtureRequest) -> Iterator[None]:
    """The Open vSwitch whose programs run. What a session shares of daemons asks for this first."""
    with running_programs_of(getattr(request, "param", "")):
        yield


@pytest.fixture(scope="session")
def dummy_ovs(release: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DummyOvs]:
    """One OVS for all tests of this process (of this worker under pytest-xdist). Leave nothing behind on it."""
    with running_dummy_ovs(tmp_path_factory.mktemp("ovs") / "run") as ovs:
        yield ovs


@pytest.fixture
def bridge(dummy_ovs: DummyOvs) -> Iterator[DummyBridge]:
    """Bridge ovsbr1 with the ports p0 (1) and p1 (2), fresh for the test."""
    with dummy_ovs.bridge() as made:
        yield made


@pytest.fixture
def wide(dummy_ovs: DummyOvs) -> Iterator[DummyBridge]:
    """Bridge ovsbr1 with a third port, p2."""
    with dummy_ovs.bridge(ports=("p0", "p1", "p2")) as made:
        yield made


@pytest.fixture
def dpu(dummy_ovs: DummyOvs, case: str) -> Iterator[DummyBridge]:
    """Bridge ovsbr1 with the ports that a case of flows/ names.

    Tunnels of another case would change its megaflows: the bridge floods into them, and then ECN bits count.
    """
    with (
        dummy_ovs.bridge(ports=("p0", "p1", "pf0hpf", "en3f0pf0sf0", "xoar0")) as made,
        dummy_ovs.bridge("br-ul", ports=("u0",)) as uplink,
    ):
        lead_to_remotes(uplink, 1, neighbours=(11, 12))
        for port in wanted_ports(balancer_of(case)):
            made.ovs.vsctl(*port.command(made.name)[1:])
            # No route of a dummy datapath is local (ovs_router_lookup() of lib/ovs-router.c).
            made.ovs.vsctl("remove", "interface", port.name, "options", "local_ip")
        yield made


@pytest.fixture
def store(tmp_path: Path, xenoovs: CommandLine) -> Iterator[FleetServers]:
    """A fleet of two DPUs that have SMALL_CONFIG."""
    with running_fleet(tmp_path, xenoovs) as made:
        yield made


@pytest.fixture
def own_ovs(tmp_path: Path) -> Iterator[DummyOvs]:
    """An OVS of the test's own, to be killed, stopped or misconfigured."""
    with running_dummy_ovs(tmp_path / "run") as ovs:
        yield ovs


@pytest.fixture
def config(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The file my.yaml with the CONFIG of the module in it, or SMALL_CONFIG where it has none."""
    path = tmp_path / "my.yaml"
    path.write_text(getattr(request.module, "CONFIG", SMALL_CONFIG))
    return path


@pytest.fixture(params=["mgmt", "controller"])
def way(request: pytest.FixtureRequest) -> Iterator[Way]:
    """Each way to a switch in turn."""
    if request.param == "mgmt":
        yield Way(None)
        return
    with running_server(Record()) as server:
        yield Way(server)


@pytest.fixture
def on_bridge(xenoovs: CommandLine, bridge: DummyBridge) -> Command:
    """The command line, on the Open vSwitch of the bridge."""
    return lambda *words: xenoovs(*words, "--db", bridge.ovs.db)


@pytest.fixture
def as_recorded(*, update_golden: bool) -> Callable[[str, str], None]:
    """Asserts that an output is as in tests/golden/cli, by its name there."""

    def compare(name: str, text: str) -> None:
        path = Path(__file__).parents[1] / "golden" / "cli" / f"{name}.txt"
        if update_golden:
            path.write_text(text)
        assert text == path.read_text()

    return compare


@pytest.fixture
def applied(config: Path, bridge: DummyBridge, on_bridge: Command) -> Path:
    """The config, applied to the bridge."""
    said = on_bridge("apply", config, "--yes")
    assert said.status == 0, said.err
    bridge.settle(removed_s=0)
    return config
