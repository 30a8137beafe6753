"""Hand-made snapshots: an agent with two services, one backend down, one drained, one on a slow start."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from xenoovs.datapath.megaflow import Verdict
from xenoovs.show.paths import PathState, PathView, RemoteView
from xenoovs.show.snapshot import (
    AgentView,
    BackendState,
    BackendView,
    BlockView,
    Event,
    LazySnapshot,
    Override,
    PortView,
    Rate,
    ServiceView,
    Snapshot,
    SwitchMove,
    Traffic,
)

NOW_S = 1_790_000_000.0
"""2026-09-21 14:13:20 UTC."""


def blocks(owners: str, verdicts: str) -> tuple[BlockView, ...]:
    """Equal blocks in order: `owners` as digits of the backends b0, b1 ...; `verdicts`: h, p, t, s, a or - (none)."""
    letters = {"h": Verdict.HW, "p": Verdict.PARTIAL, "t": Verdict.TC_SW, "s": Verdict.SW, "a": Verdict.ABSENT}
    depth = len(owners).bit_length() - 1
    return tuple(
        BlockView(
            value=int(f"{number:0{depth}b}"[::-1], 2),
            mask=len(owners) - 1,
            start=number / len(owners),
            size=1 / len(owners),
            backend=f"b{owner}",
            field="nw_src",
            verdict=letters.get(verdict),
        )
        for number, (owner, verdict) in enumerate(zip(owners, verdicts, strict=True))
    )


def blocks_of(service: str) -> tuple[BlockView, ...]:
    """Of the services below."""
    return blocks("0000000011110033", "hhhhhhhhhttth-sa") if service == "web" else blocks("01", "--")


def lazy_snapshot(shown: Snapshot | None = None) -> LazySnapshot:
    """At an agent that has this snapshot, by default the one below."""
    return LazySnapshot(lambda: shown or snapshot(), blocks_of)


def remote() -> RemoteView:
    """A remote with four paths: one is congested, one has failed."""
    states = (PathState.GOOD, PathState.BAD, PathState.FAILED, PathState.GOOD)
    paths = tuple(
        PathView(
            name=f"p{number}",
            port=50_000 + number,
            hops=f"10.0.0.1,10.0.{number}.1,10.0.9.1",
            state=state,
            excess_s=None if state is PathState.FAILED else 0.02 if state is PathState.BAD else 1e-5 * number,
            worst_excess_s=0.1 if state is PathState.FAILED else 0.021,
            answer_s=0.004,
            lost=0.25 if state is PathState.FAILED else 0.001,
            blocks={PathState.GOOD: 31, PathState.BAD: 2, PathState.FAILED: 0}[state],
            restore_s=2.0,
            bytes=1_000_000 * number,
            bps=8_000_000.0 * number,
        )
        for number, state in enumerate(states, start=1)
    )
    moves = {"failed": 16, "congested": 14, "restored": 0}
    last = "8 blocks p2 to p1, p4: congested"
    return RemoteView(
        "rack7/b", "192.168.200.1", paths, False, 1200, 0.01, 0.005, 3, 0, 0x20, 0x20, moves, last, NOW_S - 12.0
    )


def _backend(number: int, state: BackendState, *, weight: int, **more: Any) -> BackendView:
    """Backend b`number` of the service web, whose weights add up to eight."""
    usual: dict[str, Any] = {
        "name": f"b{number}",
        "mac": f"02:00:5e:10:00:0{number + 2}",
        "egress": "p1",
        "address": f"198.51.100.{number + 2}",
        "state": state,
        "is_ejected": state is BackendState.DOWN,
        "weight": weight,
        "weight_in_use": weight,
        "target_share": weight / 8,
        "share": weight / 8,
    }
    return BackendView(**usual | more)


def web() -> ServiceView:
    """One backend is busy, one starts slowly, one is dead, and one is drained."""
    backends = (
        _backend(
            0,
            BackendState.UP,
            weight=4,
            share=0.625,
            flows=10,
            blocks={Verdict.HW: 9},
            traffic=Traffic(9_000_000, 9_000_000_000, 1_000, 1_000_000),
            rate=Rate(120_000.0, 120_000.0, 960e6),
            since_s=NOW_S - 7_200,
            reason="HTTP 200",
            probe_latency_s=0.0012,
            transitions=1,
        ),
        _backend(
            1,
            BackendState.UP,
            weight=2,
            flows=4,
            blocks={Verdict.HW: 1, Verdict.TC_SW: 3},
            traffic=Traffic(1_000_000, 1_000_000_000, 3_000_000, 3_000_000_000),
            rate=Rate(60_000.0, 15_000.0, 480e6),
            ramp=0.5,
            since_s=NOW_S - 15,
            reason="HTTP 200",
            probe_latency_s=0.0034,
            transitions=5,
            changes=7,
            last_change="down: connection refused",
            agent=AgentView("50%", 0.5, is_away=False, reply="up 50%", problem="connection refused"),
            last_change_s=NOW_S - 300,
        ),
        _backend(
            2,
            BackendState.DOWN,
            weight=1,
            share=0.0,
            flows=0,
            blocks={},
            traffic=Traffic(0, 0, 500, 50_000),
            rate=Rate(0.0, 0.0, 0.0),
            since_s=NOW_S - 95,
            reason="connection refused",
            probe_latency_s=0.0005,
            transitions=2,
        ),
        _backend(
            3,
            BackendState.DRAINED,
            weight=1,
            address=None,
            weight_in_use=0,
            target_share=0.0,
            flows=2,
            blocks={Verdict.SW: 1, Verdict.ABSENT: 1},
            traffic=Traffic(),
            rate=Rate(0.0, 0.0, 0.0),
            since_s=NOW_S - 300,
            transitions=0,
        ),
    )
    return ServiceView("web", 7, ("192.0.2.80",), backends, 16, megaflows_seen=14, clients_moved=0.1875, draining=2)


def dns() -> ServiceView:
    """A service without an offload sample, with a name that a page must escape."""
    return ServiceView(
        name="dns<script>alert(1)</script>",
        service_id=9,
        vips=("192.0.2.53", "2001:db8::53"),
        backends=tuple(
            BackendView(
                name=f"b{number}",
                mac=f"02:00:5e:20:00:0{number}",
                egress="p1",
                address=None,
                state=BackendState.UNCHECKED,
                is_ejected=False,
                weight=1,
                weight_in_use=1,
                target_share=0.5,
                share=0.5,
                flows=1,
                blocks={},
            )
            for number in range(2)
        ),
        megaflows_predicted=2,
    )


MOVED = SwitchMove("web", "b2", "b1", 3, "web: 3 blocks of b2: the switch sends to b1, as p2 is dead", NOW_S - 12)


def snapshot() -> Snapshot:
    return Snapshot(
        bridge="ovsbr1",
        config_path="/etc/xenoovs/config.yaml",
        config_digest="0123456789ab",
        started_s=NOW_S - 86_400 * 3,
        now_s=NOW_S,
        services=(web(), dns()),
        flows=25,
        rounds=12,
        flow_mods=140,
        reverted=3,
        reloads=2,
        last_round_s=NOW_S - 4,
        sampled_s=NOW_S - 6,
        ports=(PortView("p0", 1, link_up=True), PortView("p1", 2, link_up=True)),
        overrides=(Override("web", "b3", Fraction(0), NOW_S - 300, Fraction(1)),),
        events=(
            Event(NOW_S - 300, "info", "override set", {"service": "web", "backend": "b3", "weight": 0}, 1),
            Event(NOW_S - 95, "warning", "backend down", {"backends": "web/b2", "reason": "connection refused"}, 2),
            Event(NOW_S - 94, "info", "flows changed", {"bridge": "ovsbr1", "flow_mods": 4}, 3),
        ),
    )
