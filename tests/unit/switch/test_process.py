"""The one subprocess: exit status, time limit, missing program, and bytes that are no text."""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from xenoovs.datapath.fact import Unknown
from xenoovs.errors import (
    BridgeMissing,
    BundleRejected,
    CommandFailed,
    CommandMissing,
    CommandTimeout,
    OpenFlowVersionDisabled,
    ParseError,
    SwitchError,
    SwitchUnreachable,
    SystemFailure,
)
from xenoovs.switch.devices import parse_sysctls
from xenoovs.switch.endpoint import Endpoint, find_endpoint
from xenoovs.switch.netns import Netns
from xenoovs.switch.process import run, try_run
from xenoovs.switch.stderr import lift, lift_refusal
from xenoovs.switch.watchdog import RollbackWatchdog, run_detached


def _python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_stdout_and_stderr_are_kept_apart() -> None:
    done = run(_python("import sys; print('out'); print('err', file=sys.stderr)"))
    assert (done.stdout, done.stderr, done.exit_code) == ("out\n", "err\n", 0)


def test_a_failure_shows_the_stderr_of_the_program() -> None:
    with pytest.raises(CommandFailed, match="failed with status 3: the reason") as caught:
        run(_python("import sys; print('the reason', file=sys.stderr); sys.exit(3)"))
    assert caught.value.exit_code == 3


def test_a_program_that_does_not_end() -> None:
    with pytest.raises(CommandTimeout) as caught:
        run(_python("import time; time.sleep(60)"), timeout_s=0.1)
    assert caught.value.retryable


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(CommandMissing, match="nosuch-program is not installed"):
        run(["nosuch-program"])


def test_names_beyond_ascii_go_in_and_come_out() -> None:
    """Whatever the locale of the user: the tools of Open vSwitch write UTF-8."""
    echo = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"
    assert run(_python(echo), stdin="output:é1").stdout == "output:é1"


def test_bytes_that_are_no_text_do_no_harm() -> None:
    assert try_run(_python("import sys; sys.stdout.buffer.write(b'a\\xffb')")).stdout == "a\\xffb"


