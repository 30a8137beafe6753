"""IPsec of tunnels on a real Open vSwitch: keys go into the database unseen, and nothing begins unencrypted.

The kernel of the host need not have ESP: policies are enough to see what is refused, and different keys are seen before
there is an SA. All causes of IKE daemons are in tests/unit/datapath/test_ipsec.py.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from tests.command_line import XENOOVS, CommandLine, finish, start
from tests.machines import IPSEC_MONITOR
from tests.ovs.dummy import ofctl, start_dummy_as_system
from tests.patience import eventually
from tests.probe_support import two_namespaces
from xenoovs.errors import InterfaceMissing, SwitchUnreachable
from xenoovs.lab.host import kill_and_wait, processes_in
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_database, start_private_ovs, stop_private_ovs
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.ovsdb import has_options, read_bridges, write_options
from xenoovs.switch.process import run, try_run

SECRET = "correct horse battery staple"
POLICY = ("src", "192.0.2.1", "dst", "192.0.2.11", "proto", "udp", "dport", "6081", "dir", "out")
CONFIG = """\
version: 1
switch: {{bridge: ovsbr1, ingress: [p0], egress: p1}}
tunnels:
  - {{name: gnv0, type: geneve, local: 192.0.2.1, key: 5001{ipsec}}}
services:
  - name: web
    vip: 10.3.10.45
    backends:
      - {{name: b1, mac: 02:00:00:00:0d:01, egress: gnv0, remote: 192.0.2.11, weight: 1}}
"""


@contextmanager
def _namespace(name: str) -> Iterator[str]:
    run(["ip", "netns", "add", name])
    try:
        for words in ("link set lo up", "link add p0 type veth peer name p1", "link set p0 up", "link set p1 up"):
            run(["ip", "-n", name, *words.split()])
        yield name
    finally:
        try_run(["ip", "netns", "delete", name])


@pytest.fixture(scope="module")
def netns() -> Iterator[str]:
    with _namespace(f"xoipsec{os.getpid() % 100000}") as name:
        yield name


def _add_bridge(ovs: PrivateOvs, datapath: Datapath) -> None:
    ovs.add_bridge("ovsbr1", ["p0", "p1"], datapath=datapath)
    options = ("type=geneve", "options:key=flow", "options:local_ip=192.0.2.1")
    flow, fixed = (("gnv0", "flow"), ("gnv0-c000020b", "192.0.2.11"))
    for name, remote in (flow, fixed):
        words = ("set", "interface", name, *options, f"options:remote_ip={remote}")
        ovs.vsctl("add-port", "ovsbr1", name, "--", *words)


@pytest.fixture(scope="module")
def ovs(netns: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateOvs]:
    found = start_private_ovs(tmp_path_factory.mktemp("ovs"), datapath=Datapath.USERSPACE, netns=netns)
    try:
        _add_bridge(found, Datapath.USERSPACE)
        found.add_bridge("br-ul", [], datapath=Datapath.USERSPACE, secure=False)
        run(["ip", "-n", netns, "address", "add", "192.0.2.1/24", "dev", "br-ul"])
        run(["ip", "-n", netns, "link", "set", "br-ul", "up"])
        yield found
    finally:
        stop_private_ovs(found)


@pytest.fixture(scope="module")
def system(netns: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateOvs]:
    """With a bridge of `datapath_type` system, for which ovs-vswitchd's own dummy stands in: no packet is sent here."""
    found = PrivateOvs(tmp_path_factory.mktemp("system"))
    try:
        start_database(found, netns=netns)
        start_dummy_as_system(found, netns)
        _add_bridge(found, Datapath.KERNEL)
        yield found
    finally:
        stop_private_ovs(found)


def _config(tmp_path: Path, ipsec: str = "") -> Path:
    path = tmp_path / "my.yaml"
    path.write_text(CONFIG.format(ipsec=ipsec))
    return path


def _cover(netns: str) -> None:
    """Add the policy, as an IKE daemon does."""
    run(["ip", "-n", netns, "xfrm", "policy", "add", *POLICY, "tmpl", "proto", "esp", "mode", "transport"])


