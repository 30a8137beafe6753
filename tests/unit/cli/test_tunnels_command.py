"""`xenoovs tunnels` and `xenoovs receive`: text to run at both ends of a tunnel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine

CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
tunnels:
  - {name: gnv0, type: geneve, local: 192.168.77.1, key: 5001}
  - {name: vx, type: vxlan, local: 192.168.77.1, ipsec: {psk_file: /etc/psk}}
services:
  - name: web
    vip: 10.3.10.45
    return: switch
    backends:
      - {name: b1, mac: "02:00:00:00:0d:01", egress: gnv0, remote: 192.168.77.11, weight: 50}
      - {name: b2, mac: "02:00:00:00:0d:02", egress: vx, remote: 192.168.77.12, key: 7, weight: 50}
      - {name: b3, mac: "02:00:00:00:0d:03", weight: 0}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my.yaml"
    path.write_text(CONFIG)
    return path


def test_the_commands_of_all_ports(xenoovs: CommandLine, file: Path) -> None:
    shared, own, key = xenoovs("tunnels", file).out.splitlines()
    assert shared.startswith(
        "ovs-vsctl --may-exist add-port ovsbr1 gnv0 -- set interface gnv0 type=geneve options:remote_ip=flow "
        "options:local_ip=192.168.77.1 options:key=flow external_ids:xenoovs="
    )
    assert "add-port ovsbr1 vx-c0a84d0c " in own
    assert "options:remote_ip=192.168.77.12" in own
    assert "dst_port" not in own
    assert key.startswith("# vx-c0a84d0c sends unencrypted until it has its pre-shared key: `xenoovs doctor")


def test_the_command_of_a_port_with_another_udp_port(xenoovs: CommandLine, file: Path) -> None:
    file.write_text(CONFIG.replace("ipsec: {psk_file: /etc/psk}", "ports: each, dst_port: 4790"))
    assert "options:dst_port=4790" in xenoovs("tunnels", file).out.splitlines()[1]


def test_bug_the_commands_reach_the_open_vswitch_that_is_named(xenoovs: CommandLine, file: Path) -> None:
    """The commands always changed the Open vSwitch of the host."""
    options = ("--db", "unix:/x/db.sock")
    *commands, key = xenoovs("tunnels", file, *options).out.splitlines()
    assert [line.split()[:2] for line in commands] == [["ovs-vsctl", "--db=unix:/x/db.sock"]] * 2
    assert f"`xenoovs doctor {file} --fix --db unix:/x/db.sock` writes it" in key
    ports = json.loads(xenoovs("tunnels", file, *options, "-o", "json").out)["ports"]
    assert [port["commands"] for port in ports] == [[line] for line in commands]


def test_a_lab_that_does_not_exist_changes_no_other_open_vswitch(xenoovs: CommandLine, file: Path) -> None:
    result = xenoovs("tunnels", file, "--lab", "h14nothing")
    assert (result.status, result.out, "h14nothing" in result.err) == (1, "", True)


@pytest.mark.parametrize("command", [("tunnels",), ("receive", "b2")])
def test_no_command_takes_a_pre_shared_key_as_an_argument_nor_its_path_to_a_shell(
    xenoovs: CommandLine, file: Path, command: tuple[str, ...]
) -> None:
    file.write_text(CONFIG.replace("/etc/psk", '"/etc/my psk; reboot"'))
    result = xenoovs(command[0], file, *command[1:])
    lines = [line for line in result.out.splitlines() if not line.startswith("#")]
    assert (result.status, [line for line in lines if "psk" in line]) == (0, [])


def test_a_config_without_tunnels_is_reported(xenoovs: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL_CONFIG)
    assert xenoovs("tunnels", path).out == f"# {path} has no tunnels of Open vSwitch\n"


def test_the_receiving_bridge_accepts_the_balancer_alone(xenoovs: CommandLine, file: Path) -> None:
    result = json.loads(xenoovs("receive", file, "b1", "--on", "br0", "--host-port", "en3", "-o", "json").out)
    assert (result["bridge"], result["address"]) == ("br0", "192.168.77.11")
    assert result["ports"][0]["options"]["local_ip"] == "192.168.77.11"
    assert [flow.partition("priority=")[2] for flow in result["flows"]] == [
        "100,ip,in_port=en3,nw_src=10.3.10.45 actions=load:0x1389->NXM_NX_TUN_ID[],"
        "load:0xc0a84d01->NXM_NX_TUN_IPV4_DST[],output:gnv0",
        "100,ip,tun_id=0x1389,tun_src=192.168.77.1,in_port=gnv0,nw_dst=10.3.10.45 actions=output:en3",
        "1,in_port=gnv0 actions=drop",
    ]


def test_direct_answers_leave_by_the_uplink(xenoovs: CommandLine, file: Path) -> None:
    file.write_text(CONFIG.replace("    return: switch\n", ""))
    flows = xenoovs("receive", file, "b1", "--uplink", "p7").out
    assert "in_port=pf0hpf,nw_src=10.3.10.45 actions=output:p7" in flows


def test_a_port_of_one_remote_leads_back_to_the_balancer(xenoovs: CommandLine, file: Path) -> None:
    out = xenoovs("receive", file, "b2").out
    assert "add-port ovsbr1 vx-c0a84d01 " in out
    assert "options:remote_ip=192.168.77.1 " in out
    assert "TUN_IPV4_DST" not in out


@pytest.mark.parametrize(
    ("name", "message"), [("b3", "Backend b3 is behind no tunnel."), ("b9", "The config has no backend 'b9'.")]
)
def test_other_backends_have_no_receiving_bridge(xenoovs: CommandLine, file: Path, name: str, message: str) -> None:
    result = xenoovs("receive", file, name)
    assert result.status == 64
    assert f"{message} Behind tunnels are b1, b2." in result.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--host-port", "x\nflows\ntouch /tmp/x"), "is not a port name"),
        (("--uplink", "p0;reboot"), "is not a port name"),
        (("--on", "br0 -- del-br br1"), "is not a port name"),
        (("--host-port", "gnv0"), "--host-port gnv0 is the tunnel port there"),
        (("--host-port", "p0"), "--host-port p0 is the uplink too"),
    ],
)
def test_bug_any_text_became_part_of_the_script_for_the_other_dpu(
    options: tuple[str, str], message: str, xenoovs: CommandLine, file: Path
) -> None:
    """And ports by which no packet arrives were accepted."""
    result = xenoovs("receive", file, "b1", *options)
    assert (result.status, result.out, message in result.err) == (64, "", True), result.err


SHARED = """\
version: 1
switch: {{bridge: ovsbr1, ingress: [p0], egress: p1}}
tunnels:
  - {{name: gnv0, type: geneve, local: 192.168.77.1, key: 5001}}