def test_a_host_without_descriptors_is_an_error_that_may_pass() -> None:
    """The agent retries its round later; an unhandled OSError ended the agent."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(SystemFailure, match="true cannot be started: Too many open files") as failed:
            run(["true"])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert failed.value.retryable


def test_an_answer() -> None:
    assert Netns().ask("echo", "hello") == "hello\n"


def test_a_program_that_is_not_installed() -> None:
    assert Netns().ask("no-such-program") == Unknown("no-such-program is not installed")


def test_a_program_that_fails_is_quoted() -> None:
    assert Netns().ask("cat", "/no/such/file") == Unknown(
        "`cat /no/such/file`: cat: /no/such/file: No such file or directory"
    )


def test_text_that_is_not_understood() -> None:
    answer = Netns().read(("echo", "hello"), parse_sysctls)
    assert isinstance(answer, Unknown)
    assert answer.reason.startswith("not understood: ")


def test_inside_a_namespace() -> None:
    argv = Netns(Path("/run/netns/x")).argv("tc", "qdisc")
    assert argv == ["nsenter", "--net=/run/netns/x", "tc", "qdisc"]


def test_the_larger_one_of_all_and_device_works() -> None:
    assert parse_sysctls("1\n0\n0\n2\n0\n0\n") == {"arp_ignore": 1, "arp_announce": 2, "rp_filter": 0}


@pytest.mark.parametrize("text", ["", "1\n0\n", "1\n0\n0\n2\n0\nx\n"])
def test_other_numbers_of_lines_are_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse_sysctls(text)


@pytest.mark.parametrize(
    ("db", "rundir", "wanted"),
    [
        (None, None, Endpoint("unix:/var/run/openvswitch/db.sock", Path("/var/run/openvswitch"))),
        (None, "/x", Endpoint("unix:/x/db.sock", Path("/x"))),
        ("unix:/x/db.sock", None, Endpoint("unix:/x/db.sock", Path("/x"))),
        ("unix:/x/db.sock", "/y", Endpoint("unix:/x/db.sock", Path("/y"))),
        ("tcp:192.0.2.1:6640", None, Endpoint("tcp:192.0.2.1:6640", None)),
        ("tcp:192.0.2.1:6640", "/y", Endpoint("tcp:192.0.2.1:6640", Path("/y"))),
        ("tcp:[2001:db8::1]:6640", None, Endpoint("tcp:[2001:db8::1]:6640", None)),
        ("tcp:a:1,tcp:b:1", None, Endpoint("tcp:a:1,tcp:b:1", None)),
        ("unix:/x/db.sock,unix:/y/db.sock", None, Endpoint("unix:/x/db.sock,unix:/y/db.sock", None)),
    ],
)
def test_where_it_is(db: str | None, rundir: str | None, wanted: Endpoint) -> None:
    assert find_endpoint(db=db, env={} if rundir is None else {"OVS_RUNDIR": rundir}) == wanted


@pytest.mark.parametrize("db", ["", "/x/db.sock", "unix:", "unix:db.sock", "tcp:host", "ssl:192.0.2.1:6640", "pssl:1"])
def test_a_db_of_another_form(db: str) -> None:
    with pytest.raises(SwitchError, match=r"expected unix:/path/db\.sock or tcp:ADDRESS:PORT"):
        find_endpoint(db=db, env={})


def test_database_and_run_directory_may_be_of_two_switches_only_if_both_are_set() -> None:
    assert not find_endpoint(db="unix:/x/db.sock", env={}).is_split
    assert not find_endpoint(db=None, env={"OVS_RUNDIR": "/x"}).is_split
    assert find_endpoint(db="unix:/x/db.sock", env={"OVS_RUNDIR": "/y"}).is_split


def test_sockets_are_never_searched_in_other_directories() -> None:
    assert find_endpoint(db=None, env={"OVS_RUNDIR": "/x"}).management("br0") == "unix:/x/br0.mgmt"
    with pytest.raises(SwitchUnreachable, match="set OVS_RUNDIR"):
        find_endpoint(db="tcp:192.0.2.1:6640", env={}).management("br0")


@pytest.mark.parametrize("bridge", ["", "../br0", "a/b"])
def test_a_name_that_no_bridge_has(tmp_path: Path, bridge: str) -> None:
    (tmp_path / "br0.mgmt").touch()
    with pytest.raises(BridgeMissing) as caught:
        Endpoint("unix:/x/db.sock", tmp_path).management(bridge)
    assert caught.value.present == ("br0",)


_LINES = ("add cookie=0x1,table=0,priority=1 actions=output:p1", "add cookie=0x1,table=5,priority=2 actions=drop")
_COMMIT = """\
Error OFPBFC_MSG_FAILED for: OFPT_BUNDLE_CONTROL (OF1.4) (xid=0x9):
 bundle_id=0 type=COMMIT_REQUEST flags=atomic ordered
