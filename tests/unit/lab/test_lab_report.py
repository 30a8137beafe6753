from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest

from xenoovs.lab.client import AnswerCounts, Flight, Pace, parse_counts, parse_round, render_counts, render_round
from xenoovs.lab.topology import Machine
from xenoovs.lab.traffic import BackendAnswers, ClientAnswers, LabReport, ServiceTraffic, Trial, service_traffic
from xenoovs.model.address import Family, parse_mac
from xenoovs.model.balancer import Backend, Claim, Protocol, Service
from xenoovs.model.next_hop import Direct

MACS = ("02:00:5e:10:00:02", "02:00:5e:10:00:03", "02:00:5e:10:00:04")
CLIENT, OTHER = "198.18.0.1", "198.18.0.2"


def _backend(name: str, mac: str, weight: int, *, egress: str = "p1") -> Backend:
    return Backend(name, Direct(parse_mac(mac), egress), Fraction(weight))


def _machine(label: str, name: str, mac: str, *, egress: str = "p1") -> Machine:
    return Machine(label, f"xo-x-{label}", f"xo-{label}", mac, egress, (name,), (), (), (), MACS[0])


SERVICE = Service("s", Claim(frozenset(Family)), (_backend("a", MACS[0], 3), _backend("b", MACS[1], 1)))
TRIAL = Trial(SERVICE, Protocol.UDP, (Flight("udp", "192.0.2.1", 7, (CLIENT, OTHER, CLIENT)),))
MACHINES = (_machine("b1", "a", MACS[0]), _machine("b2", "b", MACS[1]), _machine("b3", "c", MACS[2]))


def test_labels_and_macs_become_the_names_of_the_service() -> None:
    answers = Counter({(CLIENT, "b1"): 2, (OTHER, MACS[1]): 1})
    traffic = service_traffic(TRIAL, MACHINES, sent=4, answers=answers)
    assert traffic.backends == (
        BackendAnswers("a", Fraction(3, 4), 2, Fraction(2, 3)),
        BackendAnswers("b", Fraction(1, 4), 1, Fraction(1, 3)),
    )
    assert traffic.answers == (ClientAnswers(CLIENT, "a", 2), ClientAnswers(OTHER, "b", 1))
    assert (traffic.clients, traffic.answered, traffic.lost) == (2, 3, 1)


def test_nothing_answered_is_no_share_of_zero() -> None:
    traffic = service_traffic(TRIAL, MACHINES, sent=4, answers=Counter())
    assert [backend.share for backend in traffic.backends] == [None, None]
    assert traffic.lost == 4


def test_answers_of_other_machines_are_counted_apart() -> None:
    answers = Counter({(CLIENT, "b3"): 1, (CLIENT, "02:ff:00:00:00:01"): 2})
    traffic = service_traffic(TRIAL, MACHINES, sent=3, answers=answers)
    assert traffic.foreign_answers == (("(02:ff:00:00:00:01, unknown)", 2), ("(c, of another service)", 1))


def test_a_mac_on_two_ports_is_identified_by_its_label_alone() -> None:
    twins = Service("s", SERVICE.claim, (_backend("near", MACS[0], 1), _backend("far", MACS[0], 1, egress="p2")))
    machines = (_machine("b1", "near", MACS[0]), _machine("b2", "far", MACS[0], egress="p2"))
    answers = Counter({(CLIENT, "b2"): 2, (CLIENT, MACS[0]): 1})
    traffic = service_traffic(Trial(twins, Protocol.ICMP, TRIAL.flights), machines, sent=3, answers=answers)
    assert [backend.answered for backend in traffic.backends] == [0, 2]
    assert traffic.foreign_answers == (("(near or far)", 1),)


def test_rounds_and_counts_survive_json() -> None:
    for pace in (None, Pace(10, 2.5), Pace(0.5, None)):
        assert parse_round(render_round(TRIAL.flights, lost=3, pace=pace)) == (list(TRIAL.flights), 3, pace)
    counts = AnswerCounts([3], Counter({(0, CLIENT, "b1"): 2}), 1, Counter({"No buffer space": 4}))
    assert parse_counts(render_counts(counts)) == counts
    assert counts.lost == 1


@pytest.mark.parametrize(
    ("sent", "answers", "is_served"),
    [
        (3, {(CLIENT, "b1"): 2, (OTHER, "b2"): 1}, True),
        (100, {(CLIENT, "b1"): 99}, True),
        (100, {(CLIENT, "b1"): 98}, False),
        (3, {}, False),
        (3, {(CLIENT, "b1"): 2, (OTHER, "b3"): 1}, False),
    ],
)
def test_served_is_what_its_own_backends_answered(
    sent: int, answers: dict[tuple[str, str], int], *, is_served: bool
) -> None:
    traffic = service_traffic(TRIAL, MACHINES, sent=sent, answers=Counter(answers))
    assert traffic.is_served == is_served
    assert _report(traffic).is_served == is_served


def test_answers_twice_and_what_was_not_sent_are_no_success() -> None:
    good = service_traffic(TRIAL, MACHINES, sent=1, answers=Counter({(CLIENT, "b1"): 1}))
    assert _report(good).is_served
    assert not replace(_report(good), duplicates=1).is_served
    assert not replace(_report(good), failures=(("no route", 3),)).is_served


def test_nothing_sent_is_reported_as_such() -> None:
    nothing = service_traffic(TRIAL, MACHINES, sent=0, answers=Counter())
    assert (_report(nothing).is_sent, _report().is_sent) == (False, False)


def _report(*services: ServiceTraffic) -> LabReport:
    return LabReport(services, (), 0, (), 1.0)
