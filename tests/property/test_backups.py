"""The laws of backups: they serve when no other backend does, all of them, and give everything back."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address

from hypothesis import given
from hypothesis import strategies as st

from tests.compiled import only
from tests.driven_agent import DrivenAgent
from tests.strategies import claims, services, share, uplinks
from tests.unit import balancer as small
from xenoovs.agent.health import checks_of
from xenoovs.decision.decide import decide, parts_served, undisturbed
from xenoovs.decision.decision import Decision, DesiredState, moved
from xenoovs.decision.ejection import KnownShares
from xenoovs.model.address import Mac
from xenoovs.model.balancer import AllDown, Balancer, Health, ProbeKind, Service
from xenoovs.model.next_hop import Direct

Ejected = dict[str, frozenset[str]]


@st.composite
def services_with_backups(draw: st.DrawFn, *, backups: int = 1) -> Balancer:
    """One service with a backend that is no backup, and so many or more that are; these have weights."""
    service = draw(services(draw(claims()), "web"))
    first, *others = service.backends
    extra = [
        replace(
            first,
            name=f"sorry{number}",
            next_hop=Direct(Mac(0x0B0000000000 + number), "p1"),
            weight=Fraction(draw(st.integers(1, 20))),
            is_backup=True,
        )
        for number in range(backups)
    ]
    real = replace(first, weight=first.weight or Fraction(1), is_backup=False)
    return Balancer(draw(uplinks()), (replace(service, backends=(real, *others, *extra)),))


History = tuple[Balancer, list[Ejected]]


@st.composite
def histories(draw: st.DrawFn) -> History:
    balancer = draw(services_with_backups())
    (service,) = balancer.services
    names = st.frozensets(st.sampled_from([backend.name for backend in service.backends]))
    real = frozenset(backend.name for backend in service.backends if not backend.is_backup)
    all_real = names.map(lambda more: more | real)
    return balancer, [{service.name: each} for each in draw(st.lists(names | all_real, min_size=1, max_size=5))]


def weighted(service: Service, ejected: Ejected, *, backups: bool) -> set[str]:
    """The backends with a weight that are not ejected."""
    return {b.name for b in service.backends if b.weight and b.is_backup is backups} - ejected[service.name]


def run(balancer: Balancer, history: list[Ejected]) -> Decision:
    decision = decide(Decision(), DesiredState(balancer))
    for ejected in history:
        decision = decide(decision, DesiredState(balancer, ejected))
    return decision


@given(histories())
def test_backups_have_all_clients_while_no_other_backend_serves_and_give_them_back(case: History) -> None:
    balancer, history = case
    decision, (service,) = run(balancer, history), balancer.services
    found = only(decision)
    serving, backups = (weighted(service, history[-1], backups=which) for which in (False, True))
    assert found.active.owners == (serving or backups)
    assert sum(found.active.shares().values()) == bool(serving or backups)
    assert found.home.owners == weighted(service, {service.name: frozenset()}, backups=False)
    # `xenoovs apply`, which makes no health checks, leaves backups as they are.
    assert decide(decision, undisturbed(decision, DesiredState(balancer))) == decision
    assert decide(decision, DesiredState(balancer)) == decide(Decision(), DesiredState(balancer))
    # They serve too while every other backend has weight 0.
    drained = (b if b.is_backup else replace(b, weight=Fraction(0)) for b in service.backends)
    after = replace(balancer, services=(replace(service, backends=tuple(drained)),))
    assert only(decide(decision, DesiredState(after))).active.owners == weighted(
        service, {service.name: frozenset()}, backups=True
    )


@given(histories())
def test_switches_with_any_past_agree_on_backups_that_share_by_weight(case: History) -> None:
    """While backups serve and all of them are up, the config alone determines the owner of each client."""
    balancer, history = case
    (service,) = balancer.services
    none_serves = {service.name: frozenset(b.name for b in service.backends if not b.is_backup)}
    found = only(run(balancer, [*history, none_serves])).active
    assert found == only(run(balancer, [none_serves])).active
    assert service.backups is not None
    for backend, target in zip(service.backends, service.backups.target_shares, strict=True):
        assert abs(found.shares().get(backend.name, Fraction(0)) - target) <= target * service.tolerance


@given(services_with_backups(backups=2), st.data())
def test_a_backup_that_dies_moves_its_own_clients_alone(balancer: Balancer, data: st.DataObject) -> None:
    (service,) = balancer.services
    none_serves = frozenset(b.name for b in service.backends if not b.is_backup)
    backups = sorted(weighted(service, {service.name: frozenset()}, backups=True))
    dead = data.draw(st.sampled_from(backups))
    before = run(balancer, [{service.name: none_serves}])
    after = decide(before, DesiredState(balancer, {service.name: none_serves | {dead}}))
    was, now = only(before), only(after)
    assert dead not in now.active.owners
    assert moved(was, now) == was.active.shares()[dead]


# The same with the health checks of an agent.


@st.composite
def checked_services(draw: st.DrawFn) -> Service:
    """Up to three backends and up to three backups with a check that one result decides."""
    weights = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    backups = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    plain = small.service(small.claim(), *weights, *backups, name="web")
    made = (
        replace(b, address=IPv4Address(0xC0000200 + i), is_backup=i >= len(weights))
        for i, b in enumerate(plain.backends)
    )
    health = Health(
        ProbeKind.ICMP,
        fall=1,
        rise=1,
        jitter=Fraction(0),
        max_down=draw(st.sampled_from([Fraction(0), Fraction(1, 2), Fraction(1)])),
        on_all_down=draw(st.sampled_from(AllDown)),
    )
    return replace(plain, backends=tuple(made), health=health)


class Checked:
    """An agent of one service whose clock the test turns, and what it has decided."""

    def __init__(self, balancer: Balancer, before: Decision, known: KnownShares | None = None) -> None:
        self.balancer, self.decision, self.now_s = balancer, before, 0.0
        self.agent = DrivenAgent(balancer, lambda: self.now_s)
        self.agent.follow(balancer, known=known)

    def probe(self, dead: frozenset[str]) -> Checked:
        """Twice: a backend that was held is ejected for probes that were sent after the limit was lifted."""
        for _ in range(2):
            self.now_s += 1.0
            for check, ((_, name),) in checks_of(self.balancer, ()).backends.items():
                self.agent.record(check, ok=name not in dead, sent_s=self.now_s)
            self.decision = decide(self.decision, self.agent.desired())
        return self


@share(0.8)
@given(checked_services(), st.data())
def test_while_a_backup_is_up_every_client_is_with_a_backend_that_is_up(service: Service, data: st.DataObject) -> None:
    balancer = small.balancer(service)
    before = decide(Decision(), DesiredState(balancer))
    agent = Checked(balancer, before)
    real = {b.name for b in service.backends if not b.is_backup}
    backups = {b.name for b in service.backends if b.is_backup}
    for dead in data.draw(st.lists(st.frozensets(st.sampled_from(sorted(real | backups))), max_size=6)):
        decision = agent.probe(dead).decision
        owners = only(decision).active.owners
        if not real - dead:
            assert owners == backups - dead or not backups - dead
        elif backups - dead:
            assert owners == real - dead
        else:
            assert owners <= real
        if not dead:
            assert decision == before


@given(checked_services(), st.data())
def test_a_restart_of_the_agent_moves_no_client(service: Service, data: st.DataObject) -> None:
    """The flows of the bridge are enough to restore the state when no backend has changed."""
    balancer = small.balancer(service)
    dead = data.draw(st.frozensets(st.sampled_from([b.name for b in service.backends])))
    decision = Checked(balancer, decide(Decision(), DesiredState(balancer)), {}).probe(dead).decision
    parts = parts_served(only(decision))
    known = {("web", name): part for name, part in parts.items()}
    assert Checked(balancer, decision, known).probe(dead).decision == decision
