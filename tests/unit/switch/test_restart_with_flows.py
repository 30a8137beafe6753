"""A restart keeps our flows: put back in one bundle, read back, and told where they are when that fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from xenoovs.errors import FlowsNotBack, SwitchError, SwitchUnreachable
from xenoovs.openflow.bundle import Bundle, Command, FlowMod
from xenoovs.openflow.parse import parse_flow
from xenoovs.switch.fake import FakeSwitch, fake_bridge
from xenoovs.switch.restart import restart_with_flows

OURS = tuple(
    parse_flow(line)
    for line in (
        "cookie=0x786f010000000001, priority=900,ip,in_port=p0 actions=load:0x1->NXM_NX_REG0[],resubmit(,1)",
        "cookie=0x786f010100000001, table=1, priority=999,ip,reg0=0x1,nw_src=0.0.0.0/0.0.0.1 actions=output:p1",
        "cookie=0x786f010100000001, table=1, priority=998,ip,reg0=0x1,nw_src=0.0.0.1/0.0.0.1 actions=drop",
    )
)
FOREIGN = parse_flow("priority=0 actions=NORMAL")


@pytest.fixture
def switch() -> FakeSwitch:
    made = FakeSwitch(fake_bridge("ovsbr1", ["p0", "p1"]), fake_bridge("ovsbr2", ["p2"]))
    made.install("ovsbr1", [*OURS, FOREIGN])
    made.install("ovsbr2", [FOREIGN])
    return made


def _restart(switch: FakeSwitch) -> Callable[[], None]:
    """What a restart does to tables: they are empty."""

    def forget() -> None:
        for bridge in ("ovsbr1", "ovsbr2"):
            flows = [seen.flow for seen in switch.all_flows(bridge).values()]
            switch.apply(bridge, Bundle(tuple(FlowMod(Command.DELETE, flow) for flow in flows)))
        switch.applied.clear()

    return forget


def test_our_flows_are_back_and_those_of_others_are_not(switch: FakeSwitch, tmp_path: Path) -> None:
    done = restart_with_flows(switch, _restart(switch), directory=tmp_path)
    assert done.flows == {"ovsbr1": 3}
    assert {seen.flow for seen in switch.all_flows("ovsbr1").values()} == set(OURS)
    assert switch.all_flows("ovsbr2") == {}


def test_one_bundle_with_blocks_before_what_leads_to_them(switch: FakeSwitch, tmp_path: Path) -> None:
    restart_with_flows(switch, _restart(switch), directory=tmp_path)
    ((bridge, bundle),) = switch.applied
    assert bridge == "ovsbr1"
    assert [mod.flow.table for mod in bundle.mods] == [1, 1, 0]


def test_a_switch_that_comes_back_slowly(switch: FakeSwitch, tmp_path: Path) -> None:
    def restart() -> None:
        _restart(switch)()
        switch.fail_next(SwitchUnreachable(target="ovsbr1", reason="not yet"))

    restart_with_flows(switch, restart, directory=tmp_path)
    assert len(switch.dump_flows("ovsbr1")) == 3


def test_flows_are_put_back_after_a_restart_that_fails(switch: FakeSwitch, tmp_path: Path) -> None:
    def restart() -> None:
        _restart(switch)()
        raise SwitchError("systemctl failed")

    with pytest.raises(SwitchError, match="systemctl failed"):
        restart_with_flows(switch, restart, directory=tmp_path)
    assert len(switch.dump_flows("ovsbr1")) == 3


def test_flows_are_put_back_after_an_interruption(switch: FakeSwitch, tmp_path: Path) -> None:
    def restart() -> None:
        _restart(switch)()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restart_with_flows(switch, restart, directory=tmp_path)
    assert len(switch.dump_flows("ovsbr1")) == 3


def test_the_files_are_gone_when_the_flows_are_back(switch: FakeSwitch, tmp_path: Path) -> None:
    seen: list[str] = []

    def restart() -> None:
        seen.extend(path.name for path in tmp_path.iterdir())
        _restart(switch)()

    restart_with_flows(switch, restart, directory=tmp_path)
    assert seen == ["xenoovs-restart-ovsbr1.flows"]
    assert list(tmp_path.iterdir()) == []


def test_flows_that_cannot_be_put_back_are_in_a_file(switch: FakeSwitch, tmp_path: Path) -> None:
    def never() -> None:
        _restart(switch)()
        # Of the bridge nothing comes back: its ports are gone, as after a change of hardware.
        switch.__init__(fake_bridge("ovsbr1", ["p0"]))  # type: ignore[misc]

    with pytest.raises(FlowsNotBack, match="port p1 is on no bridge") as error:
        restart_with_flows(switch, never, directory=tmp_path, timeout_s=0.2)
    kept = Path(error.value.files["ovsbr1"]).read_text().splitlines()
    assert len(kept) == 3
    assert all(line.startswith("add cookie=0x786f01") for line in kept)


def test_nothing_of_ours_nothing_to_put_back(tmp_path: Path) -> None:
    switch = FakeSwitch(fake_bridge("ovsbr1", ["p0"]))
    assert restart_with_flows(switch, lambda: None, directory=tmp_path).flows == {}