def _uncover(netns: str) -> None:
    run(["ip", "-n", netns, "xfrm", "policy", "flush"])


@pytest.fixture
def policy(netns: str) -> Iterator[None]:
    _cover(netns)
    yield
    _uncover(netns)


@pytest.fixture
def keyed(tmp_path: Path) -> Path:
    """A config with a pre-shared key."""
    key = tmp_path / "psk"
    key.write_text(SECRET)
    return _config(tmp_path, f", ipsec: {{psk_file: {key}}}")


@contextmanager
def _port_with_key(ovs: PrivateOvs) -> Iterator[None]:
    ovs.vsctl("set", "interface", "gnv0-c000020b", f"options:psk={SECRET}")
    try:
        yield
    finally:
        ovs.vsctl("remove", "interface", "gnv0-c000020b", "options", "psk")


def _serves(ovs: PrivateOvs) -> bool:
    # Table 4 remembers whose clients they were; nothing leads there.
    argv = ["ovs-ofctl", "dump-flows", f"unix:{ovs.directory}/ovsbr1.mgmt", "table=1"]
    return "02:00:00:00:0d:01" in try_run(argv, env=ovs.env).stdout


@pytest.mark.usefixtures("policy")
def test_a_change_that_would_send_unencrypted_is_refused(
    ovs: PrivateOvs, netns: str, keyed: Path, tmp_path: Path, xenoovs: CommandLine
) -> None:
    """Bug: with a key and a policy it was planned, although a userspace datapath bypasses the IPsec of the kernel."""
    text, plain = keyed.read_text(), tmp_path / "plain.yaml"
    plain.write_text(CONFIG.format(ipsec=""))
    selector = "src 192.0.2.1/32 dst 192.0.2.11/32 proto udp dport 6081"
    with _port_with_key(ovs):
        assert f"packets to 192.0.2.11 ({selector})" in _unencrypted(xenoovs, ovs, plain)
        for offload in ("none", "crypto", "packet"):
            keyed.write_text(text.replace("/psk}", f"/psk, offload: {offload}}}"))
            bypassed = "wants IPsec for packets to 192.0.2.11, and a userspace datapath bypasses"
            assert bypassed in _unencrypted(xenoovs, ovs, keyed)
    assert _remotes(ovs) == set()
    _uncover(netns)
    said = xenoovs("plan", plain, "--db", ovs.db)
    assert (said.status, said.err) == (2, "")


def _unencrypted(xenoovs: CommandLine, ovs: PrivateOvs, config: Path) -> str:
    """The message with which `plan` and `apply` refuse it."""
    messages = set[str]()
    for command in (("plan",), ("apply", "--yes")):
        said = xenoovs(command[0], config, "--db", ovs.db, *command[1:], "-o", "json")
        error = json.loads(said.err.splitlines()[-1])["error"]
        assert (said.status, error["code"]) == (1, "would_be_unencrypted")
        messages.add(error["message"])
    (message,) = messages
    return message


def _remotes(ovs: PrivateOvs) -> set[str]:
    """The remotes to which packets of clients go."""
    bridge = f"unix:{ovs.directory}/ovsbr1.mgmt"
    dump = ofctl(ovs, "dump-flows", bridge, "table=1")
    found = re.findall(r"load:(0x[0-9a-f]+)->NXM_NX_TUN_IPV4_DST", dump)
    return {str(IPv4Address(int(text, 16))) for text in found}


@contextmanager
def _reconciling(command: str, config: Path, ovs: PrivateOvs, *, resync: str = "1s") -> Iterator[subprocess.Popen[str]]:
    options = ("--attach",) if command == "controller" else ()
    process = start(command, config, "--db", ovs.db, "--log", "json", "--resync", resync, *options)
    try:
        yield process
    finally:
        process.terminate()
        finish(process)
        ovs.vsctl("del-controller", "ovsbr1")
        finish(start("remove", config, "--db", ovs.db, "--yes"))


