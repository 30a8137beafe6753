"""Any text of a foreign config is read or refused, and what is read is written as YAML."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml
from hypothesis import given
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


def test_bug_the_reason_for_a_flow_that_is_left_out_had_its_control_characters() -> None:
    text = render(read_flows("\0actions=drop"), source="flows", switch=DraftSwitch())
    assert "\0" not in text
    assert "xenoovs does not match" in text
