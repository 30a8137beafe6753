"""The completion experiment without a lab: points, figures, picture, and the packets of the published algorithm."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import pytest

from tests.unit.measure.made import recorded
from xenoovs.measure.charts import chart_of
from xenoovs.measure.completion import CompletionCase, Scene, points_of, scenes_of
from xenoovs.measure.completion_figures import acceptance, figures_of
from xenoovs.measure.pictures import svg_of
from xenoovs.measure.probe_per_flow import probe_like, with_source_port
from xenoovs.measure.routing_designs import RoutingDesign
from xenoovs.measure.samples import Point, RecordedRun, Sample, Value
from xenoovs.measure.verdict import ClaimOutcome, ClaimVerdict
from xenoovs.model.address import checksum

ELEPHANT = Scene(CompletionCase.ELEPHANT, 10, 50_000, 1.2)
ALONE = Scene(CompletionCase.ALONE, 10, 50_000, 0.0)
TIMES_S = {"ecmp": (0.6, 1.0, 0.8), "doca-ar": (0.12, 0.16, 0.14), "blocks": (0.1, 0.2, 0.12)}


def completion_run() -> RecordedRun:
    def values(point: Point, repeat: int) -> Mapping[str, Value]:
        if point["case"] == "alone":
            return {"completion_s": 0.1, "flow_s": [0.1] * 10, "completed": 10, "flows": 10}
        design = str(point["design"])
        more: dict[str, Value] = {"moves": 16, "emptied_s": 0.3} if design == "blocks" else {}
        return {"completion_s": TIMES_S[design][repeat], "completed": 9, "flows": 10, **more}

    return recorded("completion", points_of((ELEPHANT,), tuple(RoutingDesign)), values, repeats=3)


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


def test_figures_of_a_scene() -> None:
    run = completion_run()
    found = {one.design: one for one in figures_of(run.run.points, run.samples)[ELEPHANT]}
    assert [*found] == ["ecmp", "doca-ar", "blocks"]
    blocks = found["blocks"]
    assert (blocks.least_s, blocks.median_s, blocks.greatest_s) == (0.1, 0.12, 0.2)
    assert blocks.mean_s == pytest.approx(0.14)
    assert (blocks.undisturbed_s, blocks.ecmp_s) == (0.1, 0.8)
    assert blocks.gain == pytest.approx(0.8 / 0.12)
    assert (blocks.completed, blocks.flows, blocks.moves, blocks.emptied_s) == (27, 30, 16, 0.3)
    assert (found["ecmp"].gain, found["ecmp"].moves) == (1.0, None)


def test_the_picture_has_every_design_and_the_published_figures() -> None:
    chart = chart_of([completion_run()], [""])
    assert chart is not None
    measured, published = chart.panels
    assert measured.categories == ("elephant, 10 x 50 kB",)
    values = [bars.marks[measured.categories[0]].value.estimate for bars in measured.bars]
    assert values == pytest.approx([120, 140, 800, 100])
    assert published.categories == ("10 flows, elephant", "10 flows, alone", "50 flows, elephant", "50 flows, alone")
    means = [[bars.marks[scene].value.estimate for bars in published.bars] for scene in published.categories]
    assert means == [[34.21, 920.81], [27.32, 26.97], [334.52, 1857.05], [221.72, 236.18]]
    assert len(chart.table.rows) == 4
    assert "without txrehash" in chart.caption
    assert svg_of(chart) == svg_of(chart)


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


LATER, DEAD = Scene(CompletionCase.LATER, 10, 1_000_000, 1.2), Scene(CompletionCase.DEAD, 10, 1_000_000, 0.0)
REVERSE, ALONE_LONG = Scene(CompletionCase.REVERSE, 10, 250_000, 1.2), Scene(CompletionCase.ALONE, 10, 1_000_000, 0.0)
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
NEAR, ECMP, PROBES, ALIKE, NO_MOVES, EMPTY, COMPLETE = range(7)


def verdicts(
    times_s: Mapping[tuple[Scene, str], float] = RIGHT_S, *, repeats: int = 10, **more: float
) -> list[ClaimVerdict]:
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
    return [*acceptance(found)]


def test_every_claim_about_adaptive_routing_has_a_verdict() -> None:
    found = verdicts()
    assert [each.outcome for each in found] == [ClaimOutcome.CONFIRMED] * 7
    assert found[ECMP].reason.startswith("elephant, 10 x 50 kB: 4.55x (4.")
    assert "dead, 10 x 1000 kB: 0.20" in found[EMPTY].reason
    assert found[NO_MOVES].reason.count(": 0 moves in 0 of 10 samples") == 3


@pytest.mark.parametrize(
    ("scene", "design", "time_s", "claim", "outcome"),
    [
        (ELEPHANT, "blocks", 0.15, NEAR, ClaimOutcome.REFUTED),
        (ELEPHANT, "ecmp", 0.2, ECMP, ClaimOutcome.REFUTED),
        (LATER, "ecmp", 0.2, ECMP, ClaimOutcome.REFUTED),
        (ELEPHANT, "doca-ar", 0.09, PROBES, ClaimOutcome.REFUTED),
        # As fast as a probe for each flow is enough in its own scene.
        (ELEPHANT, "doca-ar", 0.11, PROBES, ClaimOutcome.CONFIRMED),
        (LATER, "doca-ar", 0.2, PROBES, ClaimOutcome.REFUTED),
        (ALONE, "blocks", 0.12, ALIKE, ClaimOutcome.REFUTED),
        (DEAD, "blocks", 0.2, NEAR, ClaimOutcome.REFUTED),
    ],
)
def test_a_ratio_on_the_wrong_side_of_its_limit_is_refuted(
    scene: Scene, design: str, time_s: float, claim: int, outcome: ClaimOutcome
) -> None:
    assert verdicts({**RIGHT_S, (scene, design): time_s})[claim].outcome is outcome


def test_a_move_without_a_cause_is_refuted_and_too_few_samples_decide_nothing() -> None:
    assert verdicts(moves=1.0)[NO_MOVES].outcome is ClaimOutcome.REFUTED
    assert verdicts(completed=9.0)[COMPLETE].outcome is ClaimOutcome.REFUTED
    few = [each.outcome for each in verdicts(repeats=3)]
    assert few == [*[ClaimOutcome.UNDECIDED] * 6, ClaimOutcome.CONFIRMED]
    assert verdicts({key: value for key, value in RIGHT_S.items() if key[1] != "blocks"}) == []


def test_reasons_have_the_order_of_scenes_whatever_the_order_of_samples() -> None:
    small = Scene(CompletionCase.ELEPHANT, 10, 12_500, 1.2)
    shuffled = {(scene, "blocks"): 0.1 for scene in (REVERSE, DEAD, LATER, ELEPHANT, small, ALONE_LONG, ALONE)}
    reason = verdicts(shuffled)[-1].reason
    assert [part.partition(":")[0] for part in reason.split("; ")] == [
        "alone, 10 x 50 kB",
        "alone, 10 x 1000 kB",
        "elephant, 10 x 12.5 kB",
        "elephant, 10 x 50 kB",
        "later, 10 x 1000 kB",
        "dead, 10 x 1000 kB",
        "reverse, 10 x 250 kB",
    ]


@pytest.mark.parametrize(("ended", "is_unfinished"), [((10, 10, 9), False), ((10, 9, 9), True)])
def test_a_bar_at_the_time_limit_is_marked_as_not_done(ended: tuple[int, ...], is_unfinished: bool) -> None:
    def values(_point: Point, repeat: int) -> Mapping[str, Value]:
        return {"completion_s": 30.0 if ended[repeat] < 10 else 1.0, "completed": ended[repeat], "flows": 10}

    chart = chart_of([recorded("completion", [DEAD.point(RoutingDesign.ECMP)], values, repeats=3)], [""])
    assert chart is not None
    (mark,) = chart.panels[0].bars[0].marks.values()
    assert mark.is_unfinished is is_unfinished