services:
  - name: web
    vip: 10.3.10.45
    protocol: tcp
    return: switch
    backends: [{{name: b1, mac: "02:00:00:00:0d:01", egress: gnv0, remote: 192.168.77.11, weight: 50}}]
  - name: dns
    vip: {vip}
    protocol: udp
    return: {way}
    backends: [{{name: b1, mac: "02:00:00:00:0d:01", egress: gnv0, remote: 192.168.77.11, weight: 50}}]
"""


def test_bug_receive_refuses_two_ways_back_for_one_vip(xenoovs: CommandLine, file: Path) -> None:
    """The `return` of the last service was used for all."""
    file.write_text(SHARED.format(vip="10.3.10.45", way="direct"))
    result = xenoovs("receive", file, "b1")
    assert (result.status, result.out) == (1, "")
    assert "service dns: answers from 10.3.10.45 have another `return` than those of web" in " ".join(
        result.err.split()
    )


def test_bug_receive_refuses_a_name_that_stands_for_two_servers(xenoovs: CommandLine, file: Path) -> None:
    """The flows of both servers went to one bridge."""
    text = SHARED.format(vip="10.3.10.46", way="switch")
    head, _, tail = text.rpartition("192.168.77.11")
    file.write_text(f"{head}192.168.77.12{tail}")
    result = xenoovs("receive", file, "b1")
    assert (result.status, result.out) == (1, "")
    assert "service dns: its backend b1 is at 192.168.77.12 of gnv0, but that of web at 192.168.77.11" in " ".join(
        result.err.split()
    )


@pytest.mark.parametrize(
    ("vip", "way", "ends"), [("10.3.10.45", "switch", ["gnv0"]), ("10.3.10.46", "direct", ["gnv0", "p0"])]
)
def test_a_backend_of_two_services(xenoovs: CommandLine, file: Path, vip: str, way: str, ends: list[str]) -> None:
    file.write_text(SHARED.format(vip=vip, way=way))
    flows = json.loads(xenoovs("receive", file, "b1", "-o", "json").out)["flows"]
    assert sorted(flow.rpartition("output:")[2] for flow in flows if "in_port=pf0hpf" in flow) == ends


@pytest.mark.parametrize(
    ("ipsec", "option", "what"),
    [
        ("psk_file: /etc/psk", "psk", "the pre-shared key"),
        ("remote_name: server", "remote_name", "the common name in the certificate of the balancer"),
        ("remote_cert: /k/server.pem", "remote_cert", "the file with the certificate of the balancer"),
    ],
)
def test_bug_receive_gave_the_server_its_own_certificate_as_that_of_its_remote(
    xenoovs: CommandLine, file: Path, ipsec: str, option: str, what: str
) -> None:
    """The port on the server got the `remote_*` option of our port, so it would have authenticated itself."""
    file.write_text(CONFIG.replace("psk_file: /etc/psk", ipsec))
    _, made, needs = xenoovs("receive", file, "b2").out.splitlines()[:3]
    assert "options:remote_" not in made.replace("options:remote_ip", "")
    assert needs == f"# vx-c0a84d01 sends unencrypted until it has options:{option} of table Interface, {what}"
    assert json.loads(xenoovs("receive", file, "b2", "-o", "json").out)["authenticates_by"] == option
