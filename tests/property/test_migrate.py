"""Any text of a foreign config is read or refused, and what is read is written as YAML."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from xenoovs.errors import ParseError
from xenoovs.migrate.draft import Draft, DraftSwitch, render
from xenoovs.migrate.flows import read_flows
from xenoovs.migrate.haproxy import read_haproxy
from xenoovs.migrate.keepalived import read_keepalived
from xenoovs.migrate.ovn import read_lb_list
from xenoovs.migrate.xenoflow import read_xenoflow

KEYWORDS = """
virtual_server real_server weight TCP_CHECK HTTP_GET url path retry delay_loop group fwmark listen frontend backend bind
server check inter option httpchk default_backend rise actions= mod_dl_dst:02:00:00:00:00:01, output:p1 output:3 NORMAL
drop cookie=0x1, table=9, priority=7, ip, udp, in_port=p0, nw_src=0.0.0.1/0.0.0.3, nw_src=1.2.3.4, tp_dst=53/0xfff0,
192.0.2.1 2001:db8::1 192.0.2.1:80 [fd00::1]:80,fd00::2 :80 *:80-90 80 0 65536 300 -1 1e9 5s /x tcp { } [ ] \\ # ! ' "
{"backends": "mac_address" é ²
"""
WORDS = (*KEYWORDS.split(), "\n", "\n{\n", "UUID LB PROTO VIP IPs\n", "9" * 400, "\x1b[31m", "\x00")
READERS: tuple[Callable[[str], Draft], ...] = (
    read_keepalived,
    read_haproxy,
    read_flows,
    read_lb_list,
    read_xenoflow,
)


@pytest.mark.parametrize("read", READERS)
@given(st.lists(st.sampled_from(WORDS), max_size=40), st.sampled_from(("", " ", "\n")))
def test_any_text_is_read_or_refused(read: Callable[[str], Draft], words: list[str], blank: str) -> None:
    try:
        draft = read(blank.join(words))
    except ParseError:
        return
    text = render(draft, source="a\nname", switch=DraftSwitch())
    assert all(char.isprintable() or char == "\n" for char in text)
    services = yaml.safe_load(text)["services"]
    assert [service["name"] for service in services] == [service.name for service in draft.services]


SERVER = """
check inter 3s rise fall 4 weight 50% 300 port 81 check-ssl ssl verify none ca-file /ca.pem sni str(x) backup no-check
disabled agent-check agent-port 99 slowstart 10s track a/b maxconn observe layer4 send-proxy foo
"""
RULES = """
option httpchk HEAD /x HTTP/1.0 GET * tcp-check mysql-check http-check send meth OPTIONS hdr host a.b expect status
rstatus 200-299 connect default tcp-check timeout check 1s mode http tcp no balance source use_backend bind ssl :443
"""
CHECK = """
HTTP_GET TCP_CHECK MISC_CHECK { } url path /x status_code 200 digest retry 3 connect_timeout x delay_loop misc_path
"a b" weight 0 alpha notify_up virtualhost a.b connect_port 99 warmup
"""


def _haproxy(server: list[str], rules: list[list[str]]) -> str:
    lines = "\n".join(map(" ".join, rules))
    ends = f"server a 192.0.2.2:80 {' '.join(server)}\nserver b 192.0.2.3:80 check"
    return f"defaults d\nlisten web from d\nbind 192.0.2.1:80\n{lines}\n{ends}"


def _words(of: str, *, most: int) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(of.split()), max_size=most)


@given(
    st.one_of(
        st.builds(_haproxy, _words(SERVER, most=6), st.lists(_words(RULES, most=4), max_size=4)).map(
            lambda text: (read_haproxy, text)
        ),
        _words(CHECK, most=9).map(
            lambda words: (
                read_keepalived,
                "virtual_server 192.0.2.1 80 {\nreal_server 192.0.2.2 80 {\n" + "\n".join(words) + "\n}\n}",
            )
        ),
    ),
    st.data(),
)
def test_no_word_can_change_unnoticed(case: tuple[Callable[[str], Draft], str], data: st.DataObject) -> None:
    """What a word says is in the config, or a comment names the word or the block with it."""
    read, text = case
    word = data.draw(st.sampled_from([*re.finditer(r"\S+", text)]))
    output = _output(read, text)
    assume(output.startswith("#"))
    line = text.count("\n", 0, word.start()) + 1
    blocks = re.findall(r"# f:([0-9]+)-([0-9]+): ", output)
    if not any(int(first) <= line <= int(last) for first, last in blocks):
        assert _output(read, f"{text[: word.end()]}x{text[word.end() :]}") != output


def _output(read: Callable[[str], Draft], text: str) -> str:
    try:
        return render(read(text), source="f", switch=DraftSwitch())
    except ParseError as error:
        return str(error)


def test_bug_the_reason_for_a_flow_that_is_left_out_had_its_control_characters() -> None:
    text = render(read_flows("\0actions=drop"), source="flows", switch=DraftSwitch())
    assert "\0" not in text
    assert "xenoovs does not match" in text
