"""Log levels of a real ovs-vswitchd are raised for a moment, and are as before whatever happens meanwhile."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.ovs.dummy import DummyBridge, DummyOvs, udp_packet
from tests.ovs.killed import kill_listener
from xenoovs.errors import SwitchError
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_vswitchd, stop_process
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.vlog import OffloadLog

pytestmark = pytest.mark.ovs


def _listener(ovs: PrivateOvs) -> OffloadLog:
    return OffloadLog(Endpoint(ovs.db, ovs.directory))


def _unusual(ovs: PrivateOvs) -> str:
    """Levels that an operator has set by himself; the text of `vlog/list`."""
    ovs.appctl("vlog/set", "tc:file:err", "netdev_offload:file:dbg", "dpif_netlink:syslog:warn")
    ovs.appctl("vlog/disable-rate-limit", "netdev_offload_tc")
    return ovs.appctl("vlog/list")


def _notes(ovs: PrivateOvs) -> list[Path]:
    return list(ovs.directory.glob("xenoovs-*.json"))


def test_levels_are_raised_inside_and_as_before_after(own_ovs: DummyOvs) -> None:
    ovs = own_ovs.ovs
    before = _unusual(ovs)
    with _listener(ovs).raised():
        inside = {line.split()[0]: line for line in ovs.appctl("vlog/list").splitlines()}
        assert {inside["tc"].split()[3], inside["netdev_offload_tc"].split()[3]} == {"DBG"}
        assert "rate limiting disabled" in inside["tc"]
        assert inside["bridge"].split()[1:] == ["OFF", "INFO", "INFO"]
    assert ovs.appctl("vlog/list") == before
    assert _notes(ovs) == []


def test_an_error_inside_changes_nothing_of_that(own_ovs: DummyOvs) -> None:
    before = _unusual(own_ovs.ovs)
    with pytest.raises(ZeroDivisionError), _listener(own_ovs.ovs).raised():
        raise ZeroDivisionError
    assert own_ovs.ovs.appctl("vlog/list") == before


def test_nor_does_ctrl_c(own_ovs: DummyOvs) -> None:
    before = _unusual(own_ovs.ovs)
    assert kill_listener(own_ovs.ovs, "SIGINT") == -signal.SIGINT
    assert own_ovs.ovs.appctl("vlog/list") == before


def test_after_a_kill_the_next_run_puts_them_back(own_ovs: DummyOvs) -> None:
    ovs = own_ovs.ovs
    before = _unusual(ovs)
    assert kill_listener(ovs, "SIGKILL") == -signal.SIGKILL
    assert ovs.appctl("vlog/list") != before
    assert _listener(ovs).finish()
    assert ovs.appctl("vlog/list") == before
    assert not _listener(ovs).finish()
    assert _notes(ovs) == []


def test_after_a_kill_raising_again_still_knows_the_levels_of_before(own_ovs: DummyOvs) -> None:
    before = _unusual(own_ovs.ovs)
    kill_listener(own_ovs.ovs, "SIGKILL")
    with _listener(own_ovs.ovs).raised():
        pass
    assert own_ovs.ovs.appctl("vlog/list") == before


def test_a_daemon_that_was_restarted_since_keeps_its_own_levels(own_ovs: DummyOvs) -> None:
    ovs = own_ovs.ovs
    _unusual(ovs)
    kill_listener(ovs, "SIGKILL")
    stop_process(ovs.pids()[0])
    start_vswitchd(ovs, datapath=Datapath.DUMMY)
    fresh = ovs.appctl("vlog/list")
    assert _listener(ovs).finish()
    assert ovs.appctl("vlog/list") == fresh
    assert _notes(ovs) == []


def test_two_at_once_do_not_take_raised_levels_for_those_of_before(own_ovs: DummyOvs) -> None:
    before = _unusual(own_ovs.ovs)
    with (
        _listener(own_ovs.ovs).raised(),
        pytest.raises(SwitchError, match="another xenoovs"),
        _listener(own_ovs.ovs).raised(),
    ):
        pytest.fail("both raised the levels")
    assert own_ovs.ovs.appctl("vlog/list") == before


def test_without_a_log_file_nothing_is_raised(own_ovs: DummyOvs) -> None:
    before = own_ovs.ovs.appctl("vlog/list")
    own_ovs.ovs.appctl("vlog/close")
    with pytest.raises(SwitchError, match="--log-file"), _listener(own_ovs.ovs).raised():
        pytest.fail("levels were raised for nobody")
    assert own_ovs.ovs.appctl("vlog/list") == before


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_log_that_was_rotated_but_not_reopened_is_still_heard(own_ovs: DummyOvs, is_kept: bool) -> None:
    log = own_ovs.ovs.directory / "ovs-vswitchd.log"
    if is_kept:
        log.rename(log.with_name("ovs-vswitchd.log-20260701"))
    else:
        log.unlink()
    with _listener(own_ovs.ovs).raised() as (_, position):
        assert position.offset > 0


def test_only_what_is_logged_meanwhile_is_heard(dummy_ovs: DummyOvs, bridge: DummyBridge) -> None:
    listener = _listener(dummy_ovs.ovs)
    bridge.add_flows("priority=1,in_port=p0 actions=output:p1\n")
    with listener.raised():
        pass
    heard = listener.listen(seconds=0, reinstall=True)
    assert "opened log file" not in heard
    bridge.send("p0", [udp_packet("198.18.0.1")])
    assert dummy_ovs.ovs.appctl("dpctl/dump-flows", "-m").count("in_port(p0)") == 1
