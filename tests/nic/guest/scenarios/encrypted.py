"""A tunnel that Open vSwitch's own monitor of IPsec encrypts: strongSwan at both ends, ESP on the cable."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.machines import IPSEC_MONITOR
from tests.nic.guest import nic
from tests.nic.guest.bench import CLIENTS, Bench
from tests.nic.guest.frames import GENEVE_PORT, REMOTES, VIP, Kind
from tests.nic.guest.ovs import BRIDGE
from tests.nic.guest.scenarios.tunnels import IPSEC_MODULES, OF_CLIENTS
from tests.nic.guest.wire import Wire
from tests.processes import program_of
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_private_ovs, stop_private_ovs
from xenoovs.switch.process import run, try_run

_KEY_FILE, _SECRET = Path("/run/psk"), "swordfish"
"""As balancers/esp.yaml has it."""
_REMOTE = REMOTES["geneve"]
_PEER = Path("/var/lib/peer")
"""Not below /run: the IKE daemon of the peer has a /run of its own."""
HOST = "host"
"""Port of the peer's bridge towards the server."""
OF_SERVER = Kind(destination=CLIENTS[0], port=4000, source_port=80, protocol="tcp")


def tunnel_esp(bench: Bench) -> None:
    """The key from a file, made ports, policies, SAs with the first packet; then a NIC that knows of none of it."""
    run(["modprobe", "-a", *IPSEC_MODULES])
    _KEY_FILE.write_text(_SECRET)
    _KEY_FILE.chmod(0o600)
    bench.begin(ports=("p0", "pf0hpf"))
    nic.set_up_uplink()
    # The other end answers ARP by itself.
    nic.ip_batch(f"neigh del {_REMOTE} dev {nic.UPLINK}", f"link set {nic.UPLINK} mtu 2000")
    bench.xenoovs("doctor", "esp", "--fix", "--yes")
    # Until there is a policy nothing is installed.
    bench.xenoovs("apply", "esp", "--yes")
    with ExitStack() as stack:
        peer = stack.enter_context(_peer(bench))
        stack.enter_context(_monitors(bench.ovs, peer))
        bench.wait_until(lambda: all(map(_has_policy, ("", nic.WIRE_NETNS))), "both ends have a policy")
        bench.xenoovs("apply", "esp", "--yes")
        bench.ports = (*bench.ports, "genev_sys_6081")
        _wait_for_associations(bench)
        with bench.between_samples(lambda: _use(bench)):
            bench.xenoovs("verify-offload", "esp", "--output", "json")
        bench.look("encrypted by the CPU")
        bench.xenoovs("doctor", "esp", "--output", "json")
        bench.judge("esp", "verify-offload", recorded=True, simulated=True)
        # A NIC that does not know of the policy encapsulates by itself, past the keys.
        nic.limit(xfrm_aware="N")
        bench.purge()
        bench.prime(kind=OF_CLIENTS)
        with bench.between_samples(lambda: bench.send(packets_each=2, kind=OF_CLIENTS)):
            bench.xenoovs("verify-offload", "esp", "--output", "json")
        bench.look("the NIC does not know of IPsec")


def _wait_for_associations(bench: Bench) -> None:
    """The first packets are lost: by them the IKE daemons ask for SAs, a pair for each way."""

    def are_new() -> bool:
        # An IKE daemon that has given up begins again with the next packet.
        bench.send_frames([OF_CLIENTS.frame(CLIENTS[0])])
        bench.send_frames([OF_SERVER.frame(VIP)], port=HOST)
        return all(len(_associations(netns)) >= 4 for netns in ("", nic.WIRE_NETNS))

    bench.send(kind=OF_CLIENTS)
    bench.send([VIP], kind=OF_SERVER, port=HOST)
    bench.wait_until(are_new, "both ends have all SAs")
    bench.purge()
    bench.prime(kind=OF_CLIENTS)
    bench.prime([VIP], kind=OF_SERVER, port=HOST)


def _use(bench: Bench) -> None:
    bench.send(packets_each=5, kind=OF_CLIENTS)
    bench.send([VIP], packets_each=40, kind=OF_SERVER, port=HOST)


