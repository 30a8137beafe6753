"""IPsec by certificates with real IKE daemons: `doctor` has the cause of each mistake in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ovs.dummy import ofctl
from tests.ovs.ike import Authority, IkeEnd, ike_ends
from tests.patience import eventually

PORT, BACK = "gnv0-c0000202", "gnv0-c0000201"
CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
tunnels:
  - {name: gnv0, type: geneve, local: 192.0.2.1, key: 5001, ipsec: {remote_name: dpu2}}
services:
  - name: web
    vip: 10.3.10.45
    backends:
      - {name: b1, mac: 02:00:00:00:0d:01, egress: gnv0, remote: 192.0.2.2, weight: 1}
"""
SECOND = (
    "  - {name: gnv1, type: geneve, local: 192.0.2.1, key: 5001, ipsec: {remote_name: dpu3}}\nservices:",
    "      - {name: b2, mac: 02:00:00:00:0d:02, egress: gnv1, remote: 192.0.2.3, weight: 1}\n",
)


@dataclass(frozen=True, slots=True)
class World:
    """Three DPUs, dpu1 to dpu3, with certificates of one authority."""

    ends: tuple[IkeEnd, ...]
    authority: Authority
    certificates: Mapping[str, Path]
    directory: Path

    def use_certificates(self) -> None:
        """Every DPU authenticates itself by its own certificate, and knows the others by their names."""
        one, two, three = self.ends
        for end, name in zip(self.ends, ("dpu1", "dpu2", "dpu3"), strict=True):
            end.authenticate_by(self.certificates[name], self.authority.file)
        for end, port, remote_name in ((one, PORT, "dpu2"), (two, BACK, "dpu1"), (three, BACK, "dpu1")):
            end.set_known_by(port, f"remote_name={remote_name}")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("ike")
    authority, stranger = Authority(directory / "keys"), Authority(directory / "other", "stranger")
    certificates = {name: authority.sign(name) for name in ("dpu1", "dpu2", "dpu3")}
    certificates["of a stranger"] = stranger.sign("dpu2")
    with ike_ends(directory, authority.file, 3) as ends:
        one, two, three = ends
        one.add_port(PORT, "192.0.2.2")
        two.add_port(BACK, "192.0.2.1")
        three.add_port(BACK, "192.0.2.1")
        (directory / "my.yaml").write_text(CONFIG)
        there = CONFIG.replace("192.0.2.2,", "192.0.2.9,").replace("192.0.2.1,", "192.0.2.2,").replace("dpu2", "dpu1")
        (directory / "other.yaml").write_text(there.replace("192.0.2.9,", "192.0.2.1,"))
        yield World(ends, authority, certificates, directory)


def _of_sa(end: IkeEnd, config: Path) -> tuple[str, str]:
    """State and text of the row of SAs, which comes with the policy."""
    rows = json.loads(end.xenoovs("doctor", config, "-o", "json").out)["checks"]
    return next(((row["state"], row["seen"]) for row in rows if row["check"] == "IPsec SA"), ("", ""))


def _use_stranger(world: World) -> None:
    world.ends[1].authenticate_by(world.certificates["of a stranger"], world.authority.file)


def _misname(world: World) -> None:
    world.ends[0].set_known_by(PORT, "remote_name=dpu9")


def _use_other_keys(world: World) -> None:
    for end, port, key in zip(world.ends[:2], (PORT, BACK), ("one", "two"), strict=True):
        end.ovs.vsctl("clear", "Open_vSwitch", ".", "other_config")
        end.set_known_by(port, f"psk={key}")


@pytest.mark.parametrize(
    ("mistake", "cause"),
    [
        (_use_stranger, "its certificate O=xenoovs, CN=dpu2 is signed by no authority that this host trusts"),
        (_misname, "it calls itself dpu2 and this host dpu1: remote_name of an end says otherwise"),
        (_use_other_keys, "its pre-shared key is another one"),
    ],
)
def test_doctor_says_why_the_ike_daemon_makes_no_sa(mistake: Callable[[World], None], cause: str, world: World) -> None:
    world.use_certificates()
    mistake(world)
    one, two, _ = world.ends
    found = list[tuple[str, str]]()

    def is_named() -> bool:
        # The end that answers sees most.
        two.connect(BACK)
        found.append(_of_sa(one, world.directory / "my.yaml"))
        return f": {cause} (at " in found[-1][1]

    eventually(is_named, cause)
    assert (found[-1][0], found[-1][1].startswith("none from 192.0.2.1: ")) == ("wrong", True)
    # The other end is refused, and gets no reason.
    why = "only its own log has the reason"
    eventually(lambda: why in _of_sa(two, world.directory / "other.yaml")[1], why)


def test_each_tunnel_has_its_own_remote_name(world: World) -> None:
    """Two remotes with certificates of their own, so two tunnels of the same type and local address."""
    config = world.directory / "two.yaml"
    config.write_text(CONFIG.replace("services:", SECOND[0]) + SECOND[1])
    world.use_certificates()
    one = world.ends[0]
    one.xenoovs("doctor", config, "--fix", "--yes")
    names = {port: one.ovs.vsctl("get", "interface", port, "options:remote_name") for port in (PORT, "gnv1-c0000203")}
    assert {port: name.strip('"') for port, name in names.items()} == {PORT: "dpu2", "gnv1-c0000203": "dpu3"}
    eventually(lambda: all(map(one.has_policy, ("192.0.2.2", "192.0.2.3"))), "policies")
    applied = one.xenoovs("apply", config, "--yes")
    assert applied.status == 0, applied.err
    flows = ofctl(one.ovs, "dump-flows", f"unix:{one.ovs.directory}/ovsbr1.mgmt", "table=1")
    numbers = {port: one.ovs.vsctl("get", "interface", port, "ofport") for port in names}
    assert all(f"output:{number}" in flows.replace('"', "") or port in flows for port, number in numbers.items())

    # Without ESP in the kernel, strongSwan 6 keeps no IKE SA.
    others = {end: end.log for end in world.ends[1:]}

    def are_authenticated() -> bool:
        for port in names:
            one.connect(port)
        return all(
            f"established between 192.0.2.{number}[dpu{number}]...192.0.2.1[dpu1]" in end.log.removeprefix(before)
            for number, (end, before) in enumerate(others.items(), start=2)
        )

    eventually(are_authenticated, "an IKE SA with each, by its own name")
    one.ovs.vsctl("del-port", "gnv1-c0000203")
