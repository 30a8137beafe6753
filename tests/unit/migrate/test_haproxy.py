"""haproxy.cfg: the syntax of the file, and which parts a config can express."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from xenoovs.errors import ParseError
from xenoovs.migrate.draft import DraftService
from xenoovs.migrate.haproxy import parse_sections, read_haproxy

_NO_AGENT_CHECK = "it has no agent_check there; the agent_check of the service is for this server too"


def service_of(*lines: str, defaults: str = "") -> DraftService:
    text = f"defaults\n{defaults}\nlisten web\nbind 192.0.2.1:80\n" + "\n".join(lines)
    (service,) = read_haproxy(text).services
    return service


def test_escapes_of_unprintable_characters_are_those_of_the_manual() -> None:
    (section,) = parse_sections('listen a\n http-check send ver HTTP/1.1\\r\\nHost:\\x20b "\\t"\n')
    assert section.lines[0][3:] == ("HTTP/1.1\r\nHost: b", "\t")


def test_words_have_quotes_and_backslashes() -> None:
    (section,) = parse_sections("listen a\n server my\\ one \"192.0.2.1:80\" 'check # no' # comment\n")
    assert section.lines[0] == ("server", "my one", "192.0.2.1:80", "check # no")


@pytest.mark.parametrize("text", ['listen a\nserver "x\n', "bind :80\n"])
def test_a_broken_file_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        read_haproxy(text)


def test_no_check_ends_a_default_check() -> None:
    assert service_of("server a 192.0.2.2:80 no-check", defaults="default-server check").health == {}


@pytest.mark.parametrize(
    ("option", "path"), [("", "/"), (" /alive", "/alive"), (" HEAD /alive HTTP/1.0", "/alive"), (" *", "/")]
)
def test_a_http_check_has_a_path(option: str, path: str) -> None:
    health = service_of(f"option httpchk{option}", "server a 192.0.2.2:80 check").health
    assert (health["probe"], health["path"]) == ("http", f'"{path}"')


@pytest.mark.parametrize(
    ("bind", "vips", "ports"),
    [
        (":8000-8010", (), "8000-8010"),
        ("*:80", (), "80"),
        ("0.0.0.0:80", (), "80"),
        ("ipv6@[2001:db8::1]:80", ("2001:db8::1",), "80"),
        ("2001:db8::1:80", ("2001:db8::1",), "80"),
    ],
)
def test_binds(bind: str, vips: tuple[str, ...], ports: str) -> None:
    (service,) = read_haproxy(f"listen web\nbind {bind}\nserver a 192.0.2.2\n").services
    assert (service.vips, [str(port) for port in service.ports]) == (tuple(map(ip_address, vips)), [ports])


def test_agent_check_of_servers_is_that_of_the_service() -> None:
    agent = "agent-check agent-port 9707"
    service = service_of(f"server a 192.0.2.2:80 {agent} agent-inter 5s", "server b 192.0.2.3:80 no-agent-check")
    assert service.agent_check == {"port": "9707", "interval": "5s"}
    (other,) = service.omissions
    assert (other.text, other.reason) == ("b: no-agent-check", _NO_AGENT_CHECK)
    assert service_of(f"server a 192.0.2.2:80 {agent}").agent_check == {"port": "9707", "interval": "2s"}
    quick = service_of(f"server a 192.0.2.2:80 {agent} agent-inter 200ms agent-send 'web\\n' agent-addr 192.0.2.9")
    assert quick.agent_check == {"port": "9707", "interval": "200ms", "timeout": "200ms", "send": '"web\\n"'}
    assert [each.text for each in quick.omissions] == ["a: agent-addr 192.0.2.9"]


def test_agent_check_in_the_defaults_holds_for_all_servers() -> None:
    lines = ("server a 192.0.2.2:80", "server b 192.0.2.3:80 agent-inter 9s", "server c 192.0.2.4:80 no-agent-check")
    service = service_of(*lines, defaults="default-server agent-check agent-port 9707 agent-inter 3s")
    assert service.agent_check == {"port": "9707", "interval": "3s"}
    reasons = [each.reason for each in service.omissions]
    assert reasons == [
        "a service has one agent_check, here that of its first server; this one differs",
        _NO_AGENT_CHECK,
    ]


def test_agent_check_without_a_port_or_behind_other_servers_is_named() -> None:
    (nothing,) = service_of("server a 192.0.2.2:80 agent-check").omissions
    assert (nothing.text, nothing.reason) == ("a: agent-check", "it has no agent-port to ask")
    late = service_of("server a 192.0.2.2:80", "server b 192.0.2.3:80 agent-check agent-port 1")
    assert late.agent_check["port"] == "1"
    assert [each.reason for each in late.omissions] == [_NO_AGENT_CHECK]


@pytest.mark.parametrize("switch", ["send-proxy", "send-proxy-v2", "agent-check", "ssl-reuse"])
def test_an_option_without_argument_does_not_swallow_the_next_one(switch: str) -> None:
    assert service_of(f"server a 192.0.2.2:80 {switch} check").health["probe"] == "tcp"


@pytest.mark.parametrize("bind", ['"${LB_ADDR}:80"', "/run/web.sock", "fd@3", "quic4@192.0.2.1:80", "127.0.0.1:80"])
def test_bug_a_bind_that_is_no_address_became_a_service_for_all_of_tcp(bind: str) -> None:
    draft = read_haproxy(f"listen web\nbind {bind}\nserver a 192.0.2.2:80\n")
    assert not draft.services
    assert any(omission.line == 2 for omission in draft.omissions)


def test_bug_vips_had_the_ports_of_each_other() -> None:
    draft = read_haproxy("listen web\nbind 192.0.2.1:80\nbind 192.0.2.2:443\nserver a 192.0.2.3\n")
    assert [(str(each.vips[0]), str(each.ports[0])) for each in draft.services] == [
        ("192.0.2.1", "80"),
        ("192.0.2.2", "443"),
    ]


@pytest.mark.parametrize("target", ["2001:db8::12:6443", "[2001:db8::12]:6443", "ipv6@[2001:db8::12]:6443"])
def test_bug_the_port_of_an_unbracketed_ipv6_address_was_part_of_the_address(target: str) -> None:
    service = service_of(f"server a {target} check")
    assert (str(service.backends[0].address), service.health["port"]) == ("2001:db8::12", "6443")


def test_bug_from_was_ignored_and_the_last_defaults_held_for_all() -> None:
    defaults = "defaults A\ndefault-server check inter 9s\ndefaults B\n"
    (service,) = read_haproxy(f"{defaults}listen w from A\nbind 192.0.2.1:80\nserver a 192.0.2.2\n").services
    assert service.health["interval"] == "9s"


@pytest.mark.parametrize("order", ["use_backend b\ndefault_backend c", "default_backend c\nuse_backend b"])
def test_bug_use_backend_without_a_condition_was_left_out(order: str) -> None:
    text = f"frontend f\nbind 192.0.2.1:80\n{order}\nbackend b\nserver b 192.0.2.2\nbackend c\nserver c 192.0.2.3\n"
    draft = read_haproxy(text)
    assert [[backend.name for backend in service.backends] for service in draft.services] == [["b"]]


@pytest.mark.parametrize(("words", "port", "probe"), [("ssl", "80", "https"), ("ssl port 81", "81", "http")])
def test_a_check_has_the_tls_of_its_server_unless_it_has_a_port_of_its_own(words: str, port: str, probe: str) -> None:
    health = service_of("option httpchk", f"server a 192.0.2.2:80 check {words}").health
    assert (health["probe"], health["port"]) == (probe, port)
