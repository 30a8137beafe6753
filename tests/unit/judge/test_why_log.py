"""Lines of ovs-vswitchd's log to refusals, and which megaflows they are about. Texts as OVS 3.1 to 3.7 write them."""

from __future__ import annotations

from itertools import count

import pytest

from tests.unit.judge.why_cases import UFID, case, host, megaflow
from xenoovs.compile.offloadable.table import SOURCES
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.datapath.parse import parse_megaflow
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.why.flows import action_reasons
from xenoovs.judge.why.log import LOG_PATTERNS, parse_refusals, refuses_chains
from xenoovs.judge.why.reason import Cause, Likelihood

_numbers = count(1)


def _line(message: str, *, thread: str = "handler2", module: str = "netdev_offload_tc") -> str:
    return f"2026-11-21T04:33:58.590Z|{next(_numbers):05}|{module}({thread})|DBG|{message}\n"


def _failed(port: str = "p0", error: str = "Operation not supported", *, thread: str = "handler2") -> str:
    return _line(f"failed to offload flow: {error}: {port}", thread=thread, module="dpif_netlink")


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("Invalid argument", Cause.REFUSED_BY_KERNEL),
        ("No such file or directory", Cause.NO_INGRESS_QDISC),
        ("No space left on device", Cause.TABLE_FULL),
        ("Operation not supported", Cause.REFUSED_BY_OVS),
    ],
)
def test_a_failure_without_a_reason_before_it_is_of_any_megaflow_of_the_port(error: str, cause: Cause) -> None:
    (refusal,) = parse_refusals(_failed("p0", error))
    assert (refusal.cause, refusal.port, refusal.is_specific) == (cause, "p0", False)
    assert refusal.fits(megaflow("dp:ovs"))


def test_a_refusal_comes_once_with_the_port_of_the_failure_in_its_thread_and_its_last_line() -> None:
    first, again = (_line("unsupported put action type: 13") for _ in range(2))
    other = _line("offloading attribute dp_hash isn't supported", thread="handler3")
    text = first + other + _failed("p0") + _failed("p1", thread="handler3") + again + _failed("p0")
    assert {(found.cause, found.line, found.port) for found in parse_refusals(text)} == {
        (Cause.UNSUPPORTED_ACTION, again.strip(), "p0"),
        (Cause.UNSUPPORTED_MATCH, other.strip(), "p1"),
    }
    assert len(parse_refusals(text)) == 2


def _of(actions: str = "p2", *, keys: str = "dp_hash(0/0),skb_mark(0/0)") -> Megaflow:
    return megaflow("dp:ovs", actions, keys=keys)


WITHOUT_FRAME = parse_megaflow(
    "recirc_id(0),in_port(p0),packet_type(ns=1,id=0x800),eth_type(0x0800), packets:1, bytes:60, used:0.1s, dp:ovs, "
    "actions:p1"
)


@pytest.mark.parametrize(
    ("message", "fitting", "other"),
    [
        ("unsupported put action type: 2", _of("userspace(pid=4294967295,slow_path(controller))"), _of()),
        ("unsupported put action type: 6", _of("sample(sample=50.0%,actions(userspace(pid=1,ipfix))),p1"), _of()),
        ("unsupported put action type: 8", _of("hash(l4(0)),recirc(0x3)"), _of()),
        ("unsupported put action type: 13", _of("trunc(100),p1"), _of()),
        ("unsupported set action type: 17", _of("set(sctp(dst=80)),p1"), _of()),
        ("Can only support 16 actions", _of("push_vlan(vid=5,pcp=0),p1"), _of()),
        ("flow_put: recirc_id sharing not supported", _of("ct,recirc(0x1)"), _of()),
        ("Output to port 'p1' cannot be offloaded.", _of("p1"), _of()),
        ("offloading attribute dp_hash isn't supported", _of(keys="dp_hash(0xb/0xf)"), _of()),
        ("offloading attribute pkt_mark isn't supported", _of(keys="skb_mark(0x1/0x1)"), _of()),
        (
            "offloading multiple mpls_lses isn't supported",
            _of(keys="mpls(lse0=0x1,lse1=0x101)"),
            _of(keys="mpls(lse0=0x101)"),
        ),
        ("offloading of non-ethernet packets isn't supported", WITHOUT_FRAME, _of()),
    ],
)
def test_a_text_about_a_key_or_an_action_fits_only_megaflows_with_it(
    message: str, fitting: Megaflow, other: Megaflow
) -> None:
    (refusal,) = parse_refusals(_line(message) + _failed())
    assert (refusal.is_specific, refusal.fits(fitting), refusal.fits(other)) == (True, True, False)
    assert refusal.cause is Cause.UNSUPPORTED_MATCH or not message.startswith("offloading")


