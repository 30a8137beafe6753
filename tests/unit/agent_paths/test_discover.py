"""Ports on different paths, by ICMP errors of routers. A fabric hashes ports; its routers may limit ICMP."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address
from itertools import count
from random import Random

from xenoovs.agent.paths.discover import DISTANCES, Search, TtlProbe, hops_text, in_places
from xenoovs.agent.paths.frame import Quote

REMOTE = IPv4Address("192.168.200.1")
LEAF, FAR_LEAF = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
PORTS = tuple(Random(1).sample(range(49_152, 65_536), 48))


def spine(port: int, paths: int = 4) -> IPv4Address:
    return IPv4Address(f"10.0.1.{1 + port % paths}")


def router(probe: TtlProbe, paths: int = 4) -> IPv4Address:
    return {1: LEAF, 2: spine(probe.source_port, paths), 3: FAR_LEAF}[probe.ttl]


def asked(answers: Callable[[TtlProbe], bool], *, tries: int = 1, ports: tuple[int, ...] = PORTS) -> Search:
    search = Search(REMOTE, ports, count(1))
    for _ in range(tries):
        for probe in search.probes():
            if answers(probe):
                search.quoted(Quote(router(probe), REMOTE, probe.source_port, probe.ident))
    return search


def test_one_port_of_each_path_is_found() -> None:
    found = asked(lambda _: True).differing(4)
    assert sorted(map(spine, found)) == [IPv4Address(f"10.0.1.{n}") for n in range(1, 5)]


def test_no_more_paths_are_found_than_there_are() -> None:
    assert len(asked(lambda _: True).differing(8)) == 4


def test_missing_answers_make_no_path_of_their_own() -> None:
    """Three agents that started at once found 6 to 11 paths instead of four, because routers limit ICMP."""
    for seed in range(50):
        chance = Random(seed)
        found = asked(lambda _, chance=chance: chance.random() < 0.3, tries=4).differing(8)  # type: ignore[misc]
        assert len(found) <= 4
        assert len(set(map(spine, found))) == len(found)


def test_routers_that_limit_icmp_to_six_answers_are_enough() -> None:
    left = dict.fromkeys((LEAF, FAR_LEAF, *(IPv4Address(f"10.0.1.{n}") for n in range(1, 5))), 6)

    def answers(probe: TtlProbe) -> bool:
        left[router(probe)] -= 1
        return left[router(probe)] >= 0

    assert len(asked(answers).differing(4)) == 4


def test_silent_routers_give_no_ports() -> None:
    search = asked(lambda _: False, tries=4)
    assert not search.has_answers
    assert search.differing(4) == ()


def test_only_unanswered_probes_are_repeated() -> None:
    search = asked(lambda probe: probe.ttl != 2)
    assert {probe.ttl for probe in search.probes()} == {2}
    assert len([*asked(lambda _: True).probes()]) == 0


def test_forged_quotes_do_not_count() -> None:
    search = Search(REMOTE, PORTS, count(1))
    probe = next(search.probes())
    assert not search.quoted(Quote(LEAF, REMOTE, probe.source_port, 60_000))
    assert not search.quoted(Quote(LEAF, IPv4Address("192.0.2.1"), probe.source_port, probe.ident))
    assert not search.quoted(Quote(LEAF, REMOTE, 1, probe.ident))
    assert search.quoted(Quote(LEAF, REMOTE, probe.source_port, probe.ident))


def test_ports_in_use_that_share_a_path_are_reported() -> None:
    one, other = (port for port in PORTS if port % 4 == 0), (port for port in PORTS if port % 4 == 1)
    in_use = next(one), next(other), next(one)
    assert asked(lambda _: True, ports=in_use).same(in_use) == (in_use[2],)


def test_with_silent_routers_no_ports_count_as_duplicates() -> None:
    in_use = PORTS[:4]
    assert asked(lambda _: False, ports=in_use).same(in_use) == ()
    spines_are_silent = asked(lambda probe: probe.ttl != 2, ports=in_use)
    assert spines_are_silent.same(in_use) == ()
    assert spines_are_silent.has_gap
    assert not asked(lambda _: True, ports=in_use).has_gap


def test_ports_in_use_stay() -> None:
    keep = PORTS[5], next(port for port in PORTS if port % 4 != PORTS[5] % 4)
    found = asked(lambda _: True).differing(4, keep=keep)
    assert found[:2] == keep
    assert len(set(map(spine, found))) == 4


def test_routers_are_shown_in_order() -> None:
    assert hops_text({1: LEAF, 3: FAR_LEAF}) == "10.0.0.1,*,10.0.0.2"
    assert hops_text({}) == ""
    assert DISTANCES == (1, 2, 3)


def test_a_port_that_is_replaced_leaves_the_others_under_their_names() -> None:
    """Blocks are placed by path names: all blocks after the second path changed their source port too."""
    assert in_places((1, 2, 3, 4), (1, 3, 4, 9)) == (1, 9, 3, 4)


def test_a_path_without_a_port_leaves_the_others_under_their_names() -> None:
    assert in_places((1, 2, 3, 4), (1, 3, 4)) == (1, 0, 3, 4)
    assert in_places((1, 0, 3, 4), (1, 3, 4, 9)) == (1, 9, 3, 4)


def test_first_ports_stand_in_their_order() -> None:
    assert in_places((0, 0, 0), (5, 6)) == (5, 6, 0)
    assert in_places((), (5, 6)) == (5, 6)
