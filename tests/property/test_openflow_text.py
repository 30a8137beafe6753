"""Law: parse(render(x)) == x; any text gives flows or a ParseError, nothing else."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.property.flows import flows
from xenoovs.errors import ParseError
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.text import parse_dump, parse_flow, render_flow

_OPTIONS = ("idle_timeout=10", "hard_timeout=3", "send_flow_rem", "check_overlap", "importance=7")
_DUMP_WORDS = (
    *(" cookie=0x1, ", "duration=1.5s, ", "table=3, ", 'table="a b", ', "n_packets=1, n_bytes=2, ", "idle_timeout=1, "),
    *(
        "send_flow_rem ",
        "priority=7,",
        "priority=70000,",
        "in_port=p0",
        'in_port="p-1"',
        ",",
        "ip,nw_src=1.2.3.4/0.0.0.1",
    ),
    *("udp,tp_dst=0x10/0x10", "ipv6,ipv6_src=::/::1", " actions=", "drop", "output:p1", "resubmit(,2)", "resubmit(,x)"),
    *("load:0x5->NXM_NX_REG0[]", "mod_dl_dst:00:00:00:00:00:01", "learn(table=1,load:1->X[],output:Y[])", "(", '"'),
    *("NXST_FLOW reply (xid=0x4):\n", "\n", "set_field:5->reg0", "goto_table:4", "dl_vlan=5", "=", "/", " ", "\\"),
)


@given(flow=flows(), options=st.sets(st.sampled_from(_OPTIONS)))
def test_what_is_rendered_is_read_back(flow: Flow, options: set[str]) -> None:
    whole = Flow(flow.key, flow.cookie, flow.actions, tuple(option for option in _OPTIONS if option in options))
    assert parse_flow(render_flow(whole)) == whole


@st.composite
def _damaged_lines(draw: st.DrawFn) -> str:
    """A good line with one piece cut out and another put in."""
    line = render_flow(draw(flows()))
    cut = sorted((draw(st.integers(0, len(line))), draw(st.integers(0, len(line)))))
    return line[: cut[0]] + draw(st.sampled_from(_DUMP_WORDS) | st.text(max_size=3)) + line[cut[1] :]


@given(text=st.text() | st.lists(st.sampled_from(_DUMP_WORDS)).map("".join) | _damaged_lines())
@example(text="actions=")
@example(text="cookie=0x0,  actions= actions=0")
@example(text=" cookie=0x1, duration=1.0s, table=0, n_packets=0, n_bytes=0, priority=1,ip actions=")
@example(text='in_port="\\x" actions=drop')
@example(text='in_port="\\ud800" actions=output:"\\ud800"')
@example(text="table=９, actions=drop")
@example(text="ip,nw_src=1.2.3.4/99 actions=drop")
@example(text="tcp,arp actions=drop")
def test_any_text_is_flows_or_a_parse_error(text: str) -> None:
    observed, refused = _read(text)
    if refused is not None:
        assert text.split("\n")[(refused.line or 0) - 1] == refused.text
    for flow in observed:
        assert parse_flow(render_flow(flow)) == flow


def _read(text: str) -> tuple[list[Flow], ParseError | None]:
    try:
        return [seen.flow for seen in parse_dump(text)], None
    except ParseError as error:
        return [], error


@pytest.mark.parametrize("option", _OPTIONS)
def test_an_option_is_content_and_not_identity(option: str) -> None:
    """Flags were part of the match, so a plan would have added the flow and deleted it again."""
    separator = ", " if "=" in option else " "
    flow = parse_flow(f"{option}{separator}priority=5,ip actions=drop")
    assert flow.options == (option,)
    assert flow.key == parse_flow("priority=5,ip actions=drop").key
