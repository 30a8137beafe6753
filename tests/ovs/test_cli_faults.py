"""What goes wrong on the way to a switch: each fault is one readable message, status 1, and no flow changed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, XENOOVS, CommandLine, finish, start
from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.patience import PATIENCE_S
from xenoovs.lab.private_ovs import Datapath, start_vswitchd

pytestmark = pytest.mark.ovs


def test_no_open_vswitch(xenoovs: CommandLine, config: Path, tmp_path: Path) -> None:
    said = xenoovs("apply", config, "--yes", "--db", f"unix:{tmp_path}/db.sock")
    assert said.status == 1
    assert said.err.startswith(f"error: cannot reach Open vSwitch at unix:{tmp_path}/db.sock")
    # It is no service of this host that systemctl could start.
    assert f"If not, start it yourself (the Open vSwitch of {tmp_path} is no service of this host)" in said.err


def test_no_permission(bridge: DummyBridge, config: Path) -> None:
    config.parent.chmod(0o755)
    argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", str(XENOOVS), "plan", str(config)]
    argv += ["--db", bridge.ovs.db]
    said = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert said.returncode == 1
    assert "Traceback" not in said.stderr


def test_bridge_missing(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    config.write_text(SMALL_CONFIG.replace("ovsbr1", "ovsbr9"))
    said = xenoovs("apply", config, "--yes", "--db", bridge.ovs.db)
    assert said.status == 1
    assert "bridge ovsbr9 does not exist (bridges here: ovsbr1; did you mean ovsbr1?)" in said.err
    assert f"`ovs-vsctl --db={bridge.ovs.db} add-br ovsbr9`" in said.err


def test_so_it_is_where_the_environment_names_it(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVS_RUNDIR", str(bridge.ovs.directory))
    config.write_text(SMALL_CONFIG.replace("ovsbr1", "ovsbr9"))
    said = xenoovs("plan", config)
    assert f"`ovs-vsctl --db={bridge.ovs.db} add-br ovsbr9`" in said.err


def test_a_port_on_another_bridge(xenoovs: CommandLine, own_ovs: DummyOvs, config: Path) -> None:
    with own_ovs.bridge("ovsbr1", ports=("p0",)) as one, own_ovs.bridge("ovsbr2", ports=("p1",)):
        said = xenoovs("apply", config, "--yes", "--db", own_ovs.ovs.db)
        assert said.status == 1
        assert "port p1 is on bridge ovsbr2; move it with" in said.err
        assert f"`ovs-vsctl --db={own_ovs.ovs.db} del-port ovsbr2 p1 -- add-port ovsbr1 p1`" in said.err
        assert one.dump_flows() == []


def test_a_refused_bundle_changes_nothing(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    bridge.ovs.vsctl(
        "--", "--id=@t", "create", "Flow_Table", "flow_limit=2", "--", "set", "Bridge", "ovsbr1", "flow_tables:1=@t"
    )
    said = xenoovs("apply", config, "--yes", "--db", bridge.ovs.db)
    assert said.status == 1
    assert "OFPFMFC_TABLE_FULL" in said.err
    assert bridge.dump_flows() == []


def test_the_switch_is_killed_while_apply_runs(own_ovs: DummyOvs, tmp_path: Path) -> None:
    """Whenever it dies: after its restart the table is whole or empty, and apply finishes the work."""
    config = tmp_path / "many.yaml"
    services = "".join(
        f"  - name: s{i}\n    vip: 10.0.{i >> 8}.{i & 255}\n    backends:\n"
        + "".join(f"      - {{name: b{j}, mac: 02:00:00:00:0{j}:01, weight: 1}}\n" for j in range(8))
        for i in range(200)
    )
    config.write_text(f"version: 1\nswitch: {{bridge: ovsbr1, ingress: [p0], egress: p1}}\nservices:\n{services}")
    with own_ovs.bridge() as bridge:
        for delay_s in (0.15, 0.25, 0.3, 0.35):
            process = start("apply", config, "--yes", "--db", bridge.ovs.db)
            time.sleep(delay_s)
            os.kill(own_ovs.ovs.pids()[0], signal.SIGKILL)
            said = finish(process)
            assert said.status in (0, 1)
            assert "Traceback" not in said.err
            start_vswitchd(own_ovs.ovs, datapath=Datapath.DUMMY)
            # A switch that restarts has no flows (they are not kept in the database).
            assert bridge.dump_flows() == []
        assert finish(start("apply", config, "--yes", "--db", bridge.ovs.db)).status == 0
        assert len(bridge.dump_flows()) == 200 * 9 + 2


def test_apply_asks_only_people(bridge: DummyBridge, config: Path) -> None:
    said = finish(start("apply", config, "--db", bridge.ovs.db))
    assert said.status == 64
    assert "--yes" in said.err
    assert bridge.dump_flows() == []


def test_a_user_who_declines_changes_nothing(bridge: DummyBridge, config: Path) -> None:
    ours, theirs = os.openpty()
    os.write(ours, b"n\n")
    argv = [str(XENOOVS), "apply", str(config), "--db", bridge.ovs.db]
    process = subprocess.run(argv, stdin=theirs, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 1
    assert process.stderr.splitlines()[-1].endswith("error: declined")
    assert bridge.dump_flows() == []


def test_ctrl_c(bridge: DummyBridge, config: Path) -> None:
    process = start("status", config, "--watch", "--db", bridge.ovs.db)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    said = finish(process)
    assert said.status == 130
    assert said.err.strip() == "interrupted"


def test_a_reader_that_has_enough(config: Path) -> None:
    process = start("compile", config)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait(timeout=PATIENCE_S) == 1


def test_a_full_disk(config: Path) -> None:
    with Path("/dev/full").open("w") as full:
        argv = [str(XENOOVS), "compile", str(config)]
        said = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=PATIENCE_S)
    assert said.returncode == 1
    assert "No space left on device" in said.stderr
    assert "Traceback" not in said.stderr
