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


def test_comments_and_quotes() -> None:
    (one,) = parse_statements("misc_path \"/bin/check  'a' # b\" ! comment\n# all\n")
    assert one.head == ("misc_path", "/bin/check  'a' # b")


@pytest.mark.parametrize(
    ("text", "line"), [("a {\n", 2), ("}\n", 1), ("a 'b\n", 1), ("{\n", 1), ("a {\n{\n", 2), ("x {\n" * 40, 17)]
)
def test_a_broken_file_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(ParseError) as raised:
        parse_statements(text)
    assert raised.value.line == line


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
        why, port = service.omissions
        assert reason in why.reason
        assert port.reason == "packets keep their port: the server has to listen on 80"
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


def test_bug_a_virtual_server_without_lb_kind_is_nat() -> None:
    (service,) = read_keepalived("virtual_server 192.0.2.1 80 {\nreal_server 198.51.100.1 8080 {\n}\n}\n").services
    assert (service.is_nat, service.backends[0].l4_port) == (True, 8080)


def test_bug_the_second_url_gave_the_check_its_status_and_host() -> None:
    url = "url {{\npath /{0}\nstatus_code {1}\nvirtualhost {0}.example\n}}\n"
    urls = url.format("a", 200) + url.format("b", 404)
    (service,) = of_server(f"HTTP_GET {{\n{urls}\n}}").services
    assert [service.health[key] for key in ("path", "status", "host")] == ['"/a"', "200", '"a.example"']


def test_bug_settings_of_the_virtual_server_are_the_defaults_of_checks() -> None:
    own = "retry 5\ndelay_before_retry 2\nconnect_timeout 3\ndelay_loop 8\nvirtualhost a.example\n"
    (service,) = of_server("HTTP_GET {\nretry 1\n}", own).services
    assert {key: service.health[key] for key in ("fall", "fast_interval", "timeout", "interval", "host")} == {
        "fall": "2",
        "fast_interval": "2s",
        "timeout": "3s",
        "interval": "8s",
        "host": '"a.example"',
    }


def test_bug_parameters_were_not_substituted() -> None:
    text = "$NET=192.0.2\n$VIP=${NET}.1\nvirtual_server $VIP 80 {\nreal_server ${NET}.2 80 {\n}\n}\n$RS= \\\n x\n"
    draft = read_keepalived(text)
    assert [(str(one.vips[0]), str(one.backends[0].address)) for one in draft.services] == [("192.0.2.1", "192.0.2.2")]
    assert [omission.line for omission in draft.omissions] == [7, 8]


def test_bug_a_sorry_server_that_is_a_real_server_was_there_twice() -> None:
    (service,) = of_server("", "sorry_server 198.51.100.1 80").services
    assert [backend.is_backup for backend in service.backends] == [False]


def test_bug_the_program_of_one_server_was_asked_about_all_of_them() -> None:
    check = "real_server {0} 80 {{\nMISC_CHECK {{\nmisc_path \"/bin/check {0} 'a b'\"\n}}\n}}\n"
    servers = "".join(check.format(address) for address in ("198.51.100.1", "198.51.100.2"))
    (service,) = read_keepalived(f"virtual_server 192.0.2.1 80 {{\n{servers}}}\n").services
    assert service.health["command"] == '["/bin/sh", "-c", "exec /bin/check \\"$XENOOVS_ADDRESS\\" \'a b\'"]'
    assert not service.omissions


def test_bug_a_check_got_a_host_and_a_port_that_no_config_takes() -> None:
    (service,) = of_server("HTTP_GET {\n virtualhost a/b\n connect_port 080\n}").services
    assert {"host", "port"}.isdisjoint(service.health)
    assert {"virtualhost a/b", "connect_port 080"} <= {each.text for each in service.omissions}


@pytest.mark.parametrize("name", ["", "name .\n"])
def test_bug_a_dns_check_of_the_root_became_a_probe_that_the_config_refuses(name: str) -> None:
    (service,) = of_server(f"DNS_CHECK {{\n{name}}}").services
    assert service.health == {}
    assert "with a name to ask for" in " ".join(each.reason for each in service.omissions)