@pytest.mark.parametrize("command", ["agent", "controller"])
def test_bug_an_agent_sends_nothing_unencrypted_against_a_policy(
    command: str, ovs: PrivateOvs, netns: str, tmp_path: Path, policy: None
) -> None:
    """It was checked in `plan` and `apply` alone. Backends behind other remotes are served."""
    config = _config(tmp_path)
    other = "      - {name: b2, mac: 02:00:00:00:0d:02, egress: gnv0, remote: 192.0.2.12, weight: 1}\n"
    config.write_text(config.read_text() + other)
    with _reconciling(command, config, ovs) as process:
        eventually(lambda: _remotes(ovs) == {"192.0.2.12"}, "the remote that no policy covers, alone")
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        reasons = (json.loads(line).get("reason", "") for line in lines)
        reason = next(filter(None, reasons))
        assert reason.startswith(
            "packets to 192.0.2.11 would leave unencrypted, although a policy of IPsec covers them "
            "(src 192.0.2.1/32 dst 192.0.2.11/32 proto udp dport 6081)"
        )
        assert reason.endswith("; no clients for web/b1")
        _uncover(netns)
        eventually(lambda: _remotes(ovs) == {"192.0.2.11", "192.0.2.12"}, "both remotes")


@pytest.mark.usefixtures("policy")
def test_bug_a_controller_sees_that_a_port_has_got_its_key(system: PrivateOvs, keyed: Path) -> None:
    """It looked at options of ports only when a port appeared or vanished."""
    with _reconciling("controller", keyed, system) as process:
        assert process.stderr is not None
        reasons = (json.loads(line).get("reason", "") for line in iter(process.stderr.readline, ""))
        assert "would send unencrypted: it has no option psk" in next(filter(None, reasons))
        assert not _serves(system)
        with _port_with_key(system):
            eventually(lambda: _serves(system), "a backend with clients")


def test_bug_an_agent_noticed_a_vanished_policy_at_its_next_comparison_only(
    system: PrivateOvs, netns: str, keyed: Path
) -> None:
    """Until then its packets left unencrypted. Here no comparison comes by itself.

    Its socket stayed where ovs-vswitchd had been, so it noticed no change in another namespace either.
    """

    def move(to: str) -> None:
        system.appctl("exit")
        pid = system.directory / "ovs-vswitchd.pid"
        eventually(lambda: not pid.exists(), "ovs-vswitchd has ended")
        start_dummy_as_system(system, to)

    def follow(place: str) -> None:
        _cover(place)
        eventually(lambda: _serves(system), "a backend with clients")
        _uncover(place)
        eventually(lambda: not _serves(system), "no clients without the policy")

    with _namespace(f"{netns}b") as other, _port_with_key(system):
        try:
            with _reconciling("agent", keyed, system, resync="1h"):
                follow(netns)
                move(other)
                follow(other)
        finally:
            move(netns)


def test_bug_flows_that_are_there_without_a_policy_are_cleartext(
    system: PrivateOvs, netns: str, keyed: Path, xenoovs: CommandLine
) -> None:
    """Packets left unencrypted when the policy vanished, and `verify-offload` and `apply` had nothing to say."""
    db = ("--db", system.db)
    _cover(netns)
    try:
        xenoovs("doctor", keyed, *db, "--fix", "--yes")
        assert xenoovs("apply", keyed, *db, "--yes").status == 0
        said = xenoovs("verify-offload", keyed, *db, "-o", "json")
        assert json.loads(said.out)["cleartext"] == []
        _uncover(netns)
        said = xenoovs("verify-offload", keyed, *db, "-o", "json")
        [found] = json.loads(said.out)["cleartext"]
        assert (said.status, found["remote"], found["policy"]) == (2, "192.0.2.11", None)
        assert found["reason"] == "the config wants IPsec for packets to 192.0.2.11, and no policy covers them"
        said = xenoovs("verify-offload", keyed, *db)
        assert said.out.startswith("CLEARTEXT: UDP port 6081 from 192.0.2.1 to 192.0.2.11 leaves unencrypted")
        assert "no policy covers packets to 192.0.2.11" in _unencrypted(xenoovs, system, keyed)
    finally:
        _uncover(netns)
        system.vsctl("remove", "interface", "gnv0-c000020b", "options", "psk")
        xenoovs("remove", keyed, *db, "--yes")