ovs-ofctl: talking to unix:/run/o/br0.mgmt (Protocol error)
"""
_DECODE_ERROR = """\
Error OFPBAC_BAD_SET_ARGUMENT for: 2026-11-21T04:12:33Z|00001|meta_flow|WARN|destination field nw_proto is not writable
2026-11-21T04:12:33Z|00002|ofp_actions|WARN|bad action at offset 0 (OFPBAC_BAD_SET_ARGUMENT):
00000000  ff ff 00 18 00 00 23 20-00 07 00 07 00 00 0c 01
OFPT_FLOW_MOD (OF1.4) (xid=0x6): ***decode error: OFPBAC_BAD_SET_ARGUMENT***
ovs-ofctl: talking to unix:/run/o/br0.mgmt (Protocol error)
"""


@pytest.fixture
def endpoint(tmp_path: Path) -> Endpoint:
    """An Open vSwitch with the bridge br0."""
    (tmp_path / "br0.mgmt").touch()
    return Endpoint(f"unix:{tmp_path}/db.sock", tmp_path)


def _failed(stderr: str) -> CommandFailed:
    return CommandFailed(argv=["ovs-ofctl"], exit_code=1, stdout="", stderr=stderr)


@pytest.mark.parametrize(
    ("stderr", "error", "message"),
    [
        (
            "Error OFPBAC_BAD_OUT_GROUP for: OFPT_FLOW_MOD (OF1.4) (xid=0x7): ADD priority=1,ip,nw_dst=1.1.1.1 "
            f"actions=set_field:00:00:00:00:00:01->eth_dst,group:9\n{_COMMIT}",
            "OFPBAC_BAD_OUT_GROUP",
            "ADD priority=1,ip,nw_dst=1.1.1.1 actions=set_field:00:00:00:00:00:01->eth_dst,group:9",
        ),
        (
            f"Error OFPFMFC_TABLE_FULL for: OFPT_FLOW_MOD (OF1.4) (xid=0x6): ADD priority=2,ip actions=drop\n{_COMMIT}",
            "OFPFMFC_TABLE_FULL",
            "ADD priority=2,ip actions=drop",
        ),
        (_DECODE_ERROR, "OFPBAC_BAD_SET_ARGUMENT", "a flow-mod that ovs-ofctl cannot show"),
        ("ovs-ofctl: -:1: nosuch: output to unknown port\n", None, f"{_LINES[0]} (nosuch: output to unknown port)"),
        (
            "ovs-ofctl: -:2: actions are invalid with specified match (OFPBIC_BAD_TABLE_ID)\n",
            "OFPBIC_BAD_TABLE_ID",
            f"{_LINES[1]} (actions are invalid with specified match)",
        ),
    ],
)
def test_refusals(endpoint: Endpoint, stderr: str, error: str | None, message: str) -> None:
    raised = lift_refusal(_failed(stderr), endpoint=endpoint, bridge="br0", lines=_LINES)
    assert isinstance(raised, BundleRejected)
    assert (raised.error, raised.message) == (error, message)
    assert "no flow was changed" in str(raised)


def test_a_bridge_with_older_openflow_versions(endpoint: Endpoint) -> None:
    stderr = (
        "2026-11-21T03:47:59Z|00001|vconn|WARN|unix:/run/o/br0.mgmt: version negotiation failed "
        "(we support version 0x05, peer supports versions 0x01, 0x04)\n"
        "ovs-ofctl: unix:/run/o/br0.mgmt: failed to connect to socket (Broken pipe)\n"
    )
    raised = lift(_failed(stderr), endpoint=endpoint, bridge="br0")
    assert isinstance(raised, OpenFlowVersionDisabled)
    assert raised.spoken == ("OpenFlow10", "OpenFlow13")
    assert "`ovs-vsctl add bridge br0 protocols OpenFlow14`" in str(raised)


@pytest.mark.parametrize(
    ("stderr", "advice"),
    [
        ("ovs-ofctl: connecting to unix:/run/o/br0.mgmt (Connection refused)\n", "systemctl start"),
        ("ovs-ofctl: connecting to unix:/run/o/br0.mgmt (No such file or directory)\n", "systemctl start"),
        ("ovs-ofctl: connecting to unix:/run/o/br0.mgmt (Permission denied)\n", "sudo"),
        ("ovs-ofctl: talking to unix:/run/o/br0.mgmt (End of file)\n", "try again"),
        ("ovs-ofctl: talking to unix:/run/o/br0.mgmt (Connection reset by peer)\n", "try again"),
        (
            "2026-11-21T04:12:34Z|00001|vconn_stream|ERR|send: Broken pipe\n"
            "ovs-ofctl: talking to unix:/run/o/br0.mgmt (Broken pipe)\n",
            "try again",
        ),
        (
            "2026-11-21T09:59:54Z|00001|vconn_stream|ERR|connection dropped mid-packet\n"
            "ovs-ofctl: OpenFlow receive failed (Protocol error)\n",
            "try again",
        ),
        (
            "2026-11-21T03:47:59Z|00001|daemon_unix|WARN|/run/o/ovs-vswitchd.pid: open: No such file or directory\n"
            'ovs-appctl: cannot read pidfile "/run/o/ovs-vswitchd.pid" (No such file or directory)\n',
            "systemctl start",
        ),
        ('ovs-appctl: cannot read pidfile "/run/o/ovs-vswitchd.pid" (No such process)\n', "systemctl start"),
        ('ovs-appctl: cannot connect to "/run/o/ovs-vswitchd.9.ctl" (Permission denied)\n', "sudo"),
    ],
)
def test_an_unreachable_switch(endpoint: Endpoint, stderr: str, advice: str) -> None:
    raised = lift_refusal(_failed(stderr), endpoint=endpoint, bridge="br0", lines=_LINES)
    assert isinstance(raised, SwitchUnreachable)
    assert advice in str(raised)


def test_a_bridge_that_is_not_there(endpoint: Endpoint) -> None:
    stderr = "ovs-ofctl: connecting to unix:/run/o/br7.mgmt (No such file or directory)\n"
    raised = lift(_failed(stderr), endpoint=endpoint, bridge="br7")
    assert isinstance(raised, BridgeMissing)
    assert raised.present == ("br0",)


def test_anything_else_stays_what_it_is(endpoint: Endpoint) -> None:
    failed = _failed("nobr: unknown bridge\novs-appctl: ovs-vswitchd: server returned an error\n")
    assert lift(failed, endpoint=endpoint) is failed


KILLED = """
import os, time
from pathlib import Path
from xenoovs.switch.watchdog import run_detached

