"""The file of a DPU and the services of its fleet: commands on its host, tunnels and IPsec."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.command_line import SMALL_CONFIG, CommandLine
from tests.ovs.dummy import DummyBridge, start_dummy_as_system
from tests.ovs.fleets import LOCAL, FleetDpu, FleetServers, apply_until
from tests.patience import eventually
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_database, stop_private_ovs
from xenoovs.store.rows import StoreDatabase
from xenoovs.store.servers import files_of
from xenoovs.switch.process import run, try_run

TUNNELED = SMALL_CONFIG.replace("services:", "tunnels: [{name: gnv0, type: geneve, key: 5001}]\nservices:") + (
    '      - {name: far, mac: "02:00:5e:10:00:0d", weight: 30, egress: gnv0, remote: 192.168.77.11}\n'
)


def test_suggested_commands_work_with_the_file_of_a_dpu(store: FleetServers) -> None:
    """`verify-offload` suggested `xenoovs plan`, which refuses this file."""
    one, xenoovs = store.dpus[0], store.xenoovs
    one.stop()
    one.bridge.add_flows("delete\n")
    named = ("--db", one.bridge.ovs.db)
    for command in ("verify-offload", "why"):
        shown = xenoovs(command, one.config, *named)
        assert "of the config are missing on the bridge; see `xenoovs status --db" in shown.out + shown.err
        assert "xenoovs plan" not in shown.out + shown.err
    shown = xenoovs("status", one.config, *named)
    assert (shown.status, "; its agent installs them" in shown.out) == (2, True), shown.out + shown.err
    for command in ("lint", "validate"):
        shown = xenoovs(command, one.config)
        assert shown.status == 0, shown.out + shown.err
    # A command that would decide by itself is refused.
    shown = xenoovs("plan", one.config, *named)
    assert (shown.status, "is the file of a DPU of a fleet" in shown.err) == (64, True)


SECRET = "correct horse battery staple"


def with_tunnel(local: str, more: str = "") -> str:
    """The file of a DPU with its end of the tunnel."""
    return f"{LOCAL}tunnels: [{{name: gnv0, type: geneve, local: {local}{more}}}]\n"


def add_port(dpu: FleetDpu) -> None:
    """Make the port of the tunnel as `xenoovs tunnels` says with the file of the DPU."""
    eventually(dpu.cache.exists, "the saved view")
    xenoovs, db = dpu.store.xenoovs, ("--db", dpu.bridge.ovs.db)
    shown = xenoovs("doctor", dpu.config, *db)
    assert "tunnel port gnv0: does not exist" in shown.out, shown.out + shown.err
    assert "services as the agent saved them: generation " in shown.err
    shown = xenoovs("tunnels", dpu.config, *db)
    assert shown.status == 0, shown.err
    run(["sh", "-c", shown.out])


def behind(dpu: FleetDpu, mac: str) -> str:
    """The flows of a backend."""
    return "\n".join(line for line in dpu.flows() if f"02:00:5e:10:00:{mac}" in line).replace('"', "")


@contextmanager
def _kernel_dpu(directory: Path, store: FleetServers) -> Iterator[FleetDpu]:
    """A DPU in a network namespace whose bridge counts as one of the kernel, without a packet (see test_ipsec.py)."""
    netns, ovs = f"xo{os.getpid()}key", PrivateOvs(directory / "d9")
    ovs.directory.mkdir(mode=0o700)
    run(["ip", "netns", "add", netns])
    dpu: FleetDpu | None = None
    try:
        run(["ip", "-n", netns, "link", "set", "lo", "up"])
        for words in ("link add p0 type veth peer name p1", "link set p0 up", "link set p1 up"):
            run(["ip", "-n", netns, *words.split()])
        start_database(ovs, netns=netns)
        start_dummy_as_system(ovs, netns)
        ovs.add_bridge("ovsbr1", ["p0", "p1"], datapath=Datapath.KERNEL)
        dpu = FleetDpu("dpu9", DummyBridge(ovs, "ovsbr1", ("p0", "p1")), directory / "dpu9.yaml", store, netns)
        yield dpu
    finally:
        if dpu is not None:
            dpu.kill()
        stop_private_ovs(ovs)
        try_run(["ip", "netns", "delete", netns])


def add_policy(netns: str) -> None:
    """Do what an IKE daemon does for packets to the remote."""
    ends = ("src", "192.168.77.1", "dst", "192.168.77.11", "proto", "udp", "dport", "6081", "dir", "out")
    run(["ip", "-n", netns, "xfrm", "policy", "add", *ends, "tmpl", "proto", "esp", "mode", "transport"])


def test_a_dpu_with_ipsec_serves_once_it_has_key_and_policy_and_the_key_stays_there(
    store: FleetServers, tmp_path: Path, xenoovs: CommandLine
) -> None:
    key = tmp_path / "psk"
    key.write_text(SECRET)
    of_dpu = with_tunnel("192.168.77.1", f", key: 5001, ipsec: {{psk_file: {key}}}")
    for dpu in store.dpus:
        dpu.config.write_text(with_tunnel("192.168.77.2"))
        add_port(dpu)
    with _kernel_dpu(tmp_path, store) as encrypting:
        encrypting.config.write_text(of_dpu)
        assert store.fleet("add-dpu", encrypting.name).status == 0
        encrypting.start()
        eventually(store.is_well, "a config without the tunnel")
        before = encrypting.blocks()
        (file := store.directory.parent / "services.yaml").write_text(TUNNELED)
        apply_until(store, file, lambda said: "dpu9: " in said.err and "gnv0-c0a84d0b" in said.err)

        # As docs/how-to/fleet-set-up.md says: the file of the DPU and the services in one, for `doctor` there.
        whole = tmp_path / "whole.yaml"
        whole.write_text(of_dpu.replace(", fleet_ports: {hosts: p2}", "") + TUNNELED[TUNNELED.index("services:") :])
        fixed = xenoovs("doctor", whole, "--db", encrypting.bridge.ovs.db, "--fix", "--yes")
        assert SECRET not in fixed.out + fixed.err
        eventually(lambda: "no policy covers packets to 192.168.77.11" in store.fleet("status").out, "the policy lacks")
        assert encrypting.blocks() == before
        assert encrypting.netns is not None
        add_policy(encrypting.netns)
        eventually(store.is_well, "all DPUs")
        assert "output:gnv0-c0a84d0b" in behind(encrypting, "0d")

        # The IKE daemon of this DPU ends (bug: as its blocks are those of the store, it went on unencrypted).
        # It alone drops these packets, and the fleet knows why.
        served = encrypting.blocks()
        run(["ip", "-n", encrypting.netns, "xfrm", "policy", "flush"])
        eventually(lambda: "output:gnv0-c0a84d0b" not in behind(encrypting, "0d"), "nothing unencrypted")
        assert encrypting.blocks() == [block for block in served if "gnv0-c0a84d0b" not in block]
        why = "packets to 192.168.77.11 would leave unencrypted: the config wants IPsec, and no policy covers them"
        eventually(lambda: why in " ".join(store.fleet("status").out.split()), "the reason")
        add_policy(encrypting.netns)
        eventually(store.is_well, "all DPUs again")
        assert "output:gnv0-c0a84d0b" in behind(encrypting, "0d")
        assert SECRET in encrypting.bridge.ovs.vsctl("get", "interface", "gnv0-c0a84d0b", "options:psk")

        # A mistake of the operator: the key itself in the config of the fleet.
        file.write_text(TUNNELED.replace("key: 5001", f"key: 5001, ipsec: {{psk: {SECRET}}}"))
        assert "psk_file" in store.fleet("apply", file, "--now", "--yes", "--timeout", "2s").err
        exported = store.fleet("export", "-").out
        log, cache = encrypting.stop(), encrypting.cache.read_text()
        assert "dpu9" in exported
    texts = [files_of(store.directory, database).database.read_text() for database in StoreDatabase]
    for text in (*texts, exported, log, cache, store.fleet("status", "-o", "json").out):
        assert SECRET not in text
