"""Any text of a foreign config is read or refused, and what is read is written as YAML."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import IPv4Address
from itertools import product
from random import Random

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from xenoovs.compile.program import compile_config
from xenoovs.errors import ConfigError, ParseError
from xenoovs.judge.simulate.walk import tables_of, walk
from xenoovs.migrate.draft import Draft, DraftSwitch, render
from xenoovs.migrate.flows import read_flows
from xenoovs.migrate.haproxy import read_haproxy
from xenoovs.migrate.keepalived import read_keepalived
from xenoovs.migrate.ovn import read_lb_list
from xenoovs.migrate.xenoflow import read_xenoflow
from xenoovs.model.address import Mac
from xenoovs.model.load import parse_config
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import tag_of
from xenoovs.openflow.text import parse_flow

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


RULE = st.tuples(
    st.sampled_from(("10.3.0.0/16", "10.3.10.0/24", "10.3.10.0/25", "10.3.10.5")),
    st.sampled_from(("", "dl_vlan=100,", "vlan_tci=0x0000/0x1000,")),
    st.sampled_from(("ip", "udp", "tcp")),
)


@given(st.lists(RULE, min_size=2, max_size=4, unique=True), st.randoms(use_true_random=False))
def test_no_packet_of_imported_flows_goes_to_another_server_than_the_switch_sends_it(
    rules: list[tuple[str, str, str]], random: Random
) -> None:
    """Of nested prefixes the switch takes the highest priority, xenoovs a VLAN and then the longest."""
    order = random.sample(range(len(rules)), len(rules))
    flows = [
        f"priority={10 + priority},{protocol},in_port=p0,{tag}nw_dst={vip} "
        f"actions=mod_dl_dst:02:00:00:00:00:0{number},output:p1"
        for number, (priority, (vip, tag, protocol)) in enumerate(zip(order, rules, strict=True))
    ]
    draft = read_flows("\n".join(flows))
    assert draft.services
    left_out = {omission.line - 1 for omission in draft.every_omission}
    try:
        balancer = parse_config(render(draft, source="f", switch=DraftSwitch()), file="f")
    except ConfigError:
        # Two have the same destinations, of which only one has a protocol.
        assume(False)
        return
    theirs, ours = tables_of(map(parse_flow, flows)), tables_of(compile_config(balancer).flows)
    for to, vlan, number in product(("10.3.1.1", "10.3.10.200", "10.3.10.1", "10.3.10.5"), (0, 100), (6, 17)):
        packet = Packet("p0", IPv4Address("198.51.100.1"), IPv4Address(to), number, 8, 999, vlan=tag_of(vlan))
        found, wanted = ([Mac(copy.dl_dst) for copy in walk(tables, packet).copies] for tables in (ours, theirs))
        # What is left out is named, and its packets belong to no service, or to another one.
        if wanted and wanted[0].value & 0xF not in left_out:
            assert found == wanted, (to, vlan, number)


def test_bug_the_reason_for_a_flow_that_is_left_out_had_its_control_characters() -> None:
    text = render(read_flows("\0actions=drop"), source="flows", switch=DraftSwitch())
    assert "\0" not in text
    assert "xenoovs does not match" in text
