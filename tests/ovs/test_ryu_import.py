"""Load balancers of Ryu tutorials on a real bridge, and the configs that they become: how many megaflows each needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.ovs.dummy import DummyBridge, DummyOvs, udp_packet

CLIENTS = [f"192.0.2.{host}" for host in range(1, 101)]
PORTS = ("s1-eth1", "s1-eth2", "s1-eth3")
_TO_SERVERS = {
    2: "set_field:00:00:00:00:00:02->eth_dst,output:s1-eth2",
    3: "set_field:00:00:00:00:00:03->eth_dst,output:s1-eth3",
}
_SERVICE = "priority=10,udp,in_port=s1-eth1,nw_dst=10.3.10.45"


@pytest.mark.parametrize(("is_group", "weights"), [(True, (2, 3)), (False, (1, 3))], ids=["a group", "reactive flows"])
def test_they_become_blocks(
    dummy_ovs: DummyOvs, tmp_path: Path, xenoovs: CommandLine, *, is_group: bool, weights: tuple[int, int]
) -> None:
    buckets = ",".join(f"bucket=weight:{server},actions={actions}" for server, actions in _TO_SERVERS.items())
    with dummy_ovs.bridge(ports=PORTS) as bridge:
        if is_group:
            bridge.ofctl("add-group", f"group_id=50,type=select,{buckets}", version="OpenFlow13")
            bridge.ofctl("add-flow", f"{_SERVICE},actions=group:50", version="OpenFlow13")
        for number, client in enumerate(() if is_group else CLIENTS):
            # Of four clients the second server has three.
            flow = f"{_SERVICE},nw_src={client},actions={_TO_SERVERS[2 if number % 4 == 0 else 3]}"
            bridge.ofctl("add-flow", flow, version="OpenFlow13")
        before = megaflows(bridge)
        assert any("dp_hash" in megaflow for megaflow in before) if is_group else len(before) == len(CLIENTS)
        macs = ("00:00:00:00:00:02", "00:00:00:00:00:03")
        assert put_imported(bridge, tmp_path, xenoovs) == dict(zip(macs, weights, strict=True))
        assert len(megaflows(bridge)) == len(blocks(bridge)) < len(before)


def put_imported(bridge: DummyBridge, directory: Path, xenoovs: CommandLine) -> dict[str, int]:
    """Put the config of the bridge's flows and groups in place of these. Return the weights in it, by MAC."""
    dumps = [bridge.ofctl(command, version="OpenFlow13") for command in ("dump-flows", "dump-groups")]
    (directory / "s1.flows").write_text("\n".join(dumps))
    config = xenoovs("new", "--from", "flows", directory / "s1.flows").out
    (directory / "my.yaml").write_text(config)
    bridge.ofctl("del-flows", version="OpenFlow13")
    bridge.ofctl("del-groups", version="OpenFlow13")
    done = xenoovs("apply", directory / "my.yaml", "--yes", "--db", bridge.ovs.db)
    assert done.status == 0, done.err
    return {mac: int(weight) for mac, weight in re.findall(r"mac: ([\w:]+), weight: (\d+)", config)}


def blocks(bridge: DummyBridge) -> list[str]:
    return [flow for flow in bridge.dump_flows() if "mod_dl_dst" in flow]


def megaflows(bridge: DummyBridge) -> list[str]:
    """Return the megaflows that one packet of each client makes."""
    bridge.settle()
    bridge.send(PORTS[0], [udp_packet(client) for client in CLIENTS])
    return bridge.megaflows()
