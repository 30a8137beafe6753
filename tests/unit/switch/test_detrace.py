"""ofproto/detrace: the thread that has the megaflow is found, for the kernel's datapath and the userspace one."""

from __future__ import annotations

from pathlib import Path

import pytest

from xenoovs.switch.appctl import detrace
from xenoovs.switch.endpoint import Endpoint

_SCRIPT = """#!/bin/sh
case "$*" in
*list-commands*) echo "The available commands are:"; echo "  %(known)s" ;;
"ofproto/detrace ufid:1%(thread)s") echo "duration=1s, n_packets=1, actions=drop" ;;
"ofproto/detrace ufid:1"*) echo "UFID was not found for netdev@ovs-netdev" ;;
*) echo "failed to parse ufid" >&2; exit 2 ;;
esac
"""


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Endpoint:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return Endpoint(f"unix:{tmp_path}/db.sock", tmp_path)


def _appctl(directory: Path, *, thread: str, known: str = "ofproto/detrace UFID [pmd=PMD-ID]") -> None:
    script = directory / "ovs-appctl"
    script.write_text(_SCRIPT % {"thread": thread and f" {thread}", "known": known})
    script.chmod(0o755)


@pytest.mark.parametrize("thread", ["pmd=2147483647", "", "pmd=3"], ids=["kernel", "main thread", "polling thread"])
def test_the_thread_that_has_it_is_found(endpoint: Endpoint, tmp_path: Path, thread: str) -> None:
    _appctl(tmp_path, thread=thread)
    assert list(detrace(endpoint, ["1", "2"], cores=[1, 3])) == ["1"]


def test_a_megaflow_that_is_gone_has_no_answer(endpoint: Endpoint, tmp_path: Path) -> None:
    _appctl(tmp_path, thread="pmd=9")
    assert detrace(endpoint, ["1"], cores=[1, 3]) == {}


def test_older_versions_are_not_queried(endpoint: Endpoint, tmp_path: Path) -> None:
    _appctl(tmp_path, thread="pmd=2147483647", known="ofproto/trace")
    assert detrace(endpoint, ["1"]) == {}
