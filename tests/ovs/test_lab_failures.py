"""Backends of a lab fail in every way and recover; agents inside see it, and the host's network sees nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.command_line import CommandLine, finish, start
from tests.ovs.cuts import applied
from tests.ovs.lab_support import WEB, before_services, lab_name, links, remains
from tests.ovs.test_lab_up_down import NOTHING
from tests.patience import eventually
from xenoovs.lab import servers
from xenoovs.lab.host import kill_and_wait
from xenoovs.lab.lab import DIRECTORY_VARIABLE, Lab
from xenoovs.lab.servers import Failure, failures_of
from xenoovs.lab.status import MachineStatus, lab_status
from xenoovs.switch.process import run

NAME = lab_name("fails")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab that was built without health checks, by the command."""
    directory = tmp_path_factory.mktemp("labs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(DIRECTORY_VARIABLE, str(directory))
        with applied(directory.parent / "my.yaml", WEB, NAME) as made:
            yield made
        assert remains(NAME, directory) == NOTHING


@pytest.fixture(autouse=True)
def healthy(lab: Lab, xenoovs: CommandLine) -> Iterator[None]:
    yield
    xenoovs("lab", "fail", "--end", "--lab", NAME)
    # A link that comes up forgets its neighbours: the first question may get no answer.
    eventually(lambda: lab_status(lab).is_healthy, "a lab whose machines all work")


def one(lab: Lab) -> MachineStatus:
    return next(machine for machine in lab_status(lab).machines if machine.machine.names == ("one",))


@pytest.mark.parametrize(
    ("how", "answer"),
    [
        ("port", "connection refused"),
        ("slow", "b1 one"),
        pytest.param("link", r"no answer in 2\.5s|no route to host", marks=pytest.mark.long),
        pytest.param("silent", r"no answer in 2\.5s", marks=pytest.mark.long),
    ],
)
def test_status_shows_how_a_backend_fails_and_what_it_answers(
    how: str, answer: str, lab: Lab, xenoovs: CommandLine
) -> None:
    before = one(lab)
    assert (before.is_up, before.answer, before.failure) == (True, "b1 one", None)
    assert xenoovs("lab", "fail", "one", "--how", how, "--lab", NAME).status == 0
    said = xenoovs("lab", "status", "--lab", NAME)
    assert said.status == 2
    failed = re.compile(rf"^one .* failed: {how} +({answer})", re.MULTILINE)
    # A busy machine may be too late for an answer that is slow already.
    eventually(
        lambda: failed.search(xenoovs("lab", "status", "--lab", NAME).out) is not None, "the failure and the answer"
    )
    assert re.search(rf"^{NAME} +failing ", xenoovs("lab", "list").out, re.MULTILINE)
    eventually(lambda: ((one(lab).latency_s or 0) >= 2) == (how == "slow"), "a late answer, or none")
    after = one(lab)
    assert not after.is_up
    assert before.received is not None
    assert after.received is not None
    assert (after.received > before.received) == (how != "link")
    assert xenoovs("lab", "fail", "one", "--end", "--lab", NAME).out == "one answers again\n"
    eventually(lambda: one(lab).is_up, "it is up again")
    assert xenoovs("lab", "fail", "--end", "--lab", NAME).out == "nothing to do: no backend has failed\n"


HEALTH = "{{probe: {}, interval: 1s, fast_interval: 50ms, timeout: 1s, fall: 2, rise: 2}}"


_HTTP, _DNS = "http, path: '/ready?x=1', body: fine, status: 202-299", "dns, query: example.org, port: 5353"


_DEATHS = (("icmp", "link"), ("tcp", "port"), (_HTTP, "slow"), (_DNS, "silent"))
_MORE_DEATHS = (
    ("icmp", "silent"),
    ("arp", "link silent"),
    ("tcp", "link silent"),
    (_HTTP, "link port silent"),
    ("https", "port slow"),
    (_DNS, "link port slow"),
    ("udp, send: hello, expect: world, port: 9", "port slow"),
)


@pytest.mark.parametrize("deaths", [_DEATHS, pytest.param(_MORE_DEATHS, marks=pytest.mark.long)], ids=["each", "more"])
def test_an_agent_in_the_lab_sees_real_deaths_and_announces_no_vip_on_the_host(
    deaths: Sequence[tuple[str, str]], lab: Lab, xenoovs: CommandLine, tmp_path: Path
) -> None:
    """Its config has health checks that the lab was not built for, and no addresses."""
    config, before = tmp_path / "my.yaml", links()

    def write(probe: str) -> None:
        config.write_text(before_services(f"announce: {{bgp: frr}}\nhealth: {HEALTH.format(probe)}"))

    def state() -> str:
        said = xenoovs("status", "--lab", NAME, "-o", "json")
        if said.status not in (0, 2):
            return said.err
        (service,) = json.loads(said.out).get("snapshot", {"services": [{"backends": []}]})["services"]
        return " ".join(backend["state"] for backend in service["backends"])

    write(deaths[0][0])
    with start("agent", config, "--lab", NAME) as agent:
        try:
            for probe, failures in deaths:
                write(probe)
                eventually(lambda: state() == "up up", "both are up")
                for how in failures.split():
                    fail, end = ("lab", "fail", "one", "--how", how), ("lab", "fail", "one", "--end")
                    # An agent that takes a new config changes the lab for a moment, and no command may meanwhile.
                    eventually(lambda fail=fail: xenoovs(*fail, "--lab", NAME).status == 0, how)  # type: ignore[misc]
                    eventually(lambda: state() == "down up", f"{probe}, {how}: one is down")
                    eventually(lambda end=end: xenoovs(*end, "--lab", NAME).status == 0, "end")  # type: ignore[misc]
                    eventually(lambda: state() == "up up", f"{probe}, {how}: one is up again")
            assert links() == before
        finally:
            agent.send_signal(signal.SIGTERM)
            agent.communicate()
    assert agent.returncode == 0
    assert links() == before


def test_bug_status_of_a_lab_that_goes_down_meanwhile_was_an_error(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(netns: str, _: object) -> None:
        raise OSError(f"network namespace {netns} does not exist")

    monkeypatch.setattr("xenoovs.agent.probe.sockets.in_namespace", gone)
    assert re.fullmatch(r"network namespace \S+ does not exist", one(lab).answer)


def test_a_backend_that_is_not_there(xenoovs: CommandLine, lab: Lab) -> None:
    for words, message in (
        (["oen"], "has no backend 'oen'; did you mean one?"),
        (["nothing"], "has no backend 'nothing'; it has one, two"),
        (["nothing", "--end"], "has no backend 'nothing'; it has one, two"),
    ):
        said = xenoovs("lab", "fail", *words, "--lab", NAME)
        assert (said.status, f"lab {NAME} {message}" in said.err) == (1, True)


def test_a_probe_that_does_not_notice_is_named(lab: Lab, xenoovs: CommandLine, tmp_path: Path) -> None:
    config = tmp_path / "my.yaml"
    config.write_text(before_services("health: {probe: tcp}"))
    assert finish(start("agent", config, "--once", "--lab", NAME)).status == 0
    said = xenoovs("lab", "fail", "one", "--how", "slow", "--lab", NAME)
    assert "health check of web does not notice: the kernel still answers tcp probes" in said.out
    assert "does not notice" not in xenoovs("lab", "fail", "two", "--how", "port", "--lab", NAME).out


def test_commands_without_a_file_use_the_config_of_the_last_agent(
    lab: Lab, xenoovs: CommandLine, tmp_path: Path
) -> None:
    """They used the one of `lab up`, although the agent in the lab ran with another."""
    config = tmp_path / "other.yaml"
    config.write_text(WEB.replace("weight: 1", "weight: 2"))
    assert finish(start("agent", config, "--once", "--lab", NAME)).status == 0
    (row,) = [row for row in json.loads(xenoovs("lab", "list", "-o", "json").out)["labs"] if row["lab"] == NAME]
    assert row["config"] == str(config)
    assert "nothing to do" in xenoovs("plan", "--lab", NAME).out


@pytest.mark.parametrize("moments", [(300,), pytest.param(range(100, 900, 100), marks=pytest.mark.long)])
def test_end_repairs_what_a_killed_fail_has_left(lab: Lab, xenoovs: CommandLine, moments: Iterable[int]) -> None:
    """It is killed at many moments: `--end` always brings the backend back, and a program runs only once."""
    for milliseconds in moments:
        for how in Failure:
            victim = start("lab", "fail", "one", "--how", how.value, "--lab", NAME)
            try:
                victim.wait(milliseconds / 1000)
            except subprocess.TimeoutExpired:
                victim.kill()
            victim.communicate()
    assert xenoovs("lab", "fail", "--end", "--lab", NAME).status == 0
    assert failures_of(lab) == {}
    eventually(lambda: one(lab).is_up, "it is up again")
    namespace = one(lab).machine.namespace
    eventually(lambda: len(run(["ip", "netns", "pids", namespace]).stdout.split()) == 1, "one program")


def test_a_program_of_a_killed_command_that_comes_late_is_ended(
    lab: Lab, xenoovs: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cannot listen: Address already in use`: the first look did not see it."""
    looks = list[list[int]]()

    def ended_from_the_second_look(pids: Iterable[int]) -> bool:
        looks.append([*pids])
        return len(looks) == 1 or kill_and_wait(looks[-1])

    monkeypatch.setattr(servers, "kill_and_wait", ended_from_the_second_look)
    assert xenoovs("lab", "fail", "one", "--how", "slow", "--lab", NAME).status == 0
    assert len(looks) == 2
    assert xenoovs("lab", "fail", "one", "--end", "--lab", NAME).status == 0


def test_a_program_that_was_killed_by_hand_is_down_and_heals(lab: Lab, xenoovs: CommandLine) -> None:
    (pid,) = run(["ip", "netns", "pids", one(lab).machine.namespace]).stdout.split()
    os.kill(int(pid), signal.SIGKILL)
    eventually(lambda: one(lab).answer == "connection refused", "it is seen")
    assert re.search(r"^one .* down +connection refused", xenoovs("lab", "status", "--lab", NAME).out, re.MULTILINE)
    assert xenoovs("lab", "fail", "--end", "--lab", NAME).out == "one answers again\n"
