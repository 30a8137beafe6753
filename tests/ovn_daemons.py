"""The daemons of a real OVN: databases and ovn-northd in one directory, ovn-controller beside each Open vSwitch."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tests.patience import eventually
from xenoovs.lab.private_ovs import PrivateOvs
from xenoovs.switch.process import run

_SCHEMAS = Path("/usr/share/ovn")
_SLOW_S = 120.0


def start_databases(top: Path) -> None:
    """Start ovsdb-server for both databases, and ovn-northd; their sockets are `nb.sock` and `sb.sock`."""
    for schema, database in (("ovn-nb", "nb"), ("ovn-sb", "sb")):
        run(["ovsdb-tool", "create", str(top / f"{database}.db"), str(_SCHEMAS / f"{schema}.ovsschema")])
    env = {"OVN_RUNDIR": str(top), "OVS_RUNDIR": str(top)}

    def options(daemon: str) -> list[str]:
        files = [f"--pidfile={top}/{daemon}.pid", f"--log-file={top}/{daemon}.log"]
        return [*files, f"--unixctl={top}/{daemon}.ctl", "-vconsole:off", "--detach", "--no-chdir"]

    remotes = [f"--remote=punix:{top}/nb.sock", f"--remote=punix:{top}/sb.sock"]
    databases = [f"--ovnnb-db=unix:{top}/nb.sock", f"--ovnsb-db=unix:{top}/sb.sock"]
    servers = ["ovsdb-server", str(top / "nb.db"), str(top / "sb.db"), *remotes, *options("ovsdb-server")]
    run(servers, env=env, timeout_s=_SLOW_S)
    run(["ovn-northd", *databases, *options("ovn-northd")], env=env, timeout_s=_SLOW_S)


def stop_databases(top: Path) -> None:
    """Kill what `start_databases` has started."""
    for daemon in ("ovn-northd", "ovsdb-server"):
        kill_daemon(top / f"{daemon}.pid")


def chassis_keys(name: str, *, top: Path, underlay: str) -> list[str]:
    """Return columns of table Open_vSwitch that make it a chassis with Geneve (ovn-controller(8))."""
    ids = {
        "system-id": name,
        "ovn-remote": f"unix:{top}/sb.sock",
        "ovn-encap-type": "geneve",
        "ovn-encap-ip": underlay,
    }
    return [f'external_ids:{key}="{value}"' for key, value in ids.items()]


def start_controller(ovs: PrivateOvs, *, netns: str = "") -> None:
    """Start ovn-controller in a network namespace; empty: in this one."""
    here = ovs.directory
    options = [f"--pidfile={here}/ovn-controller.pid", f"--log-file={here}/ovn-controller.log", "-vconsole:off"]
    inside = ["ip", "netns", "exec", netns] if netns else []
    argv = [*inside, "ovn-controller", ovs.db, *options, "--detach", "--no-chdir"]
    run(argv, env={**ovs.env, "OVN_RUNDIR": str(here)}, timeout_s=_SLOW_S)


def stop_controller(ovs: PrivateOvs) -> None:
    """Kill ovn-controller, as a crash does."""
    kill_daemon(ovs.directory / "ovn-controller.pid")


def nbctl(top: Path, words: Iterable[str]) -> str:
    """Run ovn-nbctl(8), and wait until all chassis have the result."""
    argv = ["ovn-nbctl", f"--db=unix:{top}/nb.sock", "--wait=hv", f"--timeout={int(_SLOW_S)}"]
    return run([*argv, *words], timeout_s=_SLOW_S + 5).stdout


def kill_daemon(pid_file: Path) -> None:
    """Kill the process of a pid file, if there is one, and return when it is gone."""
    with suppress(FileNotFoundError, ProcessLookupError, ValueError):
        pid = int(pid_file.read_text())
        os.kill(pid, signal.SIGKILL)
        gone = Path(f"/proc/{pid}")
        eventually(lambda: not gone.exists(), f"{pid_file.stem} ends")
        pid_file.unlink(missing_ok=True)
