"""The comparison of designs in a lab: real load, the megaflows of the page, and the bridge as it was before."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from ipaddress import ip_address

import pytest

from tests.ovs.lab_support import backend, balancer, install, lab_fixture, service
from tests.ovs.test_design_flows import NINE
from tests.patience import eventually
from xenoovs.errors import MeasureError
from xenoovs.lab.lab import Lab
from xenoovs.measure.bed import Bed
from xenoovs.measure.design_flows import Design
from xenoovs.measure.designs import designs_experiment, designs_profile
from xenoovs.measure.entries import KINDS, entries_experiment, insert_experiment
from xenoovs.measure.forwarding import LOAD_TIMES, LoadTimes
from xenoovs.measure.load import load_bench
from xenoovs.measure.machines_bed import open_lab_bed
from xenoovs.measure.samples import BedKind
from xenoovs.measure.schedule import Experiment
from xenoovs.model.address import Family
from xenoovs.model.balancer import Claim, PortRange, Protocol
from xenoovs.switch.process import run

CLIENTS = 1000
BALANCER = balancer(
    service(
        "dns",
        Claim(frozenset({Family.IPV4}), (ip_address("10.3.10.45"),), Protocol.UDP, (PortRange(53, 53),)),
        backends=[backend(f"b{n}", f"02:00:5e:10:00:{n:02x}", weight=weight) for n, weight in enumerate(NINE, start=1)],
    )
)


lab = lab_fixture("designs", BALANCER, lambda made: install(made, BALANCER))


SHORT = BedKind.LAB, True
OFCTL = ["ovs-ofctl", "-O", "OpenFlow15"]


@pytest.fixture
def experiment(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Experiment, Bed]]:
    monkeypatch.setitem(LOAD_TIMES, SHORT, LoadTimes(0.2, 0.4, 5))
    with open_lab_bed(lab.name, BALANCER) as bed, load_bench(bed, designs_profile(bed, clients=1, seed=0)) as bench:
        yield designs_experiment(bench, quick=True, seed=0, repeats=1), bed


def test_megaflows_are_those_of_the_page(lab: Lab, experiment: tuple[Experiment, Bed]) -> None:
    made, bed = experiment
    before, found = tables(lab), dict[Design, int]()
    masked = {Design.MASKED: 9, Design.LONG_FIRST: 256, Design.LONGEST_MATCH: 256}

    def measure(design: Design) -> bool:
        values = made.measure(point(design), {}).values
        received, megaflows = values["received"], values["megaflows"]
        assert isinstance(received, int)
        assert received > 0
        assert isinstance(values["first_packet_us"], list)
        assert 0 < len(values["first_packet_us"]) <= 5
        assert values["received_by_backend"].keys() == bed.backends.keys()  # type: ignore[union-attr]
        assert isinstance(megaflows, int)
        found[design] = megaflows
        assert tables(lab) == before
        return masked.get(design, megaflows) == megaflows

    for design in (*masked, Design.CONNTRACK):
        # On a busy machine some blocks may get no packet of so short a load.
        eventually(partial(measure, design), f"the megaflows of {design.value}")
    # The load is more than the switch forwards, so that it may never see some of the clients.
    assert 9 < found[Design.CONNTRACK] <= 267


@pytest.mark.parametrize("kind", KINDS)
def test_as_many_entries_are_active_as_the_point_says(lab: Lab, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOAD_TIMES, SHORT, LoadTimes(0.2, 0.4, 5))
    before = tables(lab)
    with open_lab_bed(lab.name, BALANCER) as bed, load_bench(bed, designs_profile(bed, clients=1, seed=0)) as bench:
        made = entries_experiment(bench, quick=True, seed=0, repeats=1)

        def measure() -> bool:
            found = made.measure({"kind": kind, "entries": 64}, {})
            assert isinstance(found.values["packet_us"], list)
            assert tables(lab) == before
            return found.values["megaflows"] == 64 and not found.suspect

        # On a busy machine some entries may get no packet of so short a load.
        eventually(measure, f"64 active {kind}")


def test_new_entries_have_a_rule_and_all_of_them_change_under_load(lab: Lab) -> None:
    before = tables(lab)
    with open_lab_bed(lab.name, BALANCER) as bed, load_bench(bed, designs_profile(bed, clients=1, seed=0)) as bench:
        # More than the switch takes at the rate at which they come.
        found = insert_experiment(bench, quick=True, seed=0, repeats=1).measure({"entries": 4096}, {})
    values = found.values
    assert isinstance(values["rule_us"], list)
    assert values["rule_us"]
    assert values["first_packet_us"]
    assert values["megaflows"] == 4096
    assert not any("not all of them were active" in reason for reason in found.suspect)
    assert values["offloads_pps"] == 0
    assert tables(lab) == before


def test_flows_that_others_change_meanwhile_are_an_error(
    lab: Lab, experiment: tuple[Experiment, Bed], monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(*_: object, **__: object) -> tuple[dict[str, object], list[str]]:
        run([*OFCTL, "del-flows", lab.topology.bridge, "table=1"], env=lab.ovs.env)
        return {}, []

    made, _ = experiment
    before = tables(lab)
    monkeypatch.setattr("xenoovs.measure.designs.forwarded_load", change)
    with pytest.raises(MeasureError, match="another program changed the flows of ovsbr1"):
        made.measure(point(Design.LONG_FIRST), {})
    assert tables(lab) == before


def point(design: Design) -> dict[str, str | int | float | bool]:
    return {"design": design.value, "clients": CLIENTS}


def tables(lab: Lab) -> str:
    """All flows and groups of the bridge, sorted."""
    flows = run([*OFCTL, "--no-stats", "dump-flows", lab.topology.bridge], env=lab.ovs.env).stdout.splitlines()
    groups = run([*OFCTL, "dump-groups", lab.topology.bridge], env=lab.ovs.env).stdout.splitlines()
    return "\n".join(sorted(line for line in (*flows, *groups) if line.startswith(" ")))
