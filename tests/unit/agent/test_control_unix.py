"""The unix socket of the agent, and the lock of its bridge."""

from __future__ import annotations

import os
import signal
import socket
from multiprocessing import get_context
from pathlib import Path

import pytest

from xenoovs.agent.control.files import (
    AgentPaths,
    BridgeLocks,
    agent_paths,
    bound_socket,
    command_options,
    lock_bridge,
)
from xenoovs.errors import AgentRuns, ListenError
from xenoovs.switch.endpoint import answers, find_endpoint


def test_only_its_owner_gets_in_and_nothing_stays(tmp_path: Path) -> None:
    path = tmp_path / "run" / "a.sock"
    umask = os.umask(0)
    try:
        with bound_socket(path):
            assert path.stat().st_mode & 0o777 == 0o600
            assert path.parent.stat().st_mode & 0o777 == 0o700
            assert answers(path)
    finally:
        os.umask(umask)
    assert not path.parent.exists()


def test_a_stale_socket_is_taken_over_and_a_live_one_and_other_files_are_not(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert not answers(path)
    with bound_socket(path):
        assert answers(path)
        with pytest.raises(ListenError, match="Address already in use"), bound_socket(path):
            pass
    path.write_text("something")
    with pytest.raises(ListenError, match="Address already in use"), bound_socket(path):
        pass
    assert path.read_text() == "something"


def test_bug_a_live_socket_whose_queue_is_full_was_removed_as_that_of_a_killed_process(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    with bound_socket(path) as busy, socket.socket(socket.AF_UNIX) as waiting, socket.socket(socket.AF_UNIX) as refused:
        busy.listen(0)
        waiting.connect(str(path))
        refused.setblocking(False)
        with pytest.raises(BlockingIOError):
            refused.connect(str(path))
        with pytest.raises(ListenError, match="Address already in use"), bound_socket(path):
            pass
        assert path.is_socket()


def test_a_socket_name_that_is_too_long_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ListenError, match="longer than the 107 bytes"), bound_socket(tmp_path / ("a" * 120)):
        pass


def test_locks_of_a_config_that_moves_to_another_bridge(tmp_path: Path) -> None:
    places = AgentPaths(tmp_path, tmp_path)
    locks = BridgeLocks(places, tmp_path / "a.sock")
    locks.hold(("ovsbr1",))
    with (
        lock_bridge(places.lock("ovsbr2"), bridge="ovsbr2"),
        pytest.raises(AgentRuns, match="another agent reconciles bridge ovsbr2"),
    ):
        locks.hold(("ovsbr1", "ovsbr2"))
    assert [places.lock(name).exists() for name in ("ovsbr1", "ovsbr2")] == [True, False]
    locks.hold(("ovsbr1", "ovsbr2"))
    locks.hold(("ovsbr2",))
    assert [places.lock(name).exists() for name in ("ovsbr1", "ovsbr2")] == [False, True]
    assert places.lock("ovsbr2").read_text() == str(tmp_path / "a.sock")
    locks.close()
    assert not places.lock("ovsbr2").exists()


def hold(path: Path, ready: socket.socket) -> None:
    with lock_bridge(path, bridge="br"):
        ready.send(b"x")
        signal.pause()


def test_one_agent_holds_the_lock_of_a_bridge_until_it_ends_or_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "br.lock"
    ours, theirs = socket.socketpair()
    process = get_context("fork").Process(target=hold, args=(path, theirs))
    process.start()
    assert ours.recv(1) == b"x"
    with pytest.raises(AgentRuns, match="another agent reconciles bridge br"), lock_bridge(path, bridge="br"):
        pass
    process.kill()
    process.join()
    assert path.exists()
    with lock_bridge(path, bridge="br"):
        assert path.exists()
    assert not path.exists()


def test_a_command_names_an_agent_only_where_there_are_several(tmp_path: Path) -> None:
    places = AgentPaths(tmp_path, tmp_path)
    socket = places.socket("ovsbr1")
    with bound_socket(socket):
        assert command_options(socket, places) == ""
        assert command_options(socket, places, target=" --lab demo") == " --lab demo"
        with bound_socket(places.socket("ovsbr2")):
            assert command_options(socket, places, target=" --lab demo") == " --bridge ovsbr1 --lab demo"
    assert command_options(tmp_path / "a b", None, target=" --lab demo") == f" --control '{tmp_path}/a b'"


def test_places() -> None:
    host = find_endpoint(db=None, env={})
    lab = find_endpoint(db="unix:/run/xenoovs/lab/x/ovs/db.sock", env={})
    remote = find_endpoint(db="tcp:192.0.2.1:6640", env={})
    assert agent_paths(host, env={}, is_root=True).socket("br") == Path("/run/xenoovs/br.sock")
    assert agent_paths(host, env={}, is_root=True).runtime("br") == Path("/var/lib/xenoovs/br.json")
    assert agent_paths(lab, env={}, is_root=True).socket("br") == Path("/run/xenoovs/lab/x/ovs/xenoovs/br.sock")
    env = {"XDG_RUNTIME_DIR": "/run/user/7", "HOME": "/home/me"}
    assert agent_paths(host, env=env, is_root=False).socket("br") == Path("/run/user/7/xenoovs/br.sock")
    assert agent_paths(host, env=env, is_root=False).runtime("br") == Path("/home/me/.local/state/xenoovs/br.json")
    assert agent_paths(remote, env=env, is_root=True).run.parent == Path("/run/xenoovs")
    with pytest.raises(ListenError, match="XDG_RUNTIME_DIR"):
        agent_paths(host, env={}, is_root=False)


def test_one_database_has_one_place_however_it_is_spelled() -> None:
    """/var/run is a link to /run: two agents of one bridge had a lock each."""
    host = agent_paths(find_endpoint(db=None, env={}), env={}, is_root=True)
    for db in ("unix:/run/openvswitch/db.sock", "unix:/var/run/../run/openvswitch/db.sock"):
        assert agent_paths(find_endpoint(db=db, env={}), env={}, is_root=True) == host
