"""Results of a generator: a crash, a clock that was set; and what pktgen can send."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import cast

import pytest

from tests.command_line import SMALL_CONFIG
from tests.unit.measure.test_frames import profile
from xenoovs.errors import CommandTimeout, MeasureError
from xenoovs.measure.generator import RunningLoad, _counted
from xenoovs.measure.pktgen import pktgen_settings
from xenoovs.measure.place import RemoteCommand
from xenoovs.model.balancer import BlockKey, KeyField
from xenoovs.switch.process import Completed

SENT = "Actual: 1000 packets (60000 bytes) sent in {} seconds\n"


@dataclass
class Ended:
    """A command that has ended; None: it hangs."""

    done: Completed | None
    was_ended: bool = False

    def wait(self, timeout_s: float) -> Completed:
        if self.done is None:
            raise CommandTimeout(argv=("tcpreplay",), timeout_s=timeout_s)
        return self.done

    def end(self) -> None:
        self.was_ended = True


def load(stdout: str, *, exit_code: int = 0, stderr: str = "") -> RunningLoad:
    done = Completed(("tcpreplay",), exit_code, stdout, stderr)
    return RunningLoad(cast(RemoteCommand, Ended(done)), 1.0, _counted)


@pytest.mark.parametrize(
    ("stdout", "exit_code", "stderr", "message"),
    [
        ("", -9, "", "the generator ended with status -9: it gave no reason"),
        (SENT.format(1.0), 1, "first\nsendto: Network is down\n", "ended with status 1: sendto: Network is down"),
    ],
)
def test_a_generator_that_died_is_reported_with_its_reason(
    stdout: str, exit_code: int, stderr: str, message: str
) -> None:
    with pytest.raises(MeasureError, match=message):
        load(stdout, exit_code=exit_code, stderr=stderr).wait()


def test_a_generator_that_hangs_is_ended() -> None:
    hanging = Ended(None)
    with pytest.raises(CommandTimeout):
        RunningLoad(cast(RemoteCommand, hanging), 1.0, _counted).wait()
    assert hanging.was_ended


@pytest.mark.parametrize("seconds", ["3600.00", "0.00"])
def test_a_clock_that_was_set_makes_the_sample_suspect(seconds: str) -> None:
    found = load(SENT.format(seconds)).wait()
    (reason,) = found.suspect
    assert reason.endswith(": its clock was set")
    assert 0 < found.seconds_s < 60
    assert load(SENT.format("0.50")).wait().suspect == ()


def test_pktgen_sends_from_as_many_addresses_as_there_are_clients() -> None:
    made = profile(clients=1024)
    settings = dict(line.split(" ", 1) for line in pktgen_settings(made, frame_bytes=512))
    assert (settings["src_min"], settings["src_max"]) == (str(made.net[0]), str(made.net[1023]))
    # Without the FCS, which the NIC adds.
    assert (settings["pkt_size"], settings["dst"], settings["udp_dst_min"]) == ("508", "10.3.10.45", "53")


@pytest.mark.parametrize(
    "key", [BlockKey(KeyField.SOURCE_PORT), BlockKey(positions=(8, 9)), BlockKey(positions=(1, 0)), None]
)
def test_pktgen_refuses_what_it_cannot_send(key: BlockKey | None) -> None:
    made = profile(SMALL_CONFIG.replace("10.3.10.45", "2001:db8::45")) if key is None else profile()
    made = made if key is None else replace(made, service=replace(made.service, key=key))
    with pytest.raises(MeasureError, match="service dns does not split by their lowest bits: use `driver: tcpreplay`"):
        pktgen_settings(made, frame_bytes=512)


def test_the_answer_of_pktgen_is_read_strictly() -> None:
    from xenoovs.measure.pktgen import _counted as counted

    assert counted(json.dumps({"sent": 5, "seconds_s": 0.5})) == (5, 0.5)
    assert [counted(text) for text in ("", "[]", '{"sent": 1}', '{"sent": "x", "seconds_s": 1}')] == [None] * 4
