"""Options of an interface by OVSDB's own protocol: what must not be an argument of a program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from xenoovs.errors import InterfaceMissing
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_private_ovs, stop_private_ovs
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.ovsdb import has_options, read_bridges, write_options

SECRET = 'swordfish "with quotes" \\ and ü'


@pytest.fixture(scope="module")
def ovs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateOvs]:
    found = start_private_ovs(tmp_path_factory.mktemp("ovs"), datapath=Datapath.DUMMY)
    try:
        found.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy")
        found.vsctl(
            "add-port", "br0", "gnv0", "--", "set", "interface", "gnv0", "type=geneve", "options:remote_ip=flow"
        )
        found.vsctl("set", "interface", "gnv0", "options:remote_ip=192.0.2.12", "options:remote_name=old")
        yield found
    finally:
        stop_private_ovs(found)


@pytest.fixture
def endpoint(ovs: PrivateOvs) -> Endpoint:
    return Endpoint(ovs.db, ovs.directory)


def test_a_key_is_written_and_the_former_one_removed(ovs: PrivateOvs, endpoint: Endpoint) -> None:
    assert not has_options(endpoint, "gnv0", {"psk": SECRET})
    for key in ("first", SECRET):
        write_options(endpoint, "gnv0", {"psk": key}, without=("psk", "remote_name", "remote_cert"))
    assert has_options(endpoint, "gnv0", {"psk": SECRET, "remote_ip": "192.0.2.12"})
    assert not has_options(endpoint, "gnv0", {"psk": "first"})
    assert "remote_name" not in ovs.vsctl("get", "interface", "gnv0", "options")


def test_no_part_of_xenoovs_that_reads_the_database_has_the_key(ovs: PrivateOvs, endpoint: Endpoint) -> None:
    write_options(endpoint, "gnv0", {"psk": SECRET}, without=())
    (bridge,) = read_bridges(endpoint)
    port = bridge.port("gnv0")
    assert port is not None
    assert port.options["psk"] == "(hidden)"
    assert "swordfish" not in repr(bridge)


def test_an_interface_that_is_missing(endpoint: Endpoint) -> None:
    with pytest.raises(InterfaceMissing, match="no interface gnv7"):
        write_options(endpoint, "gnv7", {"psk": SECRET}, without=())


def test_no_error_has_the_key(endpoint: Endpoint, tmp_path: Path) -> None:
    nowhere = Endpoint(f"unix:{tmp_path / 'db.sock'}", tmp_path)
    with pytest.raises(Exception, match=r"db\.sock") as caught:
        write_options(nowhere, "gnv0", {"psk": SECRET}, without=())
    assert "swordfish" not in str(caught.value)
