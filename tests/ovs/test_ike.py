"""IPsec with real IKE daemons: `doctor` has the cause of a mistake in one sentence.

All causes are in tests/unit/datapath/test_ike_log.py. Each end has ovs-monitor-ipsec and strongSwan, with a journal of
its own. The kernel of the host need not have ESP: that the keys differ is seen before there is an SA.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.command_line import XENOOVS
from tests.machines import IPSEC_MONITOR
from tests.ovs.dummy import start_dummy_as_system
from tests.patience import eventually
from tests.probe_support import two_namespaces
from xenoovs.lab.host import kill_and_wait, processes_in
from xenoovs.lab.private_ovs import PrivateOvs, start_database, stop_private_ovs
from xenoovs.switch.process import try_run

# A journal, /etc and /run of its own, as on a host of its own: see syslog(3) for /dev/log.
_APART = """\
mount -t tmpfs tmpfs /run
mkdir -p /run/dev /run/systemd/journal /run/log/journal /run/upper /run/work
for file in null urandom random; do touch /run/dev/$file; mount --bind /dev/$file /run/dev/$file; done
ln -s /run/systemd/journal/dev-log /run/dev/log
mount --rbind /run/dev /dev
mount -t overlay overlay -o lowerdir=/etc,upperdir=/run/upper,workdir=/run/work /etc
mkdir -p /etc/ipsec.d/cacerts
/lib/systemd/systemd-journald &
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class IkeEnd:
    """One end: its Open vSwitch, whose ports ovs-monitor-ipsec follows. `inside`: runs a program with its files."""

    ovs: PrivateOvs
    inside: tuple[str, ...]

    def row_of_sa(self, config: Path) -> tuple[str, str]:
        """State and text of the row of SAs in `xenoovs doctor`, which comes with the policy."""
        argv = [*self.inside, str(XENOOVS), "doctor", str(config), "--db", self.ovs.db, "-o", "json"]
        rows = json.loads(try_run(argv).stdout)["checks"]
        return next(((row["state"], row["seen"]) for row in rows if row["check"] == "IPsec SA"), ("", ""))

    def add_port(self, name: str, local: str, remote: str, key: str) -> None:
        """Add a Geneve port to a remote, with a pre-shared key."""
        options = {"remote_ip": remote, "local_ip": local, "key": "flow", "psk": key}
        words = (f"options:{key}={value}" for key, value in options.items())
        self.ovs.vsctl("add-port", "ovsbr1", name, "--", "set", "interface", name, "type=geneve", *words)

    def connect(self, port: str) -> None:
        """Let the IKE daemon make SAs for a port (ipsec(8), `up`), if both daemons have begun."""
        lines = try_run([*self.inside, "ipsec", "status"]).stdout.splitlines()
        for name in {line.split("{")[0].strip() for line in lines if line.startswith(f"{port}-out")}:
            try_run([*self.inside, "ipsec", "up", name], timeout_s=60.0)


@contextmanager
def ike_end(directory: Path, netns: str) -> Iterator[IkeEnd]:
    ovs = PrivateOvs(directory / "ovs")
    ovs.directory.mkdir(parents=True)
    start_database(ovs, netns=netns)
    start_dummy_as_system(ovs, netns)
    ovs.vsctl("add-br", "ovsbr1", "--", "set", "bridge", "ovsbr1", "datapath_type=system")
    for port in ("p0", "p1"):
        ovs.vsctl("add-port", "ovsbr1", port, "--", "set", "interface", port, "type=dummy")
    # Not `ip netns exec`: its /sys has no cgroups, which the journal needs.
    inside = ["nsenter", f"--net=/run/netns/{netns}", "unshare", "--mount", "sh", "-ec", _APART, "sh"]
    words = [IPSEC_MONITOR, ovs.db, "--ike-daemon=strongswan", f"--log-file={directory}/monitor.log"]
    output = subprocess.DEVNULL
    monitor = subprocess.Popen([*inside, *words], env={**os.environ, **ovs.env}, stdout=output, stderr=output)
    try:
        yield IkeEnd(ovs, ("nsenter", f"--mount=/proc/{monitor.pid}/ns/mnt", f"--net=/run/netns/{netns}"))
    finally:
        monitor.terminate()
        monitor.wait()
        kill_and_wait(set(processes_in(netns)) - set(ovs.pids()))
        stop_private_ovs(ovs)


CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
tunnels:
  - {name: gnv0, type: geneve, local: 192.0.2.1, key: 5001, ipsec: {psk_file: /nowhere}}
services:
  - name: web
    vip: 10.3.10.45
    backends:
      - {name: b1, mac: 02:00:00:00:0d:01, egress: gnv0, remote: 192.0.2.2, weight: 1}
"""


def test_doctor_says_why_the_ike_daemon_makes_no_sa(tmp_path: Path) -> None:
    configs = [tmp_path / "one.yaml", tmp_path / "two.yaml"]
    configs[0].write_text(CONFIG)
    there = CONFIG.replace("192.0.2.2,", "192.0.2.9,").replace("192.0.2.1,", "192.0.2.2,")
    configs[1].write_text(there.replace("192.0.2.9,", "192.0.2.1,"))
    with (
        two_namespaces("ike") as (near, far),
        ike_end(tmp_path / "1", near) as one,
        ike_end(tmp_path / "2", far) as two,
    ):
        one.add_port("gnv0-c0000202", "192.0.2.1", "192.0.2.2", "a key")
        two.add_port("gnv0-c0000201", "192.0.2.2", "192.0.2.1", "another")
        found = list[tuple[str, str]]()

        def is_named() -> bool:
            # The end that answers sees most.
            two.connect("gnv0-c0000201")
            found.append(one.row_of_sa(configs[0]))
            return ": its pre-shared key is another one (at " in found[-1][1]

        eventually(is_named, "the cause")
        assert (found[-1][0], found[-1][1].startswith("none from 192.0.2.1: ")) == ("wrong", True)
        # The other end is refused, and gets no reason.
        why = "only its own log has the reason"
        eventually(lambda: why in two.row_of_sa(configs[1])[1], why)