def test_a_port_without_what_ipsec_needs_gets_no_packets(ovs: PrivateOvs, tmp_path: Path, xenoovs: CommandLine) -> None:
    """Open vSwitch would send them unencrypted, as no policy is made."""
    for ipsec in (f"psk_file: {tmp_path}/psk", "remote_name: dpu7"):
        config = _config(tmp_path, f", ipsec: {{{ipsec}}}")
        for command in (("plan",), ("apply", "--yes")):
            said = xenoovs(command[0], config, "--db", ovs.db, *command[1:])
            message = " ".join(said.err.split())
            assert (said.status, "gnv0-c000020b" in message) == (1, True), message
            assert "would send unencrypted: it has no option" in message
            assert re.search(r"`xenoovs doctor \S+ --fix( --db \S+)?` corrects it", message), message


def test_doctor_makes_a_missing_port_with_its_key(ovs: PrivateOvs, keyed: Path, xenoovs: CommandLine) -> None:
    keyed.write_text(keyed.read_text().replace("192.0.2.11", "192.0.2.12"))
    said = xenoovs("doctor", keyed, "--db", ovs.db, "--fix", "--yes")
    try:
        assert SECRET in ovs.vsctl("get", "interface", "gnv0-c000020c", "options:psk")
        assert SECRET not in said.out + said.err
        ovs.vsctl("set", "interface", "gnv0-c000020c", "options:dst_port=7000", "options:remote_cert=old")
        xenoovs("doctor", keyed, "--db", ovs.db, "--fix", "--yes")
        options = ovs.vsctl("get", "interface", "gnv0-c000020c", "options")
        assert [word in options for word in (SECRET, "dst_port", "remote_cert")] == [True, False, False]
    finally:
        ovs.vsctl("del-port", "ovsbr1", "gnv0-c000020c")


def test_doctor_gives_open_vswitch_the_key_and_shows_it_to_nobody(
    ovs: PrivateOvs, tmp_path: Path, xenoovs: CommandLine
) -> None:
    """Bug: policy and programs had rows only while the port had the key."""
    key = tmp_path / "psk"
    config = _config(tmp_path, f", ipsec: {{psk_file: {key}}}")

    def row(*options: str, check: str = "IPsec key") -> tuple[str, str]:
        said = xenoovs("doctor", config, "--db", ovs.db, "-o", "json", *options)
        assert SECRET not in said.out + said.err
        rows = {row["check"]: (row["state"], row["seen"]) for row in json.loads(said.out)["checks"]}
        assert "IPsec programs" in rows
        return rows[check]

    state, seen = row()
    assert (state, seen.endswith("the pre-shared key cannot be read: No such file or directory")) == ("wrong", True)
    assert row(check="IPsec policy") == ("wrong", "none covers packets to this remote, so they leave unencrypted")
    key.write_text(f"{SECRET}\n")
    key.chmod(0o644)
    assert row() == ("wrong", f"Open vSwitch does not have the key of {key}")
    row("--fix", "--yes")
    assert SECRET in ovs.vsctl("get", "interface", "gnv0-c000020b", "options:psk")
    assert "psk" not in ovs.vsctl("get", "interface", "gnv0", "options")
    assert row() == ("wrong", f"other users of this host can read {key}")
    key.chmod(0o600)
    assert row() == ("ok", "Open vSwitch has it")
    assert SECRET not in (ovs.directory / "ovs-vswitchd.log").read_text()
    key.write_text("another")
    assert row()[0] == "wrong"
    ovs.vsctl("remove", "interface", "gnv0-c000020b", "options", "psk")


