"""XenoFlow's JSON and OVN's table: what is refused, and where."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from xenoovs.errors import ParseError
from xenoovs.migrate.ovn import read_lb_list
from xenoovs.migrate.xenoflow import read_xenoflow
from xenoovs.model.balancer import Protocol

HEADER = "UUID      LB       PROTO      VIP                IPs\n"


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"backends": 1}', '{"backends": [{"name": "a"}]}', "[" * 100_000, '{"backends": [{}]}']
)
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        read_xenoflow(text)


def test_the_answer_of_the_api_is_read_too() -> None:
    text = (
        '{"status": "ok", "version": "2", "backendNumber": 2, "backends": ['
        '{"name": "a", "mac_address": "02:00:00:00:00:01", "packetsProcessed": 5},'
        '{"name": "a", "mac_address": "02:00:00:00:00:02", "packetsProcessed": 6}]}'
    )
    assert [backend.name for backend in read_xenoflow(text).services[0].backends] == ["a", "a-2"]


@pytest.mark.parametrize(
    ("row", "line"),
    [
        ("x         lb       tcp        192.0.2.1          198.51.100.1   more", 2),
        ("x         lb       tcp        192.0.2.300:80     198.51.100.1", 2),
        ("x         lb       tcp        192.0.2.1:99999    198.51.100.1", 2),
        ("x         lb       spx        192.0.2.1:80       198.51.100.1:80", 2),
        ("x         lb       tcp        192.0.2.1:80       198.51.100.1:80,a", 2),
    ],
)
def test_bug_a_row_of_another_form_stopped_the_others(row: str, line: int) -> None:
    draft = read_lb_list(f"{HEADER}{row}\nx         lb       tcp        192.0.2.9:80       198.51.100.1:80")
    assert draft.services[-1].vips == (ip_address("192.0.2.9"),)
    assert [omission.line for omission in draft.every_omission if omission.text != "x"] == [line]


def test_bug_a_load_balancer_without_protocol_is_tcp() -> None:
    (service,) = read_lb_list(f"{HEADER}x         lb       (null)     192.0.2.1:80       198.51.100.1:80").services
    assert service.protocol is Protocol.TCP


def test_bug_a_document_without_backends_was_one_service() -> None:
    assert not read_xenoflow('{"backends": []}').services


def test_a_table_without_header_is_refused() -> None:
    with pytest.raises(ParseError):
        read_lb_list("x lb tcp 192.0.2.1:80 198.51.100.1:80")


def test_ipv6_in_brackets() -> None:
    row = "x         lb6      tcp        [fd00::1]:80       [fd00::2]:80,[fd00::3]:8080"
    (service,) = read_lb_list(HEADER + row).services
    assert ([str(b.address) for b in service.backends], len(service.omissions)) == (["fd00::2", "fd00::3"], 1)


def test_a_server_of_ovn_keeps_its_port_where_nat_can_do_it() -> None:
    row = "x         lb       tcp        192.0.2.1:80       198.51.100.1:80,198.51.100.1:8080,198.51.100.2:8080"
    (service,) = read_lb_list(HEADER + row).services
    assert service.is_nat
    assert [(b.name, b.l4_port) for b in service.backends] == [
        ("198.51.100.1", None),
        ("198.51.100.1-2", 8080),
        ("198.51.100.2", 8080),
    ]
    (six,) = read_lb_list(
        HEADER + "x         lb       tcp        [fd00::1]:80       [fd00::2]:80,[fd00::2]:8080"
    ).services
    assert not six.is_nat
    assert [(str(b.address), int(b.weight), b.l4_port) for b in six.backends] == [("fd00::2", 2, None)]
