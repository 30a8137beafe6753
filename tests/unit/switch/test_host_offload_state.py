"""Logs and replies of ovs-vswitchd about offload: recorded from 3.1.0; for 3.7 written from its source."""

from __future__ import annotations

import pytest

from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.host import OffloadHistory, OffloadState
from xenoovs.errors import ParseError
from xenoovs.switch.vswitchd import (
    judge_offload,
    parse_flow_limit,
    parse_history,
    parse_learned,
    parse_offload_show,
    parse_version,
)

START = "2026-11-21T04:33:03.201Z|00001|vlog|INFO|opened log file /var/log/openvswitch/ovs-vswitchd.log\n"
BEGUN_3_1 = """\
2026-11-21T04:33:03.285Z|00045|netdev_offload|INFO|netdev: Flow API Enabled
2026-11-21T04:33:03.285Z|00046|tc|INFO|tc: Using policy 'skip_sw'
2026-11-21T04:33:03.285Z|00047|netdev_offload_tc|INFO|init: failed to get ifindex for p1: Operation not supported
2026-11-21T04:33:03.285Z|00048|netdev_offload|INFO|p0: Assigned flow API 'linux_tc'.
"""
BEGUN_3_7 = """\
2026-11-21T04:33:03.285Z|00045|dpif_offload|INFO|Flow HW offload is enabled
2026-11-21T04:33:03.285Z|00048|dpif_offload_tc|INFO|p0: Assigned flow API 'tc'.
"""
HANDLER = "2026-11-21T04:53:48.001Z|00001|dpif(handler2)|WARN|system@ovs-system: failed to put[create]\n"
LIMITED = "system@ovs-system:\n  flows         : (current 7) (avg 6) (max 7) (limit 10000)\n"
COUNTED = LIMITED + "  offloaded flows : 7\n  dump duration : 2ms\n"
STATISTICS = "HW Offload stats:\n     Total                 Enqueued offloads:      0\n"
REFUSED = Unknown("ovs-vswitchd: retrieving offload statistics (Invalid argument)")
NOT_SUPPORTED = Unknown("ovs-vswitchd: retrieving offload statistics (Operation not supported)")
NOTHING = Unknown("it writes no log that can be read")
WHOLE = OffloadHistory(is_complete=True)


def test_history_of_3_1() -> None:
    assert parse_history(START + BEGUN_3_1) == OffloadHistory(
        has_started=True,
        tc_policy="skip_sw",
        providers={"p0": "linux_tc"},
        failures={"p1": "init: failed to get ifindex for p1: Operation not supported"},
        is_complete=True,
    )


def test_history_of_3_7() -> None:
    assert parse_history(START + BEGUN_3_7) == OffloadHistory(
        has_started=True, providers={"p0": "tc"}, is_complete=True
    )


def test_a_start_without_offload() -> None:
    assert parse_history(START) == WHOLE


def test_what_was_before_the_last_start_does_not_count() -> None:
    assert parse_history(START + BEGUN_3_1 + START) == WHOLE


def test_a_log_that_was_rotated_away_is_not_whole() -> None:
    assert parse_history(BEGUN_3_7) == OffloadHistory(has_started=True, providers={"p0": "tc"})


def test_the_first_message_of_another_thread_is_not_the_start() -> None:
    """Each thread numbers its messages from 1: a handler's first message was taken for the start of the daemon."""
    assert parse_history(START + BEGUN_3_7 + HANDLER).providers == {"p0": "tc"}


def test_any_text_is_a_log() -> None:
    assert parse_history("\x00|||\n|00001|\n") == OffloadHistory()


@pytest.mark.parametrize(("text", "limit"), [(LIMITED, 10_000), (LIMITED + LIMITED.replace("10000", "500"), 500)])
def test_flow_limit(text: str, limit: int) -> None:
    assert parse_flow_limit(text) == limit


def test_no_flow_limit() -> None:
    assert isinstance(parse_flow_limit(""), Unknown)


