"""keepalived.conf: the syntax of the file, and which parts a config can express."""

from __future__ import annotations

import pytest

from xenoovs.errors import ParseError
from xenoovs.migrate.draft import Draft
from xenoovs.migrate.keepalived import parse_statements, read_keepalived


def of_server(body: str, service: str = "") -> Draft:
    return read_keepalived(
        f"virtual_server 192.0.2.1 80 {{\n lb_kind DR\n{service}\nreal_server 198.51.100.1 80 {{\n{body}\n}}\n}}\n"
    )


def test_a_brace_may_stand_on_the_next_line() -> None:
    (one,) = parse_statements("virtual_server 192.0.2.1 80\n{\n  delay_loop 6\n}\n")
    assert [each.words for each in one.body or ()] == [("delay_loop", "6")]


def test_comments_and_quotes() -> None:
    (one,) = parse_statements("misc_path \"/bin/check  'a' # b\" ! comment\n# all\n")
    assert one.words == ("misc_path", "/bin/check  'a' # b")


@pytest.mark.parametrize(
    ("text", "line"), [("a {\n", 2), ("}\n", 1), ("a 'b\n", 1), ("{\n", 1), ("a {\n{\n", 2), ("x {\n" * 40, 17)]
)
def test_a_broken_file_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(ParseError) as raised:
        parse_statements(text)
    assert raised.value.line == line


def test_retries_are_failures_less_one() -> None:
    (service,) = of_server("TCP_CHECK {\n connect_port 8080\n retry 2\n delay_before_retry 0.5\n}").services
    assert service.health == {
        "probe": "tcp",
        "interval": "60s",
        "port": "8080",
        "fall": "3",
        "fast_interval": "500ms",
    }


def test_a_program_of_misc_check_is_an_exec_probe() -> None:
    (service,) = of_server('MISC_CHECK {\n misc_path "/bin/check -p 80"\n misc_timeout 90\n}').services
    assert (service.health["command"], service.health["timeout"]) == ('["/bin/check", "-p", "80"]', "60s")


def test_only_direct_routing_needs_no_remark_on_the_servers() -> None:
    assert of_server("").is_dsr
    assert not of_server("", "lb_kind TUN").is_dsr


def test_nat_is_nat_where_the_way_back_is_clear() -> None:
    text = "virtual_server {vip} {{\n lb_kind NAT\n real_server 198.51.100.2 8080 {{\n}}\n}}\n"
    draft = read_keepalived("".join(text.format(vip=vip) for vip in ("192.0.2.1 80", "192.0.2.2 80", "2001:db8::1 80")))
    first, second, third = draft.services
    assert (first.is_nat, first.backends[0].l4_port, list(first.omissions)) == (True, 8080, [])
    for service, reason in ((second, "which of two services"), (third, "one IPv4 address")):
        assert (service.is_nat, service.backends[0].l4_port) == (False, None)
        assert [reason in omission.reason for omission in service.omissions] == [True]
    assert not draft.is_dsr


def test_a_virtual_server_without_real_servers_is_left_out_with_a_reason() -> None:
    draft = read_keepalived("virtual_server 192.0.2.1 80 {\n}\n")
    assert not draft.services
    assert [(o.line, o.reason) for o in draft.omissions] == [(1, "left out: a service needs a real_server")]


def test_servers_that_begin_as_failed_do_so_here() -> None:
    (service,) = of_server("TCP_CHECK {\n}", "alpha").services
    assert service.health["initial"] == "down"
    (unchecked,) = of_server("", "alpha").services
    assert not unchecked.health
