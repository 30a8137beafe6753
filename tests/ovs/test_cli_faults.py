"""What goes wrong on the way to a switch: each fault is one readable message, status 1, and no flow changed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, XENOOVS, Command, CommandLine, start
from tests.ovs.dummy import DummyBridge
from tests.patience import PATIENCE_S


def test_no_open_vswitch(xenoovs: CommandLine, config: Path, tmp_path: Path) -> None:
    said = xenoovs("apply", config, "--yes", "--db", f"unix:{tmp_path}/db.sock")
    assert said.status == 1
    assert said.err.startswith(f"error: cannot reach Open vSwitch at unix:{tmp_path}/db.sock")
    # It is no service of this host that systemctl could start.
    assert f"If not, start it yourself (the Open vSwitch of {tmp_path} is no service of this host)" in said.err


def test_bridge_missing(
    xenoovs: CommandLine, on_bridge: Command, bridge: DummyBridge, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text(SMALL_CONFIG.replace("ovsbr1", "ovsbr9"))
    said = on_bridge("apply", config, "--yes")
    assert said.status == 1
    assert "bridge ovsbr9 does not exist (bridges here: ovsbr1; did you mean ovsbr1?)" in said.err
    command = f"`ovs-vsctl --db={bridge.ovs.db} add-br ovsbr9`"
    assert command in said.err
    monkeypatch.setenv("OVS_RUNDIR", str(bridge.ovs.directory))
    assert command in xenoovs("plan", config).err


def test_apply_asks_only_people(on_bridge: Command, bridge: DummyBridge, config: Path) -> None:
    said = on_bridge("apply", config)
    assert (said.status, "--yes" in said.err) == (64, True)
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


def test_a_reader_that_has_enough(config: Path) -> None:
    process = start("validate", "--flows", config)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait(timeout=PATIENCE_S) == 1


def test_a_full_disk(config: Path) -> None:
    with Path("/dev/full").open("w") as full:
        argv = [str(XENOOVS), "validate", "--flows", str(config)]
        said = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=PATIENCE_S)
    assert said.returncode == 1
    assert "No space left on device" in said.stderr
    assert "Traceback" not in said.stderr
