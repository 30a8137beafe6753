"""Masks of IPv6 as ovs-ofctl reads them, which is not always as it prints them."""

from __future__ import annotations

import pytest

from xenoovs.openflow.flow import Command, Field, FlowMod
from xenoovs.openflow.text import (
    parse_flow,
    parse_mask,
    render_flow,
    render_flow_mod,
    render_flow_to_send,
    render_mask,
    render_mask_to_send,
)


@pytest.mark.parametrize(
    ("printed", "sent"),
    [
        ("0:4:0:1000::", "::4:0:1000:0:0:0:0"),
        ("0:0:1::", "::0:1:0:0:0:0:0"),
        ("0:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("::3", "::3"),
        ("64", "64"),
        ("a000:0:1::", "a000:0:1::"),
    ],
)
def test_a_mask_of_zero_first_bits_starts_with_colons(printed: str, sent: str) -> None:
    mask = parse_mask(Field.IPV6_SRC, printed)
    assert render_mask(Field.IPV6_SRC, mask) == printed
    assert render_mask_to_send(Field.IPV6_SRC, mask) == sent
    assert parse_mask(Field.IPV6_SRC, sent) == mask


def test_bug_ovs_ofctl_took_a_mask_that_starts_with_zero_for_a_prefix_length() -> None:
    flow = parse_flow("priority=5,ipv6,ipv6_src=0:4::/0:4:0:1000:: actions=output:p1")
    assert "ipv6_src=0:4::/0:4:0:1000:: " in render_flow(flow)
    assert "ipv6_src=0:4::/::4:0:1000:0:0:0:0 " in render_flow_mod(FlowMod(Command.ADD, flow))
    assert render_flow_mod(FlowMod(Command.DELETE, flow)).endswith("/::4:0:1000:0:0:0:0")
    assert parse_flow(render_flow_to_send(flow)) == flow
