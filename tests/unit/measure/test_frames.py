"""The frames of a load: sizes, checksums, and clients of which every block has its share."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from ipaddress import ip_network

import pytest

from tests.command_line import SMALL_CONFIG
from xenoovs.config.load import parse_config
from xenoovs.errors import MeasureError
from xenoovs.measure.frames import LoadProfile, _checksum, frame, load_profile, other_half, pcap_file, sources
from xenoovs.model.balancer import BlockKey, KeyField


def profile(config: str = SMALL_CONFIG, *, clients: int = 4096, seed: int = 0) -> LoadProfile:
    balancer = parse_config(config, file="config")
    macs = {"source_mac": "02:00:00:00:00:01", "gateway_mac": "02:00:00:00:00:02"}
    return load_profile(balancer, balancer.services[0], **macs, clients=clients, seed=seed)


@pytest.mark.parametrize("vip", ["10.3.10.45", "2001:db8::45"])
@pytest.mark.parametrize("size", [68, 512, 1518])
def test_a_frame_has_the_size_with_its_fcs_and_right_checksums(vip: str, size: int) -> None:
    load = profile(SMALL_CONFIG.replace("10.3.10.45", vip))
    source, port = sources(load)[0]
    data = frame(load, source, port, frame_bytes=size)
    assert len(data) + 4 == size
    header = 20 if load.family.bits == 32 else 40
    packet, udp = data[14 : 14 + header], data[14 + header :]
    if load.family.bits == 32:
        assert _checksum(packet) == 0
    pseudo = source.packed + load.vip.packed + bytes([0, 17]) + len(udp).to_bytes(2, "big")
    assert _checksum(pseudo + udp) == 0


@pytest.mark.parametrize("clients", [1, 10, 1000, 4096])
@pytest.mark.parametrize("seed", [0, 1, 99])
def test_every_block_has_its_share_of_the_clients(clients: int, seed: int) -> None:
    found = sources(profile(clients=clients, seed=seed))
    assert len(set(found)) == clients
    for depth in range(8):
        counts = Counter(int(address) & (1 << depth) - 1 for address, _ in found)
        spread = [counts[value] for value in range(1 << depth)]
        assert max(spread) - min(spread) <= 1
    assert all(address in profile().net for address, _ in found)


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
    assert load.net.supernet() == ip_network("198.18.0.0/15")


def test_frames_of_no_possible_size_are_refused() -> None:
    load = profile()
    source, port = sources(load)[0]
    for size in (63, 1519):
        with pytest.raises(MeasureError, match=f"a frame of {size} bytes is not possible: 64 to 1518"):
            frame(load, source, port, frame_bytes=size)


def test_services_without_udp_are_refused() -> None:
    with pytest.raises(MeasureError, match="service dns serves tcp, and the load is UDP"):
        profile(SMALL_CONFIG.replace("udp", "tcp"))


def test_a_pcap_file_has_every_frame() -> None:
    data = pcap_file([b"a" * 60, b"b" * 100])
    assert len(data) == 24 + 2 * 16 + 160
