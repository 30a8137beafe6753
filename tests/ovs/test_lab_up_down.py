"""A lab comes and goes without a trace, beside others, and says what is wrong."""

from __future__ import annotations

import os
import signal
import subprocess
from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.ovs.lab_support import EVEN_MAC, backend, balancer, lab_name, links, remains, running_lab, service
from xenoovs.errors import LabError
from xenoovs.lab.host import kill_and_wait, namespaces_of, processes_in
from xenoovs.lab.lab import open_lab, sole_owner
from xenoovs.lab.lifecycle import RemovedLab, down, up
from xenoovs.lab.status import lab_status
from xenoovs.model.address import Family
from xenoovs.model.balancer import Claim
from xenoovs.switch.process import run

pytestmark = pytest.mark.ovs

NOTHING: dict[str, object] = {"namespaces": [], "mounts": [], "processes": (), "files": []}
DNS = balancer(service("dns", Claim(frozenset({Family.IPV4}), vips=(ip_address("10.3.10.45"),))))


def test_up_and_down_leave_nothing_behind(tmp_path: Path) -> None:
    name, links_before = lab_name("a"), links()
    up(name, DNS, directory=tmp_path)
    assert len(namespaces_of(name)) == 4
    assert links() == links_before
    removed = down(name, directory=tmp_path)
    assert (removed.namespaces, removed.processes, removed.directories) == (4, 4, 1)
    assert remains(name, tmp_path) == NOTHING
    assert links() == links_before


def test_down_twice_and_of_nothing_is_fine(tmp_path: Path) -> None:
    assert down(lab_name("none"), directory=tmp_path) == RemovedLab(0, 0, 0)


def test_the_directory_is_private(tmp_path: Path) -> None:
    with running_lab("a", DNS, tmp_path / "labs") as lab:
        modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "labs", lab.directory, lab.ovs.directory)]
    assert modes == [0o700] * 3


def test_the_bridge_forwards_nothing_by_itself_and_has_the_ports_in_order(tmp_path: Path) -> None:
    with running_lab("a", DNS, tmp_path) as lab:
        assert lab.ovs.vsctl("get", "bridge", "ovsbr1", "fail_mode") == "secure"
        ports = {port: lab.ovs.vsctl("get", "interface", port, "ofport") for port in ("p0", "p1", "pf0hpf")}
    assert ports == {"p0": "1", "p1": "2", "pf0hpf": "3"}


def test_two_labs_side_by_side(tmp_path: Path) -> None:
    with running_lab("a", DNS, tmp_path) as first, running_lab("a-b1", DNS, tmp_path) as second:
        assert down(second.name, directory=tmp_path).namespaces == 4
        assert lab_status(first).is_healthy
        assert remains(second.name, tmp_path / "x") == NOTHING


def test_up_on_an_existing_lab_names_the_way_out(tmp_path: Path) -> None:
    with running_lab("a", DNS, tmp_path) as lab:
        with pytest.raises(LabError, match=f"xenoovs lab down --lab {lab.name}"):
            up(lab.name, DNS, directory=tmp_path)
        with pytest.raises(LabError, match="has namespaces here already"):
            up(lab.name, DNS, directory=tmp_path / "elsewhere")
        assert lab_status(lab).is_healthy


def test_a_failing_up_cleans_up_after_itself(tmp_path: Path) -> None:
    def fail(what: str, done: int, total: int) -> None:
        if what == "backend odd":
            raise RuntimeError(what)

    with pytest.raises(RuntimeError, match="backend odd"):
        up(lab_name("a"), DNS, directory=tmp_path, progress=fail)
    assert remains(lab_name("a"), tmp_path) == NOTHING


def test_ctrl_c_in_up_cleans_up(tmp_path: Path) -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        if what == "clients":
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        up(lab_name("a"), DNS, directory=tmp_path, progress=interrupt)
    assert remains(lab_name("a"), tmp_path) == NOTHING


def test_two_machines_of_one_mac_on_different_ports_are_two(tmp_path: Path) -> None:
    claim = Claim(frozenset({Family.IPV4}), vips=(ip_address("10.3.10.45"),))
    twins = (backend("near", EVEN_MAC), backend("far", EVEN_MAC, egress="pf0hpf"))
    with running_lab("a", balancer(service("dns", claim, backends=twins)), tmp_path) as lab:
        assert [(machine.names, machine.egress) for machine in lab.topology.machines] == [
            (("near",), "p1"),
            (("far",), "pf0hpf"),
        ]
        assert lab_status(lab).is_healthy


def test_an_open_lab_is_the_one_that_up_returned(tmp_path: Path) -> None:
    with running_lab("a", DNS, tmp_path) as lab:
        assert open_lab(lab.name, directory=tmp_path) == lab
    with pytest.raises(LabError, match="there is no lab"):
        open_lab(lab.name, directory=tmp_path)


def test_status_reports_a_dead_backend_and_a_dead_ovs(tmp_path: Path) -> None:
    with running_lab("a", DNS, tmp_path) as lab:
        pid = run(["ip", "netns", "pids", lab.topology.machines[1].namespace]).stdout.split()[0]
        assert kill_and_wait([int(pid)])
        assert [machine.is_up for machine in lab_status(lab).machines] == [True, False]
        assert kill_and_wait(lab.ovs.pids()[:1])
        status = lab_status(lab)
        # No answer passes a switch that does not run.
        assert [machine.is_up for machine in status.machines] == [False, False]
        assert len(status.ovs_pids) == 1
        assert not status.is_healthy


def test_down_refuses_while_another_process_builds_the_lab(tmp_path: Path) -> None:
    place = tmp_path / lab_name("a")
    place.mkdir()
    with sole_owner(place), pytest.raises(LabError, match="at this moment"):
        down(place.name, directory=tmp_path)
    assert down(place.name, directory=tmp_path).directories == 1


def test_a_process_of_the_user_in_a_namespace_goes_with_the_lab(tmp_path: Path) -> None:
    with running_lab("a", DNS, tmp_path) as lab:
        argv = ["ip", "netns", "exec", lab.topology.clients.namespace, "sleep", "600"]
        with subprocess.Popen(argv) as shell:
            while len(processes_in(lab.topology.clients.namespace)) == 0:
                assert shell.poll() is None
            assert down(lab.name, directory=tmp_path).processes == 5
            assert shell.wait() == -signal.SIGKILL
    assert remains(lab.name, tmp_path) == NOTHING
