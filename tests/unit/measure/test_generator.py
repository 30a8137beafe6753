"""The frames of a load: sizes, checksums, and clients of which every block has its share."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Timer
from typing import cast

import pytest

from tests.command_line import SMALL_CONFIG
from xenoovs.errors import CommandTimeout, MeasureError
from xenoovs.lab.place import RemoteCommand
from xenoovs.measure import pktgen_program
from xenoovs.measure.frames import LoadProfile, frame, load_profile, other_half, sources
from xenoovs.measure.generator import RunningLoad, _counted, pktgen_settings
from xenoovs.model.address import checksum
from xenoovs.model.balancer import BlockKey, KeyField
from xenoovs.model.load import parse_config
from xenoovs.switch.process import Completed


def profile(config: str = SMALL_CONFIG, *, clients: int = 4096, seed: int = 0) -> LoadProfile:
    balancer = parse_config(config, file="config")
    macs = {"source_mac": "02:00:00:00:00:01", "gateway_mac": "02:00:00:00:00:02"}
    return load_profile(balancer, balancer.services[0], **macs, clients=clients, seed=seed)


@pytest.mark.parametrize(
    ("vip", "size"), [("10.3.10.45", 68), ("10.3.10.45", 1518), ("2001:db8::45", 68), ("2001:db8::45", 512)]
)
def test_a_frame_has_the_size_with_its_fcs_and_right_checksums(vip: str, size: int) -> None:
    load = profile(SMALL_CONFIG.replace("10.3.10.45", vip))
    source, port = sources(load)[0]
    data = frame(load, source, port, frame_bytes=size)
    assert len(data) + 4 == size
    header = 20 if load.family.bits == 32 else 40
    packet, udp = data[14 : 14 + header], data[14 + header :]
    if load.family.bits == 32:
        assert checksum(packet) == 0
    pseudo = source.packed + load.vip.packed + bytes([0, 17]) + len(udp).to_bytes(2, "big")
    assert checksum(pseudo + udp) == 0


@pytest.mark.parametrize(("clients", "seed"), [(1, 0), (10, 1), (1000, 99), (4096, 0)])
def test_every_block_has_its_share_of_the_clients(clients: int, seed: int) -> None:
    load = profile(clients=clients, seed=seed)
    found = sources(load)
    assert len(set(found)) == clients
    for depth in range(8):
        counts = Counter(int(address) & (1 << depth) - 1 for address, _ in found)
        spread = [counts[value] for value in range(1 << depth)]
        assert max(spread) - min(spread) <= 1
    assert all(address in load.net for address, _ in found)


def test_blocks_of_other_bits_have_their_share_too() -> None:
    load = profile(clients=1024)
    high = replace(load, service=replace(load.service, key=BlockKey(positions=(24, 9))))
    counts = Counter((int(address) >> 24 & 1, int(address) >> 9 & 1) for address, _ in sources(high))
    assert set(counts.values()) == {256}
    ports = replace(load, service=replace(load.service, key=BlockKey(field=KeyField.SOURCE_PORT, positions=(0, 1))))
    assert set(Counter(port & 3 for _, port in sources(ports)).values()) == {256}


def test_the_client_of_round_trips_is_no_client_of_the_load() -> None:
    load = profile()
    assert (str(load.net), str(other_half(load))) == ("198.18.0.0/16", "198.19.0.0/16")


def test_what_cannot_be_sent_is_refused() -> None:
    load = profile()
    source, port = sources(load)[0]
    for size in (63, 1519):
        with pytest.raises(MeasureError, match=f"a frame of {size} bytes is not possible: 64 to 1518"):
            frame(load, source, port, frame_bytes=size)
    with pytest.raises(MeasureError, match="service dns serves tcp, and the load is UDP"):
        profile(SMALL_CONFIG.replace("udp", "tcp"))


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
def test_a_generator_that_died_is_reported_with_its_reason_and_one_that_hangs_is_ended(
    stdout: str, exit_code: int, stderr: str, message: str
) -> None:
    with pytest.raises(MeasureError, match=message):
        load(stdout, exit_code=exit_code, stderr=stderr).wait()
    with pytest.raises(CommandTimeout):
        RunningLoad(cast(RemoteCommand, hanging := Ended(None)), 1.0, _counted).wait()
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
    from xenoovs.measure.generator import _counted_by_pktgen as counted

    assert counted(json.dumps({"sent": 5, "seconds_s": 0.5})) == (5, 0.5)
    assert [counted(text) for text in ("", "[]", '{"sent": 1}', '{"sent": "x", "seconds_s": 1}')] == [None] * 4


def test_the_result_of_pktgen_is_read_again_until_its_thread_has_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load that ended on time failed with `pktgen: Result: Starting`."""
    monkeypatch.setattr(pktgen_program, "ROOT", tmp_path)
    shown = tmp_path / "cl1"
    shown.write_text("Params: count 0\nResult: Starting\n")
    later = Timer(0.1, shown.write_text, ["Result: OK: 406213(c406000+d213) usec, 29661 (64byte,0frags)\n"])
    later.start()
    assert pktgen_program.result("cl1") == (406_213, 29_661)
    later.join()
    monkeypatch.setattr(pktgen_program, "STOP_S", 0)
    shown.write_text("Result: Starting\n")
    with pytest.raises(OSError, match="Result: Starting"):
        pktgen_program.result("cl1")
