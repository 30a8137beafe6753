"""Lines of ovs-vswitchd's log as reasons, and which megaflows they are about. Texts as OVS 3.1 to 4.0 write them."""

from __future__ import annotations

import pytest

from tests.judged import assert_recorded
from tests.unit.judge.why_cases import UFID, case, host, megaflow, shown
from xenoovs.compile.offloadable.table import SOURCES
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.datapath.parse import parse_megaflow
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.why.log import LOG_PATTERNS, parse_refusals, refuses_chains
from xenoovs.judge.why.reason import Cause


def _line(message: str, *, thread: str = "handler2", module: str = "netdev_offload_tc", level: str = "DBG") -> str:
    return f"2026-11-21T04:33:58.590Z|00007|{module}({thread})|{level}|{message}\n"


def _failed(port: str = "p0", error: str = "Operation not supported", *, thread: str = "handler2") -> str:
    return _line(f"failed to offload flow: {error}: {port}", thread=thread, module="dpif_netlink")


def _put(ufid: str, error: str = "Invalid argument", *, module: str = "dpif_offload") -> str:
    """As log_flow_message() of lib/dpif.c of 4.0 writes it."""
    return _line(
        f"system@ovs-system: failed to put[create] ({error}) ufid:{ufid} recirc_id(0),dp_hash(0/0),in_port(3),"
        "eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x0800),ipv4(frag=no), actions:4",
        module=module,
        level="WARN",
    )


START = "2026-11-21T05:00:00.000Z|00001|vlog|INFO|opened log file /var/log/openvswitch/ovs-vswitchd.log\n"
THREAD = "2026-11-21T05:00:00.000Z|00001|dpif_netlink(handler5)|DBG|added flow\n"
WORDS = _line("received NAK error=95 - eswitch: unsupported match key", module="netlink_socket")
NO_ENTRY, INVALID = "No such file or directory", "Invalid argument"
MISMATCH = _line("Flow API provider mismatch between ingress (p0) and egress (p1) ports")
OTHER = _put("d62b30e5-43bd-406d-a2f4-3d5a41e4aa3b")
LOGS = {
    **{error: _failed(error=error) for error in (INVALID, NO_ENTRY, "No space left on device")},
    "a failure without a reason": _failed(),
    "the failure of another port": _failed("p1", INVALID),
    "a reason before the failure": MISMATCH + _failed(),
    "an unknown key": _line("offloading isn't supported, unknown attribute") + _failed(),
    "words of the driver": WORDS + _failed(),
    "words of the driver, a line of another thread, the failure": WORDS + THREAD + _failed(error=INVALID),
    "words of the driver, another line of the thread, the failure": WORDS
    + _line("added flow", module="dpif_netlink")
    + _failed(error=INVALID),
    "an earlier process failed": _failed(error=INVALID) + START,
    "this process failed": START + _failed(error=INVALID),
    "another thread began since": _failed(error=INVALID) + THREAD,
    "a line that names the megaflow": 2 * _failed(error=INVALID) + 2 * _put(UFID) + OTHER,
    "a line that names the megaflow, no entry": _failed(error=NO_ENTRY) + _put(UFID, NO_ENTRY),
    "a line that names another megaflow": OTHER,
    "a failure of the datapath itself": _put(UFID, "File exists", module="dpif"),
}


def test_a_log_as_a_reason(*, update_golden: bool) -> None:
    found = {title: case(megaflow("dp:ovs"), evidence=Evidence(host(), logs=(log,))) for title, log in LOGS.items()}
    assert_recorded("reasons/log.txt", {title: shown(one) for title, one in found.items()}, update=update_golden)


def test_a_refusal_comes_once_with_the_port_of_the_failure_in_its_thread_and_its_last_line() -> None:
    first, again = _line("unsupported put action type: 13"), _line("unsupported put action type: 13", level="WARN")
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


def test_each_kind_of_line_has_a_source_in_open_vswitch() -> None:
    assert {SOURCES[note.source].partition("/")[0] for note in LOG_PATTERNS} == {"lib"}
    assert all("()" in SOURCES[note.source] for note in LOG_PATTERNS)


def test_the_log_shows_a_kernel_without_chains_until_the_next_start() -> None:
    refused = _line("flow_put: recirc_id sharing not supported") + _failed()
    assert refuses_chains(refused)
    assert not refuses_chains(refused + START)
    assert not refuses_chains(_failed())