@pytest.mark.parametrize(
    ("shown", "statistics", "history", "is_on"),
    [
        (COUNTED, NOT_SUPPORTED, NOTHING, True),
        (LIMITED, STATISTICS, NOTHING, True),
        (LIMITED, REFUSED, WHOLE, False),
        (LIMITED, NOT_SUPPORTED, OffloadHistory(has_started=True), True),
        (LIMITED, NOT_SUPPORTED, WHOLE, False),
    ],
    ids=["kernel on", "userspace on", "userspace off", "log on", "log off"],
)
def test_offload_up_to_3_6(shown: str, statistics: object, history: object, is_on: bool) -> None:
    state = judge_offload(upcall_show=shown, statistics=statistics, history=history)  # type: ignore[arg-type]
    assert isinstance(state, OffloadState)
    assert state.is_on is is_on
    assert state.evidence


@pytest.mark.parametrize("history", [NOTHING, OffloadHistory()])
def test_without_evidence_the_state_is_unknown(history: object) -> None:
    state = judge_offload(upcall_show=LIMITED, statistics=NOT_SUPPORTED, history=history)  # type: ignore[arg-type]
    assert isinstance(state, Unknown)


def test_offload_show_of_3_7() -> None:
    text = (
        '{"enabled":true,"system@ovs-system":{"priority":["tc","dpdk"],"providers":'
        '{"tc":{"ports":{"p0":{"port_no":1,"ifindex":2},"p1":{"port_no":2,"ifindex":3}}},"dpdk":{"ports":{}}}}}'
    )
    assert parse_offload_show(text) == (True, {"p0": "tc", "p1": "tc"})


def test_offload_show_while_off() -> None:
    assert parse_offload_show('{"enabled":false}') == (False, {})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"reply":"p0","reply-format":"plain"}'])
def test_other_answers_are_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse_offload_show(text)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("ovs-vswitchd (Open vSwitch) 3.1.0\n", "3.1.0"),
        ("ovs-vswitchd (Open vSwitch) 2.17.8+nvidia\nDPDK 20.11.6\n", "2.17.8+nvidia"),
        ("hello\n", None),
    ],
)
def test_version(text: str, version: str | None) -> None:
    assert parse_version(text) == version


def test_learned_macs() -> None:
    rows = ("    1     0  02:00:5e:10:00:02    3", "LOCAL     0  6e:31:c9:8d:1c:41    1")
    text = "\n".join((" port  VLAN  MAC                Age", *rows, ""))
    assert parse_learned(text, {"1": "p0"}) == {"02:00:5e:10:00:02": "p0", "6e:31:c9:8d:1c:41": "LOCAL"}


_STARTED = "2026-11-21T07:03:40.810Z|00001|vlog|INFO|opened log file /x/ovs-vswitchd.log\n"
_ADDED = "2026-11-21T07:03:40.922Z|00042|bridge|INFO|bridge ovsbr1: added interface p0 on port 1\n"
_ENABLED = "2026-11-21T07:03:41.922Z|00045|netdev_offload|INFO|netdev: Flow API Enabled\n"


@pytest.mark.parametrize(
    ("log", "had_ports_before"),
    [
        (_STARTED + _ENABLED + _ADDED, False),
        (_STARTED + _ADDED + _ENABLED, True),
        (_STARTED + _ADDED, False),
        (_STARTED + _ADDED + _ENABLED + _STARTED + _ENABLED + _ADDED, False),
    ],
    ids=["before any port", "on a running daemon", "never", "restarted since"],
)
def test_whether_offload_began_after_the_ports_were_there(log: str, *, had_ports_before: bool) -> None:
    assert parse_history(log).had_ports_before is had_ports_before


@pytest.mark.parametrize("threads", ["", ", using 1 thread", ", using 4 threads"])
def test_offload_that_began_with_several_threads(threads: str) -> None:
    """Open vSwitch 2.17 to 3.6 log the number of threads if n-offload-threads is set; this line was not recognised."""
    assert parse_history(_STARTED + _ENABLED.replace("Enabled", f"Enabled{threads}")).has_started
