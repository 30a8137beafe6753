"""Votes become ejections: with `max_down`, slow start, roll-outs, and after a change of the controller."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction

import pytest

from tests.fleet_support import EMPTY, committed, given
from tests.switch_tunnels import behind_tunnels
from xenoovs.fleet.health import AvailabilityHistory, FleetHealth, followed, target_of, targets_of
from xenoovs.fleet.plan import Memo, completion, next_change, rolling_intent
from xenoovs.model.load import parse_config
from xenoovs.store.view import Dpu, DpuStatus, FleetView, IntentState

DPUS = {f"d{n}": Dpu(f"d{n}", frozenset(), wave=1 if n == 0 else 3) for n in range(3)}
CONFIG = """\
version: 1
switch: {bridge: fleet, ingress: [ingress], egress: egress}
health: {probe: tcp, port: 80EXTRA}
services:
  - name: web
    vip: 203.0.113.1
    protocol: tcp
    ports: [80]
    backends:
      - {name: b1, mac: 02:00:5e:10:00:01, address: 192.0.2.1, weight: 1}
      - {name: b2, mac: 02:00:5e:10:00:02, address: 192.0.2.2, weight: 1}
      - {name: b3, mac: 02:00:5e:10:00:03, address: 192.0.2.3, weight: 1}
      - {name: b4, mac: 02:00:5e:10:00:04, address: 192.0.2.4, weight: 1}
