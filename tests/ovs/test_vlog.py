"""Log levels of a real ovs-vswitchd are raised for a moment, and are as before whatever happens meanwhile."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ovs.dummy import DummyBridge, DummyOvs, tc_module, udp_packet
from xenoovs.errors import SwitchError
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_vswitchd, stop_process
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.vlog import OffloadLog

_PROGRAM = """
import os, signal, sys
from pathlib import Path
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.vlog import OffloadLog

rundir = Path(sys.argv[1])
with OffloadLog(Endpoint(f"unix:{rundir}/db.sock", rundir)).raised():
    os.kill(os.getpid(), getattr(signal, sys.argv[2]))
"""


def kill_listener(ovs: PrivateOvs, name: str) -> int:
    """The exit status of a listener that sends the signal `name` to itself while the levels are raised."""
    argv = [sys.executable, "-c", _PROGRAM, str(ovs.directory), name]
    return subprocess.run(argv, check=False, capture_output=True).returncode


def _listener(ovs: PrivateOvs) -> OffloadLog:
    return OffloadLog(Endpoint(ovs.db, ovs.directory))


def _unusual(ovs: PrivateOvs) -> str:
    """Levels that an operator has set by himself; the text of `vlog/list`."""
    module = tc_module(ovs)
    ovs.appctl("vlog/set", "tc:file:err", f"{module.removesuffix('_tc')}:file:dbg", "dpif_netlink:syslog:warn")
    ovs.appctl("vlog/disable-rate-limit", module)
    return ovs.appctl("vlog/list")


def _notes(ovs: PrivateOvs) -> list[Path]:
    return list(ovs.directory.glob("xenoovs-*.json"))


def test_levels_are_raised_inside_and_as_before_after(own_ovs: DummyOvs) -> None:
    ovs = own_ovs.ovs
    before = _unusual(ovs)
    with _listener(ovs).raised():
        inside = {line.split()[0]: line for line in ovs.appctl("vlog/list").splitlines()}
        assert {inside["tc"].split()[3], inside[tc_module(ovs)].split()[3]} == {"DBG"}
        assert "rate limiting disabled" in inside["tc"]
        assert inside["bridge"].split()[1:] == ["OFF", "INFO", "INFO"]
    assert ovs.appctl("vlog/list") == before
    with pytest.raises(ZeroDivisionError), _listener(ovs).raised():
        raise ZeroDivisionError
    assert kill_listener(ovs, "SIGINT") == -signal.SIGINT
    twice = pytest.raises(SwitchError, match="another xenoovs")
    with _listener(ovs).raised(), twice, _listener(ovs).raised():
        pytest.fail("both raised the levels")
    assert ovs.appctl("vlog/list") == before
    assert _notes(ovs) == []
    ovs.appctl("vlog/close")
    with pytest.raises(SwitchError, match="--log-file"), _listener(ovs).raised():
        pytest.fail("levels were raised for nobody")
    assert ovs.appctl("vlog/list") == before


def test_after_a_kill_the_next_run_puts_them_back(own_ovs: DummyOvs) -> None:
    ovs = own_ovs.ovs
    before = _unusual(ovs)
    assert kill_listener(ovs, "SIGKILL") == -signal.SIGKILL
    assert ovs.appctl("vlog/list") != before
    assert _listener(ovs).finish()
    assert ovs.appctl("vlog/list") == before
    assert not _listener(ovs).finish()
    assert _notes(ovs) == []
    kill_listener(ovs, "SIGKILL")
    with _listener(ovs).raised():
        pass
    assert ovs.appctl("vlog/list") == before
    # A daemon that was restarted since keeps its own levels.
    kill_listener(ovs, "SIGKILL")
    stop_process(ovs.pids()[0])
    start_vswitchd(ovs, datapath=Datapath.DUMMY)
    fresh = ovs.appctl("vlog/list")
    assert _listener(ovs).finish()
    assert (ovs.appctl("vlog/list"), _notes(ovs)) == (fresh, [])


def test_a_log_that_was_rotated_but_not_reopened_is_still_heard(own_ovs: DummyOvs) -> None:
    log = own_ovs.ovs.directory / "ovs-vswitchd.log"
    rotated = log.rename(log.with_name("ovs-vswitchd.log-20260701"))
    for is_kept in (True, False):
        if not is_kept:
            rotated.unlink()
        with _listener(own_ovs.ovs).raised() as (_, before):
            assert before.st_size > 0


def test_only_what_is_logged_meanwhile_is_heard(dummy_ovs: DummyOvs, bridge: DummyBridge) -> None:
    listener = _listener(dummy_ovs.ovs)
    bridge.add_flows("priority=1,in_port=p0 actions=output:p1\n")
    with listener.raised():
        pass
    heard = listener.listen(seconds=0, reinstall=True)
    assert "opened log file" not in heard
    bridge.send("p0", [udp_packet("198.18.0.1")])
    assert dummy_ovs.ovs.appctl("dpctl/dump-flows", "-m").count("in_port(p0)") == 1
