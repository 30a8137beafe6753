"""The comparison of designs in a lab: real load, the megaflows of the page, and the bridge as it was before."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.ovs.dummy import ofctl
from tests.ovs.lab_support import DNS_CLAIM, backend, balancer, install, lab_fixture, service
from tests.ovs.test_design_flows import NINE
from tests.ovs.test_measure_load import flows, groups
from tests.patience import eventually
from xenoovs.errors import MeasureError
from xenoovs.lab.lab import Lab
from xenoovs.measure.bench import LOAD_TIMES, LoadBench, LoadTimes, load_bench
from xenoovs.measure.compare import KINDS, designs_experiment, designs_profile, entries_experiment, insert_experiment
from xenoovs.measure.design_flows import Design
from xenoovs.measure.machines_bed import open_lab_bed
from xenoovs.measure.samples import BedKind

CLIENTS = 1000
BALANCER = balancer(
    service(
        "dns",
        DNS_CLAIM,
        backends=[backend(f"b{n}", f"02:00:5e:10:00:{n:02x}", weight=weight) for n, weight in enumerate(NINE, start=1)],
    )
)


lab = lab_fixture("designs", BALANCER, lambda made: install(made, BALANCER))


SHORT = BedKind.LAB, True


@pytest.fixture
def bench(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoadBench]:
    """A bench whose loads are short, and whose bridge has afterwards the flows and groups that it had before."""
    monkeypatch.setitem(LOAD_TIMES, SHORT, LoadTimes(0.2, 0.4, 5))
    before = [flows(lab), groups(lab)]
    with open_lab_bed(lab.name, BALANCER) as bed, load_bench(bed, designs_profile(bed, clients=1, seed=0)) as made:
        yield made
        assert [flows(lab), groups(lab)] == before


def test_megaflows_are_those_of_the_page(lab: Lab, bench: LoadBench) -> None:
    made = designs_experiment(bench, quick=True, seed=0, repeats=1)
    before, found = [flows(lab), groups(lab)], dict[Design, int]()
    masked = {Design.MASKED: 9, Design.LONG_FIRST: 256, Design.LONGEST_MATCH: 256}

    def measure(design: Design) -> bool:
        values = made.measure(point(design), {}).values
        assert values["received"] > 0  # type: ignore[operator]
        assert 0 < len(values["first_packet_us"]) <= 5  # type: ignore[arg-type]
        assert values["received_by_backend"].keys() == {f"b{n}" for n in range(1, len(NINE) + 1)}  # type: ignore[union-attr]
        megaflows = values["megaflows"]
        assert isinstance(megaflows, int)
        found[design] = megaflows
        assert [flows(lab), groups(lab)] == before
        return masked.get(design, megaflows) == megaflows

    for design in (*masked, Design.CONNTRACK):
        # On a busy machine some blocks may get no packet of so short a load.
        eventually(partial(measure, design), f"the megaflows of {design.value}")
    # The load is more than the switch forwards, so that it may never see some of the clients.
    assert 9 < found[Design.CONNTRACK] <= 267


@pytest.mark.parametrize("kind", KINDS)
def test_as_many_entries_are_active_as_the_point_says(bench: LoadBench, kind: str) -> None:
    made = entries_experiment(bench, quick=True, seed=0, repeats=1)

    def measure() -> bool:
        found = made.measure({"kind": kind, "entries": 64}, {})
        assert isinstance(found.values["packet_us"], list)
        return found.values["megaflows"] == 64 and not found.suspect

    # On a busy machine some entries may get no packet of so short a load.
    eventually(measure, f"64 active {kind}")


def test_new_entries_have_a_rule_and_all_of_them_change_under_load(bench: LoadBench) -> None:
    # More than the switch takes at the rate at which they come.
    found = insert_experiment(bench, quick=True, seed=0, repeats=1).measure({"entries": 4096}, {})
    values = found.values
    assert isinstance(values["rule_us"], list)
    assert values["rule_us"]
    assert values["first_packet_us"]
    assert values["megaflows"] == 4096
    assert not any("not all of them were active" in reason for reason in found.suspect)
    assert values["offloads_pps"] == 0


def test_flows_that_others_change_meanwhile_are_an_error(
    lab: Lab, bench: LoadBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(*_: object, **__: object) -> tuple[dict[str, object], list[str]]:
        ofctl(lab.ovs, "-O", "OpenFlow15", "del-flows", lab.topology.bridge, "table=1")
        return {}, []

    monkeypatch.setattr("xenoovs.measure.compare.forwarded_load", change)
    with pytest.raises(MeasureError, match="another program changed the flows of ovsbr1"):
        designs_experiment(bench, quick=True, seed=0, repeats=1).measure(point(Design.LONG_FIRST), {})


def point(design: Design) -> dict[str, str | int | float | bool]:
    return {"design": design.value, "clients": CLIENTS}
