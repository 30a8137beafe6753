from __future__ import annotations

from ipaddress import ip_address, ip_network
from itertools import islice

import pytest

from xenoovs.errors import LabError
from xenoovs.lab.topology import client_net, draw_clients, own_macs, parse_net, whole_space
from xenoovs.model.address import Family


def test_the_same_seed_draws_the_same_clients_and_another_one_others() -> None:
    net = [client_net(Family.IPV4, ())]
    first = draw_clients(net, count=2000, seed=1, excluded=())
    assert first == draw_clients(net, count=2000, seed=1, excluded=())
    assert len(set(first)) == 2000
    assert set(first) != set(draw_clients(net, count=2000, seed=2, excluded=()))


def test_each_of_the_low_bits_splits_the_clients_about_evenly() -> None:
    clients = draw_clients([client_net(Family.IPV4, ())], count=4000, seed=0, excluded=())
    for bit in range(16):
        ones = sum(int(client) >> bit & 1 for client in clients)
        assert 1800 < ones < 2200  # six standard deviations


@pytest.mark.parametrize("family", list(Family))
def test_the_whole_space_holds_no_address_that_a_client_cannot_have(family: Family) -> None:
    for client in draw_clients([whole_space(family)], count=3000, seed=0, excluded=()):
        assert not any((client.is_multicast, client.is_loopback, client.is_unspecified, client.is_link_local))
        assert family is Family.IPV6 or 0 < int(client) >> 24 < 240


def test_all_hosts_of_a_small_net_can_be_drawn_but_neither_its_ends_nor_a_vip() -> None:
    net = [ip_network("203.0.113.0/29")]
    clients = draw_clients(net, count=5, seed=0, excluded=[ip_address("203.0.113.3")])
    assert sorted(map(str, clients)) == [f"203.0.113.{host}" for host in (1, 2, 4, 5, 6)]
    with pytest.raises(LabError, match=r"203\.0\.113\.0/29 has only 5 addresses for 6 clients"):
        draw_clients(net, count=6, seed=0, excluded=[ip_address("203.0.113.3")])


def test_a_list_of_addresses_is_a_list_of_clients() -> None:
    nets = [ip_network(f"203.0.113.{host}") for host in (1, 5, 9)]
    assert set(draw_clients(nets, count=3, seed=0, excluded=())) == {net[0] for net in nets}


def test_clients_move_out_of_the_way_of_a_vip() -> None:
    assert client_net(Family.IPV4, [ip_address("198.18.4.4")]) == ip_network("100.64.0.0/15")
    with pytest.raises(LabError, match="the config has addresses in each of"):
        client_net(Family.IPV4, [ip_address("198.18.4.4"), ip_address("100.64.0.1")])


def test_own_macs_leave_out_those_of_the_config() -> None:
    first, second = islice(own_macs(()), 2)
    assert next(iter(own_macs([first]))) == second
    assert not first.is_multicast


def test_what_is_no_net_is_quoted() -> None:
    assert parse_net("198.51.100.7/24") == ip_network("198.51.100.0/24")
    with pytest.raises(LabError, match=r"'198\.51\.100/24' is neither"):
        parse_net("198.51.100/24")
