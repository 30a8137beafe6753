"""Ends of tunnels with real IKE daemons: ovs-monitor-ipsec and strongSwan, with files and a journal for each end.

The kernel of the host need not have ESP: all that certificates are about happens before there is an SA.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.command_line import XENOOVS, CommandResult, finish
from tests.machines import IPSEC_MONITOR
from xenoovs.lab.private_ovs import PrivateOvs, start_database, stop_private_ovs
from xenoovs.switch.process import run, try_run

_NEW = ("openssl", "req", "-newkey", "rsa:2048", "-nodes")
# A journal, /etc and /run of its own, as on a host of its own: see syslog(3) for /dev/log.
_APART = """\
mount -t tmpfs tmpfs /run
mkdir -p /run/dev /run/systemd/journal /run/log/journal /run/upper /run/work
for file in null urandom random; do touch /run/dev/$file; mount --bind /dev/$file /run/dev/$file; done
ln -s /run/systemd/journal/dev-log /run/dev/log
mount --rbind /run/dev /dev
mount -t overlay overlay -o lowerdir=/etc,upperdir=/run/upper,workdir=/run/work /etc
mkdir -p /etc/ipsec.d/cacerts
cp "$1" /etc/ipsec.d/cacerts
/lib/systemd/systemd-journald &
shift
exec "$@"
"""


class Authority:
    """An authority that signs certificates, with its files in a directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self.directory, self.file = directory, directory / f"{name}.pem"
        directory.mkdir(parents=True, exist_ok=True)
        to = ("-keyout", directory / f"{name}.key", "-out", self.file)
        run([*_NEW, "-x509", "-days", "30", "-subj", f"/O=xenoovs/CN={name}", *map(str, to)])
        self._key = directory / f"{name}.key"

    def sign(self, name: str) -> Path:
        """Return the file of a certificate; its key is beside it, with the suffix .key."""
        made = self.directory / f"{name}.pem"
        by = ("-x509", "-days", "30", "-CA", str(self.file), "-CAkey", str(self._key))
        extensions = ("-addext", f"subjectAltName=DNS:{name}", "-addext", "basicConstraints=critical,CA:FALSE")
        to = ("-subj", f"/O=xenoovs/CN={name}", "-keyout", str(made.with_suffix(".key")), "-out", str(made))
        run([*_NEW, *by, *extensions, *to])
        return made


@dataclass(frozen=True, slots=True)
class IkeEnd:
    """One end: its Open vSwitch, whose ports ovs-monitor-ipsec follows, and its IKE daemon.

    Attributes:
        netns: its network namespace.
        address: in it.
        monitor: ovs-monitor-ipsec, with the files and the journal of this end.
    """

    ovs: PrivateOvs
    netns: str
    address: str
    monitor: subprocess.Popen[bytes] = field(hash=False)

    @property
    def inside(self) -> list[str]:
        """The words that run a program with the files of this end."""
        return ["nsenter", f"--mount=/proc/{self.monitor.pid}/ns/mnt", f"--net=/run/netns/{self.netns}"]

    def xenoovs(self, command: str, config: Path, *options: str) -> CommandResult:
        """Run a command of xenoovs on this end."""
        argv = [*self.inside, str(XENOOVS), command, str(config), "--db", self.ovs.db, *options]
        pipe = subprocess.PIPE
        return finish(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True))

    def authenticate_by(self, certificate: Path, authority: Path) -> None:
        """Set the files by which this end authenticates itself, and others."""
        files = {"certificate": certificate, "private_key": certificate.with_suffix(".key"), "ca_cert": authority}
        settings = (f"other_config:{key}={path}" for key, path in files.items())
        self.ovs.vsctl("set", "Open_vSwitch", ".", *settings)

    def add_port(self, name: str, remote: str) -> None:
        """Add a Geneve port to a remote."""
        options = {"remote_ip": remote, "local_ip": self.address, "key": "flow"}
        words = (f"options:{key}={value}" for key, value in options.items())
        self.ovs.vsctl("add-port", "ovsbr1", name, "--", "set", "interface", name, "type=geneve", *words)

    def set_known_by(self, port: str, option: str) -> None:
        """Set the one option by which ovs-monitor-ipsec knows the remote of a port."""
        options = (("--", "remove", "interface", port, "options", name) for name in ("psk", "remote_name"))
        words = [word for option_words in options for word in option_words]
        self.ovs.vsctl(*words[1:], "--", "set", "interface", port, f"options:{option}")

    def has_policy(self, remote: str) -> bool:
        """Whether a policy covers what this end sends to the port of Geneve of a remote."""
        said = run(["ip", "-n", self.netns, "xfrm", "policy", "list", "dir", "out"]).stdout
        return f"src {self.address}/32 dst {remote}/32 proto udp dport 6081" in said

    def connect(self, port: str) -> None:
        """Let the IKE daemon make SAs for a port (ipsec(8), `up`), if both daemons have begun."""
        lines = self.status.splitlines()
        # A change of the port has a new number, and the old connection goes.
        names = sorted(line.split("{")[0].strip() for line in lines if line.startswith(f"{port}-out"))
        for name in names[-1:]:
            try_run([*self.inside, "ipsec", "up", name], timeout_s=60.0)

    @property
    def status(self) -> str:
        """What the IKE daemon says of its SAs (ipsec(8), `status`)."""
        return try_run([*self.inside, "ipsec", "status"]).stdout

    @property
    def log(self) -> str:
        """What the IKE daemon has logged."""
        return try_run([*self.inside, "journalctl", "-t", "charon", "-o", "cat"]).stdout


