"""`lab traffic --for` runs beside other commands, and ends cleanly whatever happens to it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.command_line import CommandLine, finish, start
from tests.ovs.cuts import applied
from tests.ovs.lab_support import WEB, lab_name
from tests.patience import eventually
from tests.processes import command_line
from xenoovs.lab.host import marked_processes
from xenoovs.lab.lab import DIRECTORY_VARIABLE, MARK, Lab

NAME = lab_name("paced")
DNS = """\
  - name: dns
    vip: 10.3.10.46
    protocol: udp
    ports: [53]
    backends:
      - {name: one, mac: 02:00:5e:10:00:02, weight: 1}
      - {name: two, mac: 02:00:5e:10:00:03, weight: 1}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("paced")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(DIRECTORY_VARIABLE, str(directory / "labs"))
        with applied(directory / "my.yaml", WEB + DNS, NAME) as made:
            yield made


def senders(lab: Lab) -> list[int]:
    """The processes that send."""
    return [pid for pid in marked_processes(MARK, str(lab.directory)) if b"lab.client" in command_line(pid)]


def traffic(*options: str) -> subprocess.Popen[str]:
    return start("lab", "traffic", "--lab", NAME, "--rate", "400", *options)


def endless(lab: Lab) -> subprocess.Popen[str]:
    """Traffic for an hour, whose two programs send."""
    process = traffic("--for", "1h")
    eventually(lambda: len(senders(lab)) == 2, "both programs send")
    return process


def test_both_protocols_are_sent_at_the_rate_until_the_time_is_over(lab: Lab) -> None:
    said = finish(traffic("--for", "3s", "-o", "json"))
    assert said.status == 0, said.err
    services = {service["service"]: service for service in json.loads(said.out)["services"]}
    for service in services.values():
        # A busy machine may send fewer, never more.
        assert 100 < service["sent"] <= 601
        assert service["lost"] == 0
        assert all(backend["answered"] > 0 for backend in service["backends"])


def test_a_signal_ends_it_with_the_summary(lab: Lab) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        process = endless(lab)
        process.send_signal(number)
        said = finish(process)
        assert said.status in (0, 1), said.err  # 1: nothing was sent yet
        summary = r"^dns: \d+ udp packets? of \d+ clients? in \S+, \d+ answered, 0 lost$"
        assert re.search(summary, said.out, re.MULTILINE)
        assert senders(lab) == []


def test_killed_it_leaves_no_sender_and_a_sender_that_is_killed_is_named(lab: Lab) -> None:
    process = endless(lab)
    process.kill()
    process.communicate()
    eventually(lambda: senders(lab) == [], "the programs end by themselves")
    process = endless(lab)
    for pid in senders(lab):
        with suppress(ProcessLookupError):  # The end of one ends the other.
            os.kill(pid, signal.SIGKILL)
    said = finish(process)
    assert said.status == 1
    assert f"traffic ended early in lab {NAME}: its program ended with status -9" in said.err


def test_a_backend_that_fails_on_the_way_is_seen_in_the_losses(lab: Lab, xenoovs: CommandLine) -> None:
    process = traffic("--for", "1h", "--udp", "-o", "json")
    eventually(lambda: len(senders(lab)) == 1, "it sends")
    assert xenoovs("lab", "fail", "one", "--how", "silent", "--lab", NAME).status == 0
    eventually(lambda: received(xenoovs) > 500, "packets go on")
    process.send_signal(signal.SIGINT)
    said = finish(process)
    assert said.status == 2
    (service,) = json.loads(said.out)["services"]
    assert service["lost"] > service["sent"] / 10
    assert xenoovs("lab", "fail", "--end", "--lab", NAME).status == 0


def received(xenoovs: CommandLine) -> int:
    """Packets that the silent backend got."""
    machines = json.loads(xenoovs("lab", "status", "--lab", NAME, "-o", "json").out)["machines"]
    return int(next(machine["received"] for machine in machines if "one" in machine["names"]))


def test_traffic_says_when_the_edited_config_is_not_applied(lab: Lab, xenoovs: CommandLine) -> None:
    words = ("lab", "traffic", "--lab", NAME, "--packets", "50", "--udp")
    assert xenoovs(*words).err == ""
    config = lab.directory.parent.parent / "my.yaml"
    config.write_text(WEB + DNS.replace("00:03, weight: 1", "00:03, weight: 3"))
    said = xenoovs(*words)
    assert re.search(r"^dns +two +75% +50% ", said.out, re.MULTILINE)
    assert said.err.startswith(
        "note: dns differs on the bridge from the config: SHARE and TRAFFIC are of what is applied"
    )
    assert xenoovs("apply", config, "--lab", NAME, "--yes").status == 0
    assert xenoovs(*words).err == ""