def test_a_text_about_an_unknown_key_fits_any_megaflow_of_the_port() -> None:
    message = _line("offloading isn't supported, unknown attribute")
    (refusal,) = parse_refusals(message + _failed())
    assert (refusal.cause, refusal.fits(_of(keys="eth()"))) == (Cause.UNSUPPORTED_MATCH, True)
    (refusal,) = parse_refusals(_failed("p1"))
    assert not refusal.fits(_of())


def test_each_kind_of_line_has_a_source_in_open_vswitch() -> None:
    assert {SOURCES[note.source].partition("/")[0] for note in LOG_PATTERNS} == {"lib"}
    assert all("()" in SOURCES[note.source] for note in LOG_PATTERNS)
    (bare,) = parse_refusals(_failed())
    assert bare.source == "lib/dpif-netlink.c, parse_flow_put() (3.7: lib/dpif-offload-tc.c, tc_parse_flow_put())"


def test_a_reason_from_the_log_has_the_source_of_the_line() -> None:
    log = _line("Flow API provider mismatch between ingress (p0) and egress (p1) ports") + _failed()
    found = case(megaflow("dp:ovs"), evidence=Evidence(host(), logs=(log,)))
    (reason,) = (reason for reason in action_reasons(found) if reason.text.startswith("Open vSwitch logged"))
    assert reason.source is not None
    assert reason.source.endswith("netdev_tc_parse_nl_actions()")


def test_the_message_of_the_driver_counts_where_the_failure_follows_at_once() -> None:
    words = _line("received NAK error=95 - eswitch: unsupported match key", module="netlink_socket")
    (refusal,) = parse_refusals(words + _failed())
    assert (refusal.cause, refusal.port) == (Cause.REFUSED_BY_DRIVER, "p0")
    other = _line("added flow", module="dpif_netlink")
    assert [found.message for found in parse_refusals(words + other + _failed())] == [
        "failed to offload flow: Operation not supported: p0"
    ]


def test_what_an_earlier_process_refused_does_not_count() -> None:
    start = "2026-11-21T05:00:00.000Z|00001|vlog|INFO|opened log file /var/log/openvswitch/ovs-vswitchd.log\n"
    assert parse_refusals(_failed() + start) == ()
    assert len(parse_refusals(start + _failed())) == 1
    thread = "2026-11-21T05:00:00.000Z|00001|dpif_netlink(handler5)|DBG|added flow\n"
    assert len(parse_refusals(_failed() + thread)) == 1


def test_the_log_shows_a_kernel_without_chains_until_the_next_start() -> None:
    refused = _line("flow_put: recirc_id sharing not supported") + _failed()
    start = "2026-11-21T04:40:00.000Z|00001|vlog|INFO|opened log file /var/log/openvswitch/ovs-vswitchd.log\n"
    assert refuses_chains(refused)
    assert not refuses_chains(refused + start)
    assert not refuses_chains(_failed())


_OTHER_UFID = "d62b30e5-43bd-406d-a2f4-3d5a41e4aa3b"


def _put(ufid: str, error: str = "Invalid argument", *, module: str = "dpif_offload") -> str:
    """As log_flow_message() of lib/dpif.c of 4.0 writes it."""
    return _line(
        f"system@ovs-system: failed to put[create] ({error}) ufid:{ufid} recirc_id(0),dp_hash(0/0),in_port(3),"
        "eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x0800),ipv4(frag=no), actions:4",
        module=module,
    ).replace("|DBG|", "|WARN|")


@pytest.mark.parametrize(
    ("error", "cause"),
    [("Invalid argument", Cause.REFUSED_BY_KERNEL), ("No such file or directory", Cause.NO_INGRESS_QDISC)],
)
def test_a_line_that_names_the_megaflow_is_certain_and_about_no_other(error: str, cause: Cause) -> None:
    log = _failed("p0", error) + _failed("p0", error) + _put(UFID, error) + _put(_OTHER_UFID, error)
    (reason,) = action_reasons(case(megaflow("dp:ovs"), evidence=Evidence(host(), logs=(log,))))
    assert (reason.cause, reason.likelihood, len(reason.evidence)) == (cause, Likelihood.CONFIRMED, 1)
    assert UFID in reason.evidence[0]
    assert reason.source == SOURCES["offload-put"]


def test_a_failure_of_the_datapath_itself_is_no_refusal_of_offload() -> None:
    assert parse_refusals(_put(UFID, "File exists", module="dpif")) == ()
    assert [one.ufid for one in parse_refusals(_put(UFID) + _put(UFID))] == [UFID]
