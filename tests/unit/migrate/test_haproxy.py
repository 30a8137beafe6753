"""haproxy.cfg: the form of the file, and what of it a config can say."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from xenoovs.errors import ParseError
from xenoovs.migrate.draft import DraftService
from xenoovs.migrate.haproxy import parse_sections, read_haproxy


def service_of(*lines: str, defaults: str = "") -> DraftService:
    text = f"defaults\n{defaults}\nlisten web\nbind 192.0.2.1:80\n" + "\n".join(lines)
    (service,) = read_haproxy(text).services
    return service


def test_words_have_quotes_and_backslashes() -> None:
    (section,) = parse_sections("listen a\n server my\\ one \"192.0.2.1:80\" 'check # no' # comment\n")
    assert section.lines[0].words == ("server", "my one", "192.0.2.1:80", "check # no")


@pytest.mark.parametrize("text", ['listen a\nserver "x\n', "bind :80\n"])
def test_a_broken_file_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        read_haproxy(text)


def test_defaults_hold_until_a_server_says_otherwise() -> None:
    service = service_of("server a 192.0.2.2:80 check fall 7", defaults="default-server inter 5s fall 4 rise 3")
    assert {key: service.health[key] for key in ("interval", "fall", "rise")} == {
        "interval": "5s",
        "fall": "7",
        "rise": "3",
    }


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


def test_servers_with_a_name_and_backups_are_left_out_with_a_reason() -> None:
    service = service_of("server a 192.0.2.2:80", "server b b.example.net:80", "server c 192.0.2.4:80 backup")
    assert [backend.name for backend in service.backends] == ["a"]
    assert [omission.line for omission in service.omissions] == [6, 7]


def test_a_disabled_server_has_no_weight() -> None:
    service = service_of("server a 192.0.2.2:80 weight 5", "server b 192.0.2.3:80 disabled")
    assert [backend.weight for backend in service.backends] == [5, 0]


def test_omissions_of_a_server_are_in_the_order_of_its_options() -> None:
    options = ("maxconn", "cookie", "agent-check", "send-proxy-v2")
    line = "server a 192.0.2.2:80 maxconn 5 cookie s1 agent-check send-proxy-v2"
    assert [omission.text for omission in service_of(line).omissions] == [f"a: {option}" for option in options]


@pytest.mark.parametrize("switch", ["send-proxy", "send-proxy-v2", "agent-check", "ssl-reuse"])
def test_an_option_without_argument_does_not_swallow_the_next_one(switch: str) -> None:
    assert service_of(f"server a 192.0.2.2:80 {switch} check").health["probe"] == "tcp"
