"""The completion experiment without a lab: points, verdicts, and the packets of the published algorithm."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pytest

from tests.judged import assert_recorded
from tests.unit.measure.made import DEAD, ELEPHANT
from xenoovs.measure.completion import CompletionCase, Scene, acceptance, points_of, scenes_of
from xenoovs.measure.fabric_bed import RoutingDesign
from xenoovs.measure.probe_per_flow import probe_like, with_source_port
from xenoovs.measure.samples import Sample, Value
from xenoovs.model.address import checksum


def test_every_scene_has_its_undisturbed_time_once() -> None:
    points = points_of(scenes_of(CompletionCase, None), tuple(RoutingDesign))
    keys = [tuple(point.values()) for point in points]
    assert len(set(keys)) == len(keys)
    for point in points:
        if point["case"] not in ("alone", "steady"):
            assert ("alone", point["flows"], point["bytes"], 0.0, "ecmp") in keys
    # Sub-saturating elephants, and none: only the design with moves is of interest.
    assert [(point["load"], point["design"]) for point in points if point["case"] == "steady"] == [
        (load, "blocks") for load in (0.0, 0.5, 0.9, 1.0)
    ]


def test_one_size_holds_for_all_cases_and_a_scene_survives_its_point() -> None:
    scenes = scenes_of((CompletionCase.ELEPHANT, CompletionCase.DEAD), (3, 7_000))
    assert scenes == (Scene(CompletionCase.ELEPHANT, 3, 7_000, 1.2), Scene(CompletionCase.DEAD, 3, 7_000, 0.0))
    assert Scene.of(ELEPHANT.point(RoutingDesign.DOCA_AR)) == ELEPHANT


def _udp_frame(source: int, payload: bytes, *, has_checksum: bool) -> bytes:
    addresses = bytes((10, 1, 1, 2, 10, 2, 1, 2))
    head = struct.pack("!HHHH", source, 4789, 8 + len(payload), 0)
    found = checksum(addresses + struct.pack("!HH", 17, 8 + len(payload)) + head + payload)
    head = head[:6] + struct.pack("!H", found if has_checksum else 0)
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 28 + len(payload), 7, 0x4000, 64, 17, 0) + addresses
    return bytes(12) + b"\x08\x00" + ip + head + payload


@pytest.mark.parametrize("has_checksum", [True, False])
def test_a_rewritten_port_keeps_the_checksum_right_and_none_is_none(*, has_checksum: bool) -> None:
    for port in (0, 1, 49152, 49999, 65535):
        changed = with_source_port(_udp_frame(50000, b"abcdef", has_checksum=has_checksum), port)
        assert changed == _udp_frame(port, b"abcdef", has_checksum=has_checksum)


def test_a_probe_has_the_headers_of_its_flow() -> None:
    frame = _udp_frame(50000, b"x" * 60, has_checksum=True)
    probe = probe_like(frame, 50003, b"0123456789abcdef")
    assert probe[:14] == frame[:14]
    assert probe[26:34] == frame[26:34]
    assert checksum(probe[14:34]) == 0
    assert (probe[15], probe[22]) == (0x20, 64)
    # The length includes the header of UDP, which the published sender leaves out.
    assert struct.unpack_from("!HHHH", probe, 34) == (50003, 4789, 8 + 16, 0)
    assert struct.unpack_from("!H", probe, 16)[0] == len(probe) - 14


ALONE = Scene(CompletionCase.ALONE, 10, 50_000, 0.0)
LATER, ALONE_LONG = Scene(CompletionCase.LATER, 10, 1_000_000, 1.2), Scene(CompletionCase.ALONE, 10, 1_000_000, 0.0)
REVERSE, SMALL = Scene(CompletionCase.REVERSE, 10, 250_000, 1.2), Scene(CompletionCase.ELEPHANT, 10, 12_500, 1.2)
RIGHT_S: Mapping[tuple[Scene, str], float] = {
    **{(scene, design): 0.1 for scene in (ALONE, ALONE_LONG) for design in ("ecmp", "blocks")},
    (ELEPHANT, "ecmp"): 0.5,
    (ELEPHANT, "doca-ar"): 0.12,
    (ELEPHANT, "blocks"): 0.11,
    (LATER, "ecmp"): 1.0,
    (LATER, "doca-ar"): 0.4,
    (LATER, "blocks"): 0.12,
    (DEAD, "blocks"): 0.12,
    (REVERSE, "blocks"): 0.1,
}
SHUFFLED = {(scene, "blocks"): 0.1 for scene in (REVERSE, DEAD, LATER, ELEPHANT, SMALL, ALONE_LONG, ALONE)}


def verdicts(
    times_s: Mapping[tuple[Scene, str], float] = RIGHT_S, *, repeats: int = 10, **more: float
) -> Iterator[str]:
    """Of a run whose repeats vary by 2 %. `more`: other values of our samples that nothing disturbs."""
    found = list[Sample]()
    for (scene, design), time_s in times_s.items():
        for repeat in range(repeats):
            values: dict[str, Value] = {"completion_s": time_s * (1 + repeat % 3 / 100), "completed": 10, "flows": 10}
            if design == "blocks":
                is_out = scene.case in (CompletionCase.ELEPHANT, CompletionCase.LATER, CompletionCase.DEAD)
                values |= {"moves": 16.0 if is_out else 0.0}
                values |= {"emptied_s": 0.2} if scene is DEAD else {}
                values |= {} if is_out else more
            found.append(Sample("completion", {**scene.point(RoutingDesign(design))}, repeat, "", values))
    return (f"{one.claim}: {one.outcome.value}: {one.reason}" for one in acceptance(found))


def but(scene: Scene, design: str, time_s: float) -> Iterator[str]:
    """The verdicts where one time differs."""
    return verdicts({**RIGHT_S, (scene, design): time_s})


OTHERS = {key: time_s for key, time_s in RIGHT_S.items() if key[1] != "blocks"}
JUDGED: dict[str, Callable[[], Iterator[str]]] = {
    "all claims are confirmed": verdicts,
    "moving blocks are slow beside an elephant": partial(but, ELEPHANT, "blocks", 0.15),
    "moving blocks are slow behind a dead spine": partial(but, DEAD, "blocks", 0.2),
    "ECMP is nearly as fast": partial(but, ELEPHANT, "ecmp", 0.2),
    "ECMP is nearly as fast if the elephant comes later": partial(but, LATER, "ecmp", 0.2),
    "a probe for each flow is faster": partial(but, ELEPHANT, "doca-ar", 0.09),
    "as fast as a probe for each flow is enough in its own scene": partial(but, ELEPHANT, "doca-ar", 0.11),
    "a probe for each flow is nearly as fast if the elephant comes later": partial(but, LATER, "doca-ar", 0.2),
    "moving blocks are slower where nothing disturbs": partial(but, ALONE, "blocks", 0.12),
    "a move without a cause": partial(verdicts, moves=1.0),
    "flows that do not end": partial(verdicts, completed=9.0),
    "too few samples decide nothing": partial(verdicts, repeats=3),
    "nothing is claimed of other designs": partial(verdicts, OTHERS),
    "reasons have the order of scenes whatever that of samples": partial(verdicts, SHUFFLED),
}


def test_claims_about_adaptive_routing_are_judged_as_recorded(*, update_golden: bool) -> None:
    assert_recorded(
        "measure/routing.txt", {title: "\n".join(found()) for title, found in JUDGED.items()}, update=update_golden
    )
