"""What is shown of an agent: conditions and their texts, and the status page with its policy and its JSON."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import snapshots
from tests.snapshots import NOW_S, blocks, lazy_snapshot, snapshot, web
from xenoovs.agent.web.page import COLUMNS, MAX_SERVICES, agent_json, cells, page
from xenoovs.datapath.megaflow import Verdict
from xenoovs.errors import ParseError
from xenoovs.show.codec import to_json
from xenoovs.show.conditions import addressed, hardware_share, headline, is_as_desired, notices, troubles
from xenoovs.show.snapshot import (
    AgentView,
    AnnouncementView,
    BackendState,
    BlockView,
    LazySnapshot,
    PortView,
    Rate,
    ServiceView,
    Snapshot,
    parse_snapshot,
)


def texts(shown: Snapshot) -> list[str]:
    return [words for words, _ in troubles(shown)]


STOPPED = AgentView("down", 1.0, is_away=True, reply="down")


def with_backends(*backends: tuple[BackendState, float, bool], stopped: int = 0) -> ServiceView:
    """A service whose backends have this state, this share of the addresses, and are out or not. stopped: how many of
    them are down by their agents."""
    made = (
        replace(web().backends[0], state=state, share=share, is_ejected=out, agent=STOPPED if n < stopped else None)
        for n, (state, share, out) in enumerate(backends)
    )
    return replace(web(), backends=tuple(made))


def of(service: ServiceView) -> Snapshot:
    return replace(snapshot(), services=(service,))


WELL = replace(snapshot(), services=snapshot().services[1:])
ONE_DOWN = "1 backend down, others serve the clients: web/b2"
UP, DOWN, UNCHECKED = BackendState.UP, BackendState.DOWN, BackendState.UNCHECKED
ALL_KEPT = with_backends((DOWN, 0.5, False), (DOWN, 0.5, False))
DROPPED = with_backends((DOWN, 0.0, True), (DOWN, 0.0, True))
ONE_KEPT = with_backends((DOWN, 0.0, True), (DOWN, 0.25, False), (UP, 0.75, False))
MOVED = with_backends((DOWN, 0.0, True), (UP, 1.0, False))


HALVES, KEPT = ((UP, 0.5, False), (UP, 0.5, False)), "its clients stay where they are"


@pytest.mark.parametrize(
    ("service", "share", "words"),
    [
        (ALL_KEPT, 1.0, f"no backend answers; {KEPT}"),
        (DROPPED, 1.0, "no backend has clients; its packets are dropped"),
        (ONE_KEPT, 0.25, "25% of its clients have a backend that does not answer"),
        # Backends that answer probes but advertise that they are down are not called silent.
        (with_backends(*HALVES, stopped=2), 1.0, f"all servers advertise that they are down; {KEPT}"),
        (
            with_backends((UP, 0.5, False), (DOWN, 0.5, False), stopped=2),
            1.0,
            f"every backend is down, some by their agents; {KEPT}",
        ),
        (
            with_backends((UP, 0.25, False), (UP, 0.75, False), stopped=1),
            0.25,
            "25% of its clients have a backend that is reported down by its agent",
        ),
    ],
)
def test_clients_without_a_working_backend_are_a_difference(service: ServiceView, share: float, words: str) -> None:
    assert service.unanswered == share
    assert (is_as_desired(of(service)), texts(of(service))) == (False, [f"service web: {words}"])
    assert headline(of(service)) == ("clients without a working backend", "bad")


def test_clients_at_backups_are_a_warning() -> None:
    first = web().backends[0]
    sorry = replace(first, name="sorry", state=UP, share=1.0, is_backup=True)
    service = replace(web(), backends=(replace(first, state=DOWN, share=0.0, is_ejected=True), sorry))
    assert headline(of(service)) == ("clients at backups", "warn")
    assert texts(of(service)) == ["service web: no other backend serves, all of its clients are with backup sorry"]
    assert is_as_desired(of(service))
    many = replace(snapshot(), services=tuple(replace(service, name=f"s{i}") for i in range(7)))
    assert texts(many) == [
        "7 services have all of their clients with backups: s0 (sorry), s1 (sorry), s2 (sorry), s3 (sorry), s4 (sorry) "
        "and 2 more"
    ]


THIRDS = with_backends(*[(UP, 1 / 3, False)] * 3)
AS_CONFIGURED = ("as configured", "good")


def vip(*last: int, **view: Any) -> Snapshot:
    views = (AnnouncementView(f"192.0.2.{number}", **view) for number in last or (10,))
    return replace(WELL, announcements=tuple(views))


@pytest.mark.parametrize(
    ("shown", "words", "head"),
    [
        (WELL, [], AS_CONFIGURED),
        (snapshot(), [ONE_DOWN], ("a backend is down", "warn")),
        (of(THIRDS), [], AS_CONFIGURED),
        (of(with_backends((UNCHECKED, 1.0, False))), [], AS_CONFIGURED),
        (of(MOVED), ["1 backend down, others serve the clients: web/b0"], ("a backend is down", "warn")),
        (replace(WELL, ports=None), [], AS_CONFIGURED),
        (
            replace(WELL, not_ready="taken out of service by an operator"),
            ["not ready for clients, so `GET /ready` answers 503: taken out of service by an operator"],
            ("not ready for clients", "warn"),
        ),
        (
            replace(WELL, confirm_by_s=NOW_S + 25, rolls_back_to="99887766aabb"),
            ["run `xenoovs confirm` within 25s, or config 0123456789ab is rolled back to 99887766aabb"],
            ("confirmation pending", "warn"),
        ),
        (
            replace(WELL, moved_by_switch=(snapshots.MOVED,)),
            [f"{snapshots.MOVED.text}, for 12s"],
            ("the switch has moved clients", "warn"),
        ),
        (
            replace(WELL, services=(DROPPED,), last_round_s=None),
            ["starting: the bridge has not been compared with the config yet"],
            ("starting", "warn"),
        ),
        (vip(is_announced=True, problem="no vtysh"), ["VIP 192.0.2.10: no vtysh"], AS_CONFIGURED),
        (vip(is_announced=False, reason="drained"), ["VIP 192.0.2.10: withdrawn: drained"], AS_CONFIGURED),
        (
            vip(*range(7), is_announced=False, reason="drained"),
            ["VIPs 192.0.2.0, 192.0.2.1, 192.0.2.2, 192.0.2.3, 192.0.2.4 and 2 more: withdrawn: drained"],
            AS_CONFIGURED,
        ),
        (vip(is_announced=True, peers=2), [], AS_CONFIGURED),
    ],
)
def test_what_is_no_difference(shown: Snapshot, words: list[str], head: tuple[str, str]) -> None:
    """Before the first round nothing is known to be as desired."""
    assert (texts(shown), headline(shown)) == (words, head)
    assert is_as_desired(shown) == (head[0] != "starting")
    announced = any(view.is_announced and not view.problem for view in shown.announcements)
    assert (("announced: 192.0.2.10 to 2 neighbors", "note") in [*notices(shown)]) == announced


DIFFERS = {
    "an error of a host that is not ready": (
        {"last_error": "no bridge", "not_ready": "reconcile fails: no bridge"},
        "not ready for clients, so `GET /ready` answers 503",
    ),
    "a port without link": ({"ports": (PortView("p1", 2, link_up=False),)}, "port p1 has no link"),
    "a port that is gone": ({"ports": (PortView("p1", None, link_up=None),)}, "it is not on the bridge"),
    "a database that does not answer": (
        {"ports": None, "ports_problem": "cannot reach Open vSwitch at unix:/run/db.sock: connection refused"},
        "port and link state unavailable: cannot reach Open vSwitch at unix:/run/db.sock: connection refused",
    ),
    "groups without a live port": (
        {"moved_by_switch": (replace(snapshots.MOVED, to="", text="web: 3 blocks of b2: packets are dropped"),)},
        "web: 3 blocks of b2: packets are dropped, for 12s",
    ),
    "a VIP without a session": (
        {"announcements": vip(is_announced=True, peers=0, problem="no session").announcements},
        "VIP 192.0.2.10: no session",
    ),
    "a VIP that is refused": (
        {"announcements": vip(is_announced=False, problem="refused").announcements},
        "VIP 192.0.2.10: not announced: refused",
    ),
    "an error": ({"last_error": "bridge ovsbr1 is not there"}, "bridge ovsbr1 is not there"),
    "changes held back": ({"is_paused": True, "pending_flow_mods": 3}, "3 flow-mods are pending"),
    "a refused config": (
        {"config_problem": "c.yaml:3:1: services is missing", "candidate": "0f1e2d3c4b5a"},
        "config 0f1e2d3c4b5a is rejected, 0123456789ab stays in use: c.yaml:3:1: services is missing",
    ),
    "a config file that is gone": (
        {"config_problem": "c.yaml: no such file"},
        "the newest config is rejected, 0123456789ab stays in use: c.yaml: no such file",
    ),
    "a config still to be tried": (
        {"candidate": "0f1e2d3c4b5a"},
        "config 0f1e2d3c4b5a is pending, 0123456789ab is in use",
    ),
}


@pytest.mark.parametrize("name", DIFFERS)
def test_what_differs_is_named(name: str) -> None:
    facts, words = DIFFERS[name]
    shown = replace(snapshot(), **facts)  # type: ignore[arg-type]
    assert not is_as_desired(shown)
    assert any(words in line for line in texts(shown))
    assert headline(shown)[1] != "good"


def test_many_services_are_one_sentence_that_names_the_worst() -> None:
    services = (ONE_KEPT, *(replace(ALL_KEPT, name=f"s{number}") for number in range(7)))
    words = "8 services have clients without a working backend: s0 (100%), s1 (100%), s2 (100%), s3 (100%), s4 (100%)"
    assert texts(replace(snapshot(), services=services)) == [f"{words} and 3 more"]
    few = texts(replace(snapshot(), services=(ONE_KEPT, replace(DROPPED, name="dns"))))
    assert few == ["2 services have clients without a working backend: dns (100%, dropped), web (25%)"]


@pytest.mark.parametrize(
    ("rate", "badge"),
    [
        (None, None),
        (Rate(100.0, None, 1.0), None),
        (Rate(0.0, 0.0, 0.0), None),
        (Rate(100.0, 75.0, 1.0), ("75% in hardware", "warn")),
        (Rate(1000.0, 999.0, 1.0), ("99.9% in hardware", "good")),
        (Rate(100.0, 0.0, 1.0), ("0% in hardware", "warn")),
    ],
)
def test_the_badge_of_the_hardware_share(rate: Rate | None, badge: tuple[str, str] | None) -> None:
    service = replace(ALL_KEPT, backends=(replace(ALL_KEPT.backends[0], rate=rate),))
    assert hardware_share(replace(snapshot(), services=(service,))) == badge


def test_commands_about_paths_carry_the_options_that_reach_the_agent() -> None:
    paused = replace(snapshot(), are_moves_paused=True)
    text = next(words for words, _ in notices(paused) if "paths are paused" in words)
    assert "`xenoovs resume --paths --bridge ovsbr1`" in addressed(text, " --bridge ovsbr1")


def shown_of(lazy: LazySnapshot) -> Any:
    return json.loads(agent_json(lazy))


@pytest.mark.parametrize("script", ["agent.js", "fleet.js"])
def test_the_page_loads_nothing_from_other_hosts_and_no_text_can_become_markup(script: str) -> None:
    """Nothing parses HTML, and no element has a style or a handler of its own."""
    document, headers = page(script)
    text = document.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"url\((?!#)|@import|https?:|\bsrc=|srcset=|action=", text)
    assert all(value.startswith("data:") for value in re.findall(r'href="([^"]*)"', text))
    parsers = r"innerHTML|outerHTML|insertAdjacent|DOMParser|document\.write|eval\("
    assert not re.search(rf"{parsers}| style=| on[a-z]+=", text)
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert len(re.findall(r"'sha256-[A-Za-z0-9+/]{43}='", policy)) == 2


@pytest.mark.parametrize(
    ("field", "bits"), [("nw_src", "0.0.0.2/0.0.0.3"), ("ipv6_src", "::2/::3"), ("tp_src", "0x2/0x3")]
)
def test_few_blocks_are_drawn_as_they_are(field: str, bits: str) -> None:
    made = [replace(block, field=field) for block in blocks("0011", "hsa-")]
    drawn = cells(made)
    assert [(cell.start, cell.size, cell.backend, cell.verdict) for cell in drawn] == [
        (block.start, block.size, block.backend, block.verdict) for block in made
    ]
    assert drawn[1].tip == f"b0 · SW · {field}={bits}"


@given(st.integers(0, 4), st.integers())
def test_many_blocks_become_runs_that_fill_the_strip(backends: int, seed: int) -> None:
    depth, random = 11, Random(seed)
    owners = [f"b{random.randint(0, backends)}" for _ in range(1 << depth)]
    made = [
        BlockView(number, (1 << depth) - 1, number / (1 << depth), 1 / (1 << depth), owner, "nw_src", Verdict.HW)
        for number, owner in enumerate(owners)
    ]
    drawn = cells(made)
    assert len(drawn) <= COLUMNS
    assert drawn[0].start == 0
    assert all(abs(a.start + a.size - b.start) < 1e-9 for a, b in pairwise(drawn))
    assert drawn[-1].start + drawn[-1].size == 1
    assert all(a.backend != b.backend for a, b in pairwise(drawn))


def test_of_very_many_services_those_in_trouble_are_shown() -> None:
    calm = snapshot().services[1]
    many = (*(replace(calm, name=f"calm{number}") for number in range(100)), snapshot().services[0])
    shown = shown_of(lazy_snapshot(replace(snapshot(), services=many)))
    assert shown["snapshot"]["services"][0]["vips"] == ["192.0.2.80"]
    assert shown["left"].startswith(f"{101 - MAX_SERVICES} more services")


def test_commands_on_the_page_reach_its_agent() -> None:
    """With several agents, the commands on the page of one failed with `several agents run`."""
    paused = lazy_snapshot(replace(snapshot(), is_paused=True, pending_flow_mods=0))
    shown = agent_json(replace(paused, command_options=" --bridge ovsbr1"))
    assert "nothing is changed until `xenoovs resume --bridge ovsbr1`" in shown
    assert "nothing is changed until `xenoovs resume`" in agent_json(paused)


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(to_json(snapshot()))
    return found


def test_a_snapshot_comes_back_from_json_with_keys_of_a_newer_agent_and_without_those_that_an_older_one_lacks() -> None:
    assert parse_snapshot(document()) == parse_snapshot({**document(), "moon_phase": "full"}) == snapshot()
    older = document()
    del older["overrides"]
    assert parse_snapshot(older) == replace(snapshot(), overrides=())


@pytest.mark.parametrize("other", [None, 3, [], {}, {"bridge": "b"}, {**document(), "services": 3}])
def test_anything_else_is_a_parse_error(other: object) -> None:
    with pytest.raises(ParseError, match="the status of an agent"):
        parse_snapshot(other)
