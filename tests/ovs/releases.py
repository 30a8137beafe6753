"""Other releases of Open vSwitch: tests marked `each_release` run on these too, and what is different there."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from xenoovs.compile.offloadable.table import Version, parse_version

_SCRIPT = Path(__file__).parents[2] / "scripts" / "ovs-release"
SUITES = ("bullseye", "trixie")
"""Debian's releases with the oldest Open vSwitch that is supported, 2.15, and the newest one that does not change."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Tests that a version cannot pass.

    Attributes:
        tests: a regular expression that their names contain.
        last: the newest version that cannot.
        reason: what that version does, with file, function or commit of Open vSwitch.
    """

    tests: str
    last: Version
    reason: str


DIFFERENCES = (
    Difference(
        r"test_controller_command\.py::test_flows_that_others_change_are_put_right_at_once",
        (2, 17),
        "it has no flow monitoring by OpenFlow 1.4 (commit c3e64047d); a round corrects the flows later",
    ),
    Difference(
        r"test_agent_lab.py::test_(a_backend_dies_and_comes_back\[.*tunnels-both-ways|a_remote_whose|the_switch_leaves)|"
        r"test_lab_(tunnels|vlan)\.py|test_lab_nat\.py::test_answers_return|test_lab_traffic\.py::test_without_a_way|"
        r"test_measure_load\.py::test_echoes_come|test_lab_up_down\.py::test_killed_at_a_step\[.*with tunnels",
        (2, 15),
        "labs with tunnels or VLANs, and with answers of their own way, need `fdb/add` (commit ccc24fc88)",
    ),
    Difference(
        r"test_simulate_megaflows.py::test_megaflows\[.*tunnel-geneve",
        (2, 16),
        "with a tunnel, a userspace datapath matches dl_dst at each port: terminate_native_tunnel() of "
        "ofproto/ofproto-dpif-xlate.c; since commit fb7a75e52 at ports with an IP address only",
    ),
    Difference(
        r"test_(fleet_cluster|fleet_restore|store_cluster|store_operators)\.py|test_fleet_kills\.py::test_(another|the_le)|"
        r"test_fleet_servers\.py::test_(a_store_of_one|bug_any_user)|test_store\.py::test_a_reconnect|"
        r"test_store_upgrade\.py::test_(the_first_upg|a_server_that_j)",
        (2, 17),
        "hosts of a store need `local-config.ovsschema` (commit 6f24c2bc7), relays and `ovsdb-tool --election-timer`",
    ),
    Difference(
        r"test_drain_slow.py::test_(a_drain_opens_when|a_switch_that_stands)|"
        r"test_upgrade_in_place.py::test_a_drain_(ends\[|goes_on\[.*settling)",
        (3, 0),
        "it has no `revalidator/pause`, by which tests stop or wake revalidators: udpif_init() of "
        "ofproto/ofproto-dpif-upcall.c",
    ),
    Difference(
        "test_measure_designs.py::test_megaflows_are",
        (2, 17),
        "a connection is established after three packets of one side in a userspace datapath: other_conn_update() of "
        "lib/conntrack-other.c, up to commit 13de99ebd; so the design with conntrack has a megaflow more a backend",
    ),
    Difference(
        "test_doctor_dummy.py::test_the_provider_of_dummy_ports",
        (2, 15),
        "a port without an ifindex, as dummy ports are, gets no offload provider: netdev_ports_insert() of "
        "lib/netdev-offload.c, up to commit 6a855d3e7",
    ),
)


def difference(name: str, suite: str) -> Difference | None:
    """Return why the Open vSwitch of a release cannot pass the test of this name; None: it must."""
    return next((each for each in DIFFERENCES if re.search(each.tests, name) and version_of(suite) <= each.last), None)


@cache
def environment_of(suite: str) -> dict[str, str]:
    """Return what makes programs those of a release. It is unpacked first where that has not been done."""
    text = subprocess.run([_SCRIPT, suite], check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(line.split("=", 1) for line in text.splitlines())


@cache
def version_of(suite: str) -> Version:
    """Return the version of a release; of this host for an empty text."""
    environment = os.environ | environment_of(suite) if suite else os.environ
    argv = ["ovs-vswitchd", "--version"]
    text = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    return parse_version(text.split()[3])


@contextmanager
def running_programs_of(suite: str) -> Iterator[None]:
    """Run those of a release for the time of a `with`, in this process and in all that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (environment_of(suite) if suite else {}).items():
            patch.setenv(name, value)
        yield
