"""What `status` shows of an agent, as text and as the JSON of the API."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from xenoovs.cli.status import show_snapshot
from xenoovs.datapath.megaflow import Verdict
from xenoovs.show.agent import (
    BackendState,
    BackendView,
    Override,
    PortView,
    Rate,
    ServiceView,
    Snapshot,
    Traffic,
    parse_snapshot,
)
from xenoovs.show.codec import to_json

HERE = Path(__file__).parent / "status"
NOW_S = 1_800_000_000.0


def backend(name: str, state: BackendState, **more: object) -> BackendView:
    facts: dict[str, object] = {
        "mac": "02:00:5e:10:00:02",
        "egress": "p1",
        "address": "192.0.2.21",
        "is_ejected": state is BackendState.DOWN,
        "weight": 2.0,
        "weight_in_use": 2.0,
        "target_share": 0.4,
        "share": 0.375,
        "flows": 2,
        "blocks": {Verdict.HW: 1, Verdict.ABSENT: 1},
        "since_s": NOW_S - 3723,
        "reason": "answered",
        "probe_latency_s": 0.00123,
    }
    return BackendView(name=name, state=state, **{**facts, **more})  # type: ignore[arg-type]


WEB = ServiceView(
    name="web",
    service_id=0x43D4C2FE,
    vips=("192.0.2.80",),
    backends=(
        backend("one", BackendState.UP, traffic=Traffic(900, 90_000, 100, 10_000), rate=Rate(1234.5, 1000.0, 1.5e6)),
        backend("two", BackendState.DOWN, share=0.0, flows=0, blocks={}, reason="connection refused"),
        backend("kept", BackendState.DOWN, is_ejected=False, share=0.25, reason="no answer within 500ms"),
        backend("away", BackendState.DRAINED, weight_in_use=0.0, target_share=0.0, share=0.0, since_s=NOW_S - 60),
        backend("slow", BackendState.UP, ramp=0.375, share=0.25, since_s=NOW_S - 5),
        backend(
            "plain",
            BackendState.UNCHECKED,
            share=0.125,
            since_s=None,
            reason="",
            probe_latency_s=None,
            address=None,
        ),
    ),
    megaflows_predicted=12,
    megaflows_seen=7,
    draining=4,
)
GOOD = Snapshot(
    bridge="ovsbr1",
    config_path="/etc/xenoovs/config.yaml",
    config_digest="aa4ef1c3c746",
    started_s=NOW_S - 90_061,
    now_s=NOW_S,
    services=(WEB,),
    flows=24,
    last_round_s=NOW_S - 2,
    overrides=(Override("web", "away", Fraction(0), NOW_S - 60, Fraction(2)),),
)
BAD = Snapshot(
    bridge="ovsbr1",
    config_path="/etc/xenoovs/config.yaml",
    config_digest="aa4ef1c3c746",
    started_s=NOW_S - 7,
    now_s=NOW_S,
    services=(),
    is_paused=True,
    pending_flow_mods=5,
    config_problem="/etc/xenoovs/config.yaml:9:17: services[0].backends[0].weight: -1 is below 0",
    last_error="cannot reach Open vSwitch at unix:/run/openvswitch/db.sock: Connection refused",
    candidate="0f1e2d3c4b5a",
    confirm_by_s=NOW_S + 25,
    rolls_back_to="99887766aabb",
    overrides=(Override("web", "two", Fraction(1, 2), NOW_S - 7200, Fraction(2)),),
)
CASES = {"good": GOOD, "bad": BAD}


@pytest.mark.parametrize("name", CASES)
def test_for_people(name: str, capsys: pytest.CaptureFixture[str], *, update_golden: bool) -> None:
    show_snapshot(CASES[name])
    compare(HERE / f"{name}.txt", capsys.readouterr().out, update=update_golden)


@pytest.mark.parametrize("name", CASES)
def test_for_programs(name: str, *, update_golden: bool) -> None:
    document = json.loads(to_json(CASES[name]))
    compare(HERE / f"{name}.json", json.dumps(document, indent=2) + "\n", update=update_golden)
    assert parse_snapshot(json.loads(json.dumps(document))) == CASES[name]


def test_ports_that_do_not_work_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    ports = (PortView("p0", 1, link_up=True), PortView("p1", 2, link_up=False), PortView("p2", None, link_up=None))
    show_snapshot(replace(GOOD, ports=ports))
    output = capsys.readouterr().out
    assert "port p1 has no link" in output
    assert "port p2 does not work: it is not on the bridge" in output
    assert "p0" not in output


def compare(path: Path, text: str, *, update: bool) -> None:
    if update:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