def test_options_go_by_ovsdb_alone_and_no_text_has_a_key(ovs: PrivateOvs, tmp_path: Path) -> None:
    """Arguments of a program can be read by every user of the host."""
    endpoint, nowhere = Endpoint(ovs.db, ovs.directory), Endpoint(f"unix:{tmp_path}/db.sock", tmp_path)
    secret, port = 'swordfish "with quotes" \\ and ü', "gnv0-c000020b"
    ovs.vsctl("set", "interface", port, "options:remote_name=old")
    with _port_with_key(ovs):
        assert not has_options(endpoint, port, {"psk": secret})
        write_options(endpoint, port, {"psk": secret}, without=("psk", "remote_name", "remote_cert"))
        assert has_options(endpoint, port, {"psk": secret, "remote_ip": "192.0.2.11"})
        assert not has_options(endpoint, port, {"psk": SECRET})
        assert "remote_name" not in ovs.vsctl("get", "interface", port, "options")
        bridge = next(bridge for bridge in read_bridges(endpoint) if bridge.name == "ovsbr1")
        found = bridge.port(port)
    assert found is not None
    assert (found.options["psk"], "swordfish" in repr(bridge)) == ("(hidden)", False)
    with pytest.raises(InterfaceMissing, match="no interface gnv7"):
        write_options(endpoint, "gnv7", {"psk": secret}, without=())
    with pytest.raises(SwitchUnreachable, match=r"db\.sock") as caught:
        write_options(nowhere, port, {"psk": secret}, without=())
    assert "swordfish" not in str(caught.value)


def test_doctor_reads_the_certificates_that_open_vswitch_names(
    system: PrivateOvs, tmp_path: Path, xenoovs: CommandLine
) -> None:
    """An authority, and the certificate of dpu1 that it signed, as docs/how-to/ipsec.md makes them."""
    config = _config(tmp_path, ", ipsec: {remote_name: dpu2}")
    files = {"certificate": tmp_path / "dpu1.pem", "private_key": tmp_path / "dpu1.key", "ca_cert": tmp_path / "ca.pem"}
    new, ca = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30"], tmp_path / "ca"
    run([*new, "-subj", "/O=x/CN=authority", "-keyout", f"{ca}.key", "-out", f"{ca}.pem"])
    signed = ["-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-addext", "subjectAltName=DNS:dpu1", "-subj", "/O=x/CN=dpu1"]
    run([*new, *signed, "-keyout", str(files["private_key"]), "-out", str(files["certificate"])])

    def rows(*options: str) -> dict[str | None, tuple[str, str]]:
        said = xenoovs("doctor", config, "--db", system.db, "-o", "json", *options)
        assert "PRIVATE KEY" not in said.out + said.err
        checks = json.loads(said.out)["checks"]
        return {row["subject"]: (row["state"], row["seen"]) for row in checks if row["check"] == "IPsec certificate"}

    try:
        [(state, _)] = rows("--fix", "--yes").values()
        assert (state, "dpu2" in system.vsctl("get", "interface", "gnv0-c000020b", "options")) == ("wrong", True)
        system.vsctl("set", "Open_vSwitch", ".", *(f"other_config:{key}={path}" for key, path in files.items()))
        found = rows()
        own, key, _ = (found[str(path)] for path in files.values())
        assert (own[0], own[1].partition(",")[0]) == ("ok", "dpu1")
        assert key == ("ok", f"the key of {files['certificate']}")
        files["private_key"].chmod(0o640)
        assert rows()[str(files["private_key"])] == ("wrong", "other users of this host can read it")
        assert rows("--fix", "--yes")[str(files["private_key"])] == key
        system.vsctl("set", "Open_vSwitch", ".", f"other_config:private_key={ca}.key")
        assert rows()[f"{ca}.key"] == ("wrong", f"is not the key of {files['certificate']}")
        system.vsctl("set", "Open_vSwitch", ".", f"other_config:certificate={tmp_path}")
        assert rows()[str(tmp_path)] == ("wrong", f"{tmp_path} is no file")
    finally:
        for each in files:
            system.vsctl("remove", "Open_vSwitch", ".", "other_config", each)
        system.vsctl("remove", "interface", "gnv0-c000020b", "options", "remote_name")


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


def test_doctor_says_why_the_ike_daemon_makes_no_sa(tmp_path: Path) -> None:
    configs, text = [tmp_path / "one.yaml", tmp_path / "two.yaml"], CONFIG.format(ipsec=", ipsec: {psk_file: /nowhere}")
    configs[0].write_text(text.replace("192.0.2.11", "192.0.2.2"))
    configs[1].write_text(text.replace("192.0.2.1,", "192.0.2.2,").replace("192.0.2.11", "192.0.2.1"))
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