def _tunnel_port(ovs: PrivateOvs) -> str:
    return ovs.vsctl("--bare", "--columns=name", "find", "Interface", "type=geneve").strip()


@contextmanager
def _peer(bench: Bench) -> Iterator[PrivateOvs]:
    """The DPU of the server: an Open vSwitch in the namespace of the wire ends, with the flows of `receive`."""
    wire = nic.WIRE_NETNS
    nic.ip_batch(
        f"addr add {_REMOTE}/24 dev {nic.UPLINK}-w",
        f"link set {nic.UPLINK}-w mtu 2000",
        "link set lo up",
        f"link add {HOST} type veth peer name {HOST}-w",
        f"link set {HOST} up",
        netns=wire,
    )
    ovs = start_private_ovs(_PEER, datapath=Datapath.KERNEL, netns=wire)
    try:
        ovs.add_bridge(BRIDGE, [HOST], datapath=Datapath.KERNEL)
        nic.set_up_silent(f"{HOST}-w")
        bench.wires[HOST] = Wire(wire, f"{HOST}-w")
        commands = bench.xenoovs("tunnels", "esp", "--far-end", "b1", "--host-port", HOST).stdout
        run(["sh", "-e"], stdin=commands, env=ovs.env, timeout_s=300.0)
        ovs.vsctl("set", "Interface", _tunnel_port(ovs), f"options:psk={_SECRET}")
        yield ovs
    finally:
        ovs.vsctl("--if-exists", "del-br", BRIDGE, timeout_s=300.0)
        stop_private_ovs(ovs)
        try_run(["ip", "netns", "exec", wire, "ovs-dpctl", "del-dp", "ovs-system"])
        bench.wires.pop(HOST).close()
        back = (f"addr flush dev {nic.UPLINK}-w", f"link set {nic.UPLINK}-w mtu 1500", "link set lo down")
        nic.ip_batch(f"link del {HOST}", *back, netns=wire)
        nic.ip_batch(f"link set {nic.UPLINK} mtu 1500")


@contextmanager
def _monitors(ours: PrivateOvs, peer: PrivateOvs) -> Iterator[None]:
    """ovs-monitor-ipsec(8) of both ends; each starts an IKE daemon with files of its own."""
    apart = "mount -t tmpfs tmpfs /run; for file in ipsec.conf ipsec.secrets; do cp /etc/$file /run; "
    apart += 'mount --bind /run/$file /etc/$file; done; exec "$@"'
    inside = ["ip", "netns", "exec", nic.WIRE_NETNS, "sh", "-ec", apart, "sh"]
    started = [_start(ours, []), _start(peer, inside)]
    try:
        yield
    finally:
        for process in started:
            process.terminate()
            process.wait()
        try_run(["ipsec", "stop"])
        pids = run(["ip", "netns", "pids", nic.WIRE_NETNS]).stdout.split()
        charons = [pid for pid in pids if program_of(pid) in ("starter", "charon")]
        try_run(["kill", *charons])
        for netns in ("", nic.WIRE_NETNS):
            nic.ip_batch("xfrm policy flush", "xfrm state flush", netns=netns)


def _start(ovs: PrivateOvs, inside: list[str]) -> subprocess.Popen[bytes]:
    argv = [*inside, IPSEC_MONITOR, ovs.db, "--ike-daemon=strongswan", f"--log-file={ovs.directory}/monitor.log"]
    log = (ovs.directory / "monitor.out").open("wb")
    return subprocess.Popen(argv, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **ovs.env}, stdout=log, stderr=log)


def _has_policy(netns: str) -> bool:
    """Whether a policy covers what this end sends to the port of Geneve."""
    return f"dport {GENEVE_PORT}" in _xfrm(netns, "policy", "list", "dir", "out")


def _associations(netns: str) -> frozenset[str]:
    """The numbers of the SAs that have keys: for what leaves to the port of Geneve and from it, each way."""
    entries = _xfrm(netns, "state", "list").split("\nsrc ")
    return frozenset(entry.partition(" spi ")[2].split()[0] for entry in entries if "aead" in entry)


def _xfrm(netns: str, *words: str) -> str:
    return run(["ip", *(["-n", netns] if netns else []), "xfrm", *words]).stdout
