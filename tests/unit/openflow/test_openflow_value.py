"""Values and masks as Open vSwitch writes them; the samples are what ovs-ofctl 3.1.0 dumped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xenoovs.openflow.flow import (
    ANSWER_OWNER,
    FOREIGN,
    LEASE_OWNER,
    OURS,
    OWNER,
    Command,
    Cookies,
    Field,
    FlowMod,
    Masked,
    SetField,
    exact,
    is_foreign,
    is_ours,
    match_of,
)
from xenoovs.openflow.text import (
    parse_flow,
    parse_mask,
    parse_value,
    render_flow,
    render_flow_mod,
    render_flow_to_send,
    render_mask,
    render_mask_to_send,
    render_match,
    render_value,
)

_ALL_ONES = (1 << 128) - 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "::"),
        (1, "::1"),
        (0xFFFF, "::ffff"),
        (0x10000, "::0.1.0.0"),
        (0xFFFF << 32 | 0x01020304, "::ffff:1.2.3.4"),
        (0xFFFF << 32, "::ffff:0.0.0.0"),
        (0x0001 << 32 | 5, "::1:0:5"),
        (0x20010DB8 << 96 | 0xFF, "2001:db8::ff"),
        (1 << 112 | 1 << 16, "1::1:0"),
    ],
)
def test_ipv6_as_glibc_writes_it(value: int, text: str) -> None:
    assert render_value(Field.IPV6_SRC, value) == text
    assert parse_value(Field.IPV6_SRC, text) == value


@pytest.mark.parametrize(
    ("field", "mask", "text"),
    [
        (Field.NW_SRC, 0x00000003, "0.0.0.3"),
        (Field.NW_SRC, 0x00FF0001, "0.255.0.1"),
        (Field.NW_SRC, 0xFFFFFF00, "24"),
        (Field.IPV6_SRC, 0xFF, "::ff"),
        (Field.IPV6_SRC, _ALL_ONES << 64 & _ALL_ONES, "64"),
        (Field.IPV6_SRC, 0xFFFFF, "::0.15.255.255"),
        (Field.TP_DST, 0xFFF0, "0xfff0"),
        (Field.DL_DST, 0xFF, "00:00:00:00:00:ff"),
        (Field.METADATA, 0xFF, "0xff"),
    ],
)
def test_masks(field: Field, mask: int, text: str) -> None:
    assert render_mask(field, mask) == text
    assert parse_mask(field, text) == mask


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (exact(Field.REG0, 0), "reg0=0"),
        (exact(Field.DL_TYPE, 0x600), "dl_type=0x0600"),
        (exact(Field.DL_TYPE, 0x8035), "rarp"),
        (Masked(Field.TP_SRC, 0, 1), "tp_src=0x0/0x1"),
        (Masked(Field.METADATA, 0, 1), "metadata=0/0x1"),
    ],
)
def test_spellings_of_zero_and_of_types(condition: Masked, text: str) -> None:
    assert render_match(match_of((condition,))) == text


def test_marks_stand_before_the_keyword_and_registers_behind() -> None:
    conditions = (exact(Field.DL_TYPE, 0x0800), exact(Field.REG0, 1), exact(Field.PKT_MARK, 3))
    assert render_match(match_of(conditions, in_port="p0")) == "pkt_mark=0x3,ip,reg0=0x1,in_port=p0"


def test_one_field_is_matched_once() -> None:
    with pytest.raises(ValueError, match="nw_src is matched twice"):
        match_of((exact(Field.NW_SRC, 1), exact(Field.NW_SRC, 2)))


def test_an_ipv6_address_is_not_set_at_once() -> None:
    with pytest.raises(ValueError, match="more than 64 bits"):
        SetField(Field.IPV6_SRC, 1)


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


_NEAR = st.sampled_from((OWNER, LEASE_OWNER, ANSWER_OWNER, OWNER + 1, OWNER ^ 0x8000, 0))
COOKIES = st.integers(0, (1 << 64) - 1) | st.builds(
    lambda owner, rest: owner << 48 | rest, _NEAR, st.integers(0, (1 << 48) - 1)
)


def times_in(cookie: int, masks: Cookies) -> int:
    """In how many of the masks a cookie is."""
    return sum(cookie in mask for mask in masks)


@given(cookie=COOKIES)
def test_masks_select_the_owner_of_a_flow(cookie: int) -> None:
    assert times_in(cookie, OURS) == is_ours(cookie)
    assert times_in(cookie, FOREIGN) == is_foreign(cookie)