@contextmanager
def ike_ends(directory: Path, authority: Path, number: int) -> Iterator[tuple[IkeEnd, ...]]:
    """Ends at 192.0.2.1, 192.0.2.2 ..., each with a cable to the first one; all trust the authority."""
    names = [f"xoike{os.getpid() % 100000}n{place}" for place in range(1, number + 1)]
    first, *others = names
    ends = list[IkeEnd]()
    try:
        for name in names:
            run(["ip", "netns", "add", name])
            run(["ip", "-n", name, "link", "set", "lo", "up"])
        run(["ip", "-n", first, "address", "add", "192.0.2.1/32", "dev", "lo"])
        for place, name in enumerate(others, start=2):
            for words in (
                f"-n {first} link add u{place} type veth peer name p1 netns {name}",
                f"-n {name} address add 192.0.2.{place}/24 dev p1",
                f"-n {name} link set p1 up",
                f"-n {first} link set u{place} up",
                f"-n {first} route add 192.0.2.{place} dev u{place} src 192.0.2.1",
            ):
                run(["ip", *words.split()])
        for place, name in enumerate(names, start=1):
            ends.append(_start(directory / str(place), name, f"192.0.2.{place}", authority))
        yield tuple(ends)
    finally:
        for end in ends:
            end.monitor.terminate()
            end.monitor.wait()
        for name in names:
            pids = try_run(["ip", "netns", "pids", name]).stdout.split()
            try_run(["kill", "-9", *pids] if pids else ["true"])
        for end in ends:
            stop_private_ovs(end.ovs)
        for name in names:
            try_run(["ip", "netns", "delete", name])


def _start(directory: Path, netns: str, address: str, authority: Path) -> IkeEnd:
    ovs = PrivateOvs(directory / "ovs")
    ovs.directory.mkdir(parents=True)
    start_database(ovs, netns=netns)
    files = [f"--pidfile={ovs.directory}/ovs-vswitchd.pid", f"--log-file={ovs.directory}/ovs-vswitchd.log"]
    # ovs-vswitchd's own dummy stands in for the kernel's datapath: no packet of a client is sent here.
    argv = ["ovs-vswitchd", ovs.db, "--enable-dummy=system", "-vconsole:off", *files, "--detach", "--no-chdir"]
    run(["ip", "netns", "exec", netns, *argv], env=ovs.env)
    ovs.vsctl("add-br", "ovsbr1", "--", "set", "bridge", "ovsbr1", "datapath_type=system")
    for port in ("p0", "p1"):
        ovs.vsctl("add-port", "ovsbr1", port, "--", "set", "interface", port, "type=dummy")
    # Not `ip netns exec`: its /sys has no cgroups, which the journal needs.
    inside = ["nsenter", f"--net=/run/netns/{netns}", "unshare", "--mount", "sh", "-ec", _APART, "sh"]
    inside.append(str(authority))
    log = directory / "monitor.out"
    with log.open("wb") as output:
        monitor = subprocess.Popen(
            [*inside, IPSEC_MONITOR, ovs.db, "--ike-daemon=strongswan", f"--log-file={directory}/monitor.log"],
            env={**os.environ, **ovs.env},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    return IkeEnd(ovs, netns, address, monitor)