def work():
    print("begun", flush=True)
    time.sleep(0.5)
    print("done", flush=True)

run_detached(work)
"""


def test_a_result_comes_back() -> None:
    assert run_detached(lambda: {"pid": os.getpid()})["pid"] != os.getpid()


def test_an_error_comes_back_with_its_hint_and_commands() -> None:
    def fail() -> None:
        error = SwitchError("no such bridge")
        error.hint, error.commands = "try another", ("ovs-vsctl show",)
        raise error

    with pytest.raises(SwitchError, match="no such bridge") as raised:
        run_detached(fail)
    assert (raised.value.hint, raised.value.commands) == ("try another", ("ovs-vsctl show",))


def test_an_error_of_the_system_comes_back() -> None:
    with pytest.raises(SwitchError, match="No such file or directory: '/nowhere/file'"):
        run_detached(lambda: Path("/nowhere/file").write_text(""))


def test_the_end_of_the_second_process_is_an_error() -> None:
    with pytest.raises(SwitchError, match="was killed"):
        run_detached(lambda: os.kill(os.getpid(), signal.SIGKILL))


def test_work_goes_on_when_the_first_process_is_killed() -> None:
    with Popen([sys.executable, "-c", KILLED], stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.kill()
        assert process.stdout.read() == "done\n"


def test_a_change_beside_the_rollback_of_the_watchdog_is_rolled_back_too(tmp_path: Path) -> None:
    """A drain round of the first process may end after the rollback by the second process."""
    flows = tmp_path / "flows"
    flows.write_text("before")
    watchdog = RollbackWatchdog(lambda: flows.write_text("before"))
    flows.write_text("change")
    watchdog.limit(0.01)
    select.select([watchdog.ended], [], [])
    flows.write_text("a round that had begun")
    watchdog.undo()
    assert flows.read_text() == "before"


def test_a_confirmed_change_is_not_rolled_back(tmp_path: Path) -> None:
    flows = tmp_path / "flows"
    watchdog = RollbackWatchdog(lambda: flows.write_text("before"))
    flows.write_text("change")
    assert watchdog.keep()
    watchdog.undo()
    assert flows.read_text() == "change"