"""


def config(extra: str = "") -> str:
    return CONFIG.replace("EXTRA", extra)


@dataclass
class Controller:
    """A fleet and a controller of it, which is replaced now and then."""

    view: FleetView = field(default_factory=lambda: replace(EMPTY, dpus=DPUS))
    health: FleetHealth = field(default_factory=lambda: FleetHealth(Memo()))
    now_s: float = 1000.0

    def decide(self, down: Iterable[str] = (), *, by: Iterable[str] = DPUS) -> None:
        """Let witnesses vote that backends are down, until there is nothing more to write."""
        for _ in range(9):
            found = self.votes(down, by)
            health, available = self.health.step(self.view, found, now_s=self.now_s, now_ms=int(self.now_s * 1000))
            change = next_change(self.view, available)
            changes = replace(change.changes, watches=health.watches)
            if replace(change, changes=changes).is_empty:
                assert next_change(self.view).is_empty, "without votes there is nothing to do either"
                return
            self.view = committed(self.view, changes)
        raise AssertionError("never settled")

    def votes(self, down: Iterable[str], by: Iterable[str]) -> dict[str, DpuStatus]:
        addresses = {f"192.0.2.{name[1:]}" for name in down}
        targets = frozenset(target for target in self.view.watches if target.split("/")[0] in addresses)
        seen_ms, voters = int(self.now_s * 1000), set(by)
        return {
            name: DpuStatus(
                name, seen_ms=seen_ms, voted=self.view.generation, down=targets if name in voters else frozenset()
            )
            for name in self.view.dpus
        }

    @property
    def shares(self) -> dict[str, Fraction]:
        return self.view.services["web"].active.shares()


def running(extra: str = "") -> Controller:
    made = Controller()
    made.view = given(made.view, config(extra))
    made.decide()
    assert len(made.shares) == 4
    return made


def test_a_quorum_ejects_and_returns_a_backend_and_moves_no_other_clients() -> None:
    fleet = running()
    before = fleet.view.services["web"]
    fleet.decide(["b2"], by=["d0"])
    assert fleet.view.services["web"] == before
    fleet.decide(["b2"], by=["d0", "d1"])
    after = fleet.view.services["web"]
    assert set(fleet.shares) == {"b1", "b3", "b4"}
    assert after.home == before.home
    stays = [row for row in before.active.rows if row[1] != "b2"]
    assert all(owner == own for block, owner in stays for _, _, own in after.active.within([block]))
    # One votes up: still two of three vote down.
    fleet.decide(["b2"], by=["d1", "d2"])
    assert set(fleet.shares) == {"b1", "b3", "b4"}
    fleet.decide()
    assert fleet.view.services["web"].active == before.active


def test_max_down_holds_backends_and_ejects_them_only_after_new_failures() -> None:
    fleet = running()
    fleet.decide(["b1", "b2", "b3"])
    (one,) = held = set(fleet.shares) - {"b4"}
    # It is down too, so that clients of the ejected go to the one that answers.
    assert fleet.shares == {one: Fraction(1, 4), "b4": Fraction(3, 4)}
    # One of the ejected answers again: the held one may be about to, so nothing happens at once.
    back = min({"b1", "b2", "b3"} - held)
    still = {"b1", "b2", "b3"} - {back}
    fleet.decide(still)
    assert set(fleet.shares) == {*held, back, "b4"}
    fleet.now_s += 5
    fleet.decide(still)
    assert set(fleet.shares) == {back, "b4"}


def test_slow_start_goes_on_at_a_successor() -> None:
    fleet = running(", ramp: 80s")
    fleet.decide(["b2"])
    fleet.now_s += 10
    fleet.decide()
    assert fleet.shares["b2"] == Fraction(1, 32)
    fleet.now_s += 40
    fleet.decide()
    half = fleet.shares["b2"]
    assert Fraction(1, 32) < half < Fraction(1, 4)
    fleet.health = FleetHealth(Memo())
    fleet.decide()
    assert fleet.shares["b2"] == half
    fleet.now_s += 80
    fleet.decide()
    assert fleet.shares["b2"] == Fraction(1, 4)


def test_a_successor_leaves_ejections_as_they_are_without_reports() -> None:
    fleet = running()
    fleet.decide(["b2"])
    before = fleet.view
    fleet.health = FleetHealth(Memo())
    health, available = fleet.health.step(before, None, now_s=5.0, now_ms=5000)
    assert health.watches == {}
    assert next_change(before, available).is_empty


def test_a_backend_that_dies_in_a_roll_out_leaves_both_and_the_end_changes_no_flows() -> None:
    fleet = running(", ramp: 80s")
    text = config(", ramp: 80s").replace("192.0.2.4, weight: 1", "192.0.2.4, weight: 3")
    text += "      - {name: b5, mac: 02:00:5e:10:00:05, address: 192.0.2.5, weight: 1}\n"
    fleet.view = given(fleet.view, text, IntentState.ROLLING)
    fleet.decide()
    assert "b5" in fleet.view.staged["web"].active.owners
    generation = fleet.view.generation
    fleet.decide(["b2"])
    # One transaction for both.
    assert fleet.view.generation == generation + 1
    for services in (fleet.view.services, fleet.view.staged):
        assert "b2" not in services["web"].active.owners
    staged = fleet.view.staged["web"]
    rolling = rolling_intent(fleet.view)
    assert rolling is not None
    fleet.view = committed(fleet.view, completion(fleet.view, rolling))
    fleet.decide(["b2"])
    assert fleet.view.services["web"].active == staged.active
    fleet.decide()
    assert fleet.shares["b2"] < Fraction(1, 32)


@pytest.mark.parametrize(
    ("health", "target"),
    [
        ("{probe: tcp, port: 80}", "192.0.2.1/tcp/80"),
        ("{probe: tcp, port: 80, max_down: 100%, ramp: 5s}", "192.0.2.1/tcp/80"),
        ("{probe: icmp}", "192.0.2.1/icmp/-"),
        ("{probe: tcp}", "192.0.2.1/tcp/80"),
        ("{probe: exec, command: [/bin/true]}", None),
    ],
)
def test_targets_have_a_name_for_people(health: str, target: str | None) -> None:
    service = parse_config(CONFIG.replace("{probe: tcp, port: 80EXTRA}", health), file="x").services[0]
    assert target_of(service, service.backends[0]) == target


def test_bug_a_remote_that_only_bfd_watches_had_no_votes() -> None:
    """It kept its clients on all DPUs after its death; a single agent leaves it."""
    (service,) = behind_tunnels().services
    assert [target_of(service, each) for each in service.backends] == [
        "192.168.77.11/bfd/5001",
        "192.168.77.12/bfd/5002",
    ]
    names = [each.name for each in service.backends]
    for down, out in (names[:1], names[:1]), (names, []):
        votes = {service.name: dict.fromkeys(down, 1.0)}
        found = followed(AvailabilityHistory(), behind_tunnels(), votes, known={}, now_s=1.0)
        assert [*found.ejected.get(service.name, ())] == out


def test_services_share_a_target_if_they_probe_in_the_same_way() -> None:
    http = config().replace("probe: tcp", "probe: http")
    second = http[http.index("  - name: web") :].replace("name: web", "name: api").replace("113.1", "113.2")
    third = second.replace("name: api", "name: shop").replace("113.2", "113.3")
    third = third.replace("    protocol", "    health: {path: /ready}\n    protocol")
    found = targets_of(parse_config(http + second + third, file="x").services, Memo())
    assert found["192.0.2.1/http/80"] == (("web", "b1"), ("api", "b1"))
    (other,) = (target for target, names in found.items() if ("shop", "b1") in names)
    assert other.startswith("192.0.2.1/http/80/")
