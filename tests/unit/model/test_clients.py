"""Lists and logs of clients."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from xenoovs.compile.spread import parse_clients
from xenoovs.model.address import Family


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("203.0.113.9", 1),
        ("203.0.113.9 12", 12),
        ("203.0.113.9,12", 12),
        ("203.0.113.9\t12\n", 12),
        ("     12 203.0.113.9", 12),
        ('203.0.113.9 - - [21/Nov/2026] "GET / HTTP/1.1" 200', 1),
        ("203.0.113.9 7 # resolver", 7),
        ("203.0.113.9 0", 1),
        ("", 0),
        ("  \n", 0),
        ("# 203.0.113.9", 0),
    ],
)
def test_lines_that_name_a_client_or_none(line: str, count: int) -> None:
    clients = parse_clients([line])
    assert (clients.load, clients.unread) == ({ip_address("203.0.113.9"): count} if count else {}, ())


@pytest.mark.parametrize("line", ["garbage", "12", "203.0.113", "203.0.113.9.1 5", "-3 203.0.113.9", "12 twelve"])
def test_lines_that_name_no_client_are_reported_with_their_number(line: str) -> None:
    (error,) = parse_clients(["::1", line]).unread
    assert error.line == 2


def test_many_unread_lines_are_counted_and_only_the_first_stored() -> None:
    clients = parse_clients(["x"] * 1000)
    assert (len(clients.unread), clients.unread_lines) == (100, 1000)


def test_the_same_client_adds_up_and_families_are_apart() -> None:
    clients = parse_clients(["10.0.0.1 2", "10.0.0.1", "::2 5"])
    assert (clients.of(Family.IPV4), clients.of(Family.IPV6)) == ({0x0A000001: 3}, {2: 5})
