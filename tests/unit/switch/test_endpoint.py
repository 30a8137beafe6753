"""Which Open vSwitch is meant: options and environment, as the OVS tools read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from xenoovs.errors import BridgeMissing, SwitchError, SwitchUnreachable
from xenoovs.switch.endpoint import Endpoint, find_endpoint


@pytest.mark.parametrize(
    ("db", "rundir", "wanted"),
    [
        (None, None, Endpoint("unix:/var/run/openvswitch/db.sock", Path("/var/run/openvswitch"))),
        (None, "/x", Endpoint("unix:/x/db.sock", Path("/x"))),
        ("unix:/x/db.sock", None, Endpoint("unix:/x/db.sock", Path("/x"))),
        ("unix:/x/db.sock", "/y", Endpoint("unix:/x/db.sock", Path("/y"))),
        ("tcp:192.0.2.1:6640", None, Endpoint("tcp:192.0.2.1:6640", None)),
        ("tcp:192.0.2.1:6640", "/y", Endpoint("tcp:192.0.2.1:6640", Path("/y"))),
        ("tcp:[2001:db8::1]:6640", None, Endpoint("tcp:[2001:db8::1]:6640", None)),
        ("tcp:a:1,tcp:b:1", None, Endpoint("tcp:a:1,tcp:b:1", None)),
        ("unix:/x/db.sock,unix:/y/db.sock", None, Endpoint("unix:/x/db.sock,unix:/y/db.sock", None)),
    ],
)
def test_where_it_is(db: str | None, rundir: str | None, wanted: Endpoint) -> None:
    assert find_endpoint(db=db, env={} if rundir is None else {"OVS_RUNDIR": rundir}) == wanted


@pytest.mark.parametrize("db", ["", "/x/db.sock", "unix:", "unix:db.sock", "tcp:host", "ssl:192.0.2.1:6640", "pssl:1"])
def test_a_db_of_another_form(db: str) -> None:
    with pytest.raises(SwitchError, match=r"expected unix:/path/db\.sock or tcp:ADDRESS:PORT"):
        find_endpoint(db=db, env={})


def test_database_and_run_directory_may_be_of_two_switches_only_if_both_are_set() -> None:
    assert not find_endpoint(db="unix:/x/db.sock", env={}).is_split
    assert not find_endpoint(db=None, env={"OVS_RUNDIR": "/x"}).is_split
    assert find_endpoint(db="unix:/x/db.sock", env={"OVS_RUNDIR": "/y"}).is_split


def test_sockets_are_never_searched_in_other_directories() -> None:
    assert find_endpoint(db=None, env={"OVS_RUNDIR": "/x"}).management("br0") == "unix:/x/br0.mgmt"
    with pytest.raises(SwitchUnreachable, match="set OVS_RUNDIR"):
        find_endpoint(db="tcp:192.0.2.1:6640", env={}).management("br0")


@pytest.mark.parametrize("bridge", ["", "../br0", "a/b"])
def test_a_name_that_no_bridge_has(tmp_path: Path, bridge: str) -> None:
    (tmp_path / "br0.mgmt").touch()
    with pytest.raises(BridgeMissing) as caught:
        Endpoint("unix:/x/db.sock", tmp_path).management(bridge)
    assert caught.value.present == ("br0",)
