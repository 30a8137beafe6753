"""An exported fleet, in which a mistake is one sentence with its position, and the bounds of reports of DPUs."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from tests.command_line import SMALL_CONFIG
from tests.fleet_support import EMPTY, committed, given, settled
from xenoovs.errors import ExportMalformed, FleetRefused
from xenoovs.fleet.history import with_entry
from xenoovs.fleet.plan import GENERATION_STEP, next_change, restoring, with_override
from xenoovs.store.export import MAX_SIZE_BYTES, export_text, parse_export
from xenoovs.store.rows import STATUSES
from xenoovs.store.view import (
    MAX_DOWN,
    MAX_DRIFT,
    MAX_ERROR,
    MAX_NAME,
    MAX_VERDICTS,
    Action,
    Changes,
    Dpu,
    DpuStatus,
    FleetView,
    IntentState,
    Watch,
)

DPUS = {
    "dpu1": Dpu("dpu1", frozenset(), rack="r1", wave=1),
    "dpu2": Dpu("dpu2", frozenset({"b", "a"}), is_out=True),
}


def fleet() -> FleetView:
    """With a past and a current config, an override, and groups."""
    view = settled(given(replace(EMPTY, dpus=DPUS), SMALL_CONFIG))
    view = settled(given(view, SMALL_CONFIG.replace("name: dns", "name: dns\n    groups: a")))
    override = with_override(view, ("dns", "fips2"), Fraction(7, 2), author="me", now_ms=5)
    watch = Watch("192.0.2.1/tcp/80", frozenset({"dpu1"}), is_down=True, since_ms=3, generation=4)
    changes = Changes(overrides={("dns", "fips2"): override}, watches={watch.target: watch})
    return settled(committed(view, changes))


def read(document: dict[str, Any]) -> FleetView:
    return parse_export(json.dumps(document).encode(), file="fleet.json")


def test_a_restored_fleet_is_newer_than_all_and_moves_no_client() -> None:
    view = fleet()
    exported = parse_export(export_text(view).encode(), file="fleet.json")
    reports = {"dpu1": DpuStatus("dpu1", applied=view.generation + 7), "liar": DpuStatus("liar", applied=1 << 62)}
    after = committed(EMPTY, restoring(EMPTY, exported, reports, now_ms=0))
    assert after.generation == view.generation + 7 + GENERATION_STEP
    assert {name: each.active for name, each in after.services.items()} == {
        name: each.active for name, each in view.services.items()
    }
    found = (after.dpus, after.overrides, after.intents, after.intent, after.watches)
    assert found == (view.dpus, view.overrides, view.intents, view.intent, view.watches)
    assert next_change(after).is_empty


def test_a_roll_out_is_not_restored() -> None:
    view = given(fleet(), SMALL_CONFIG.replace("weight: 30", "weight: 40"), IntentState.ROLLING, soak_s=60)
    view = settled(view)
    assert view.wave
    exported = parse_export(export_text(view).encode(), file="fleet.json")
    after = committed(EMPTY, restoring(EMPTY, exported, {}, now_ms=0))
    assert (after.wave, after.staged, after.intents[3].state) == (0, {}, IntentState.REFUSED)
    assert next_change(after).is_empty
    assert after.services["dns"].active == view.services["dns"].active


def test_a_store_with_a_config_is_not_replaced() -> None:
    exported = fleet()
    for view in (exported, given(EMPTY, SMALL_CONFIG)):
        with pytest.raises(FleetRefused, match="has a config already"):
            restoring(view, exported, {}, now_ms=0)
    damaged = replace(exported, services={"dns": replace(exported.services["dns"], config="{}")})
    with pytest.raises(FleetRefused, match="the services of the export cannot be used: service dns of the fleet"):
        restoring(EMPTY, damaged, {}, now_ms=0)
    cut = {2: replace(exported.intents[2], text="version: 1\n")}
    with pytest.raises(FleetRefused, match="the config in use of the export cannot be used: intent 2:1:1"):
        restoring(EMPTY, replace(exported, intents=cut), {}, now_ms=0)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("services", 0, "blocks", "0x0/17"), "fips2", r"services\[0\].blocks: '0x0/17' is no block"),
        (("services", 0, "groups"), "a", r'services\[0\].groups: "a" is no list'),
        (("services", 0, "generation"), True, r"services\[0\].generation: true is no whole number"),
        (("services", 0, "name"), "", r"services\[0\].name: 0 characters are not 1 to 128"),
        (("services", 0, "config"), "[]", r"services\[0\].config: not a JSON object"),
        # Bug: JSON that is nested too deep was a RecursionError, also in a row of the store.
        (("services", 0, "config"), "[" * 100_000, r"services\[0\].config: \S"),
        (("services", 0, "more"), 1, r'services\[0\]: "more" is no column; it has name, claim'),
        (("dpus", 1, "wave"), 0, r"dpus\[1\].wave: 0 is not 1 to "),
        (("dpus", 1, "rack"), "\ud800", r"dpus\[1\].rack: .* half a character"),
        (("dpus", 1, "name"), "dpu1", r"dpus\[1\]: there is one of this name already"),
        (("overrides", 0, "weight"), "1/0", r"overrides\[0\].weight: '1/0' is no weight"),
        (("intents", 0, "state"), "new", r'intents\[0\].state: "new" is none of waiting, staged'),
        (("intents", 0, "state"), "current", r"fleet.intent is 2, and the intents that are current: \[1, 2\]"),
        (("fleet", "generation"), 1 << 60, r"fleet.generation: \d+ is not 0 to"),
        (("fleet", "format"), 2, "fleet.format: readers must know 2"),
        (("fleet", "intent"), 1.5, "fleet.intent: 1.5 is no whole number"),
        (("dpus",), {}, "dpus is no list"),
        (("xenoovs_fleet",), 3, "it has form 3, and this version reads 2; update xenoovs"),
        (("reports",), [], "'reports' is no part of an export"),
    ],
)
def test_mistakes_are_named_with_their_place(path: tuple[Any, ...], value: object, message: str) -> None:
    document = json.loads(export_text(fleet()))
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(ExportMalformed, match=f"^fleet.json cannot be restored: {message}"):
        read(document)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "line 1, column 1: Expecting value"),
        (b'{"xenoovs_fleet": 1,\n "fleet": }', "line 2, column 11: Expecting value"),
        (b'{"a": 1, "a": 2}', "the key 'a' is twice in one object"),
        (b'{"a": NaN}', "NaN is no number of JSON"),
        (b"\xff", "byte 0 is no UTF-8"),
        (b"[" * 100_000, "it is nested too deep"),
        (b"[]", "it has no xenoovs_fleet"),
        (b'{"xenoovs_fleet": 1}', "fleet is missing"),
        (b'{"a": ' + b"9" * 5000 + b"}", "Exceeds the limit"),
        (b" " * (MAX_SIZE_BYTES + 1), "it is larger than 256 MiB"),
    ],
    ids=range(10),
)
def test_what_is_no_export_is_one_sentence(data: bytes, message: str) -> None:
    with pytest.raises(ExportMalformed, match=message):
        parse_export(data, file="fleet.json")


def test_two_services_with_one_claim_are_refused() -> None:
    document = json.loads(export_text(fleet()))
    document["services"].append({**document["services"][0], "name": "other"})
    with pytest.raises(ExportMalformed, match="services: other and dns have one claim, IPV4"):
        read(document)


def test_bug_two_restores_of_one_export_had_one_generation() -> None:
    """So DPUs that came from the first took nothing from the second. Both had a million more than the export."""
    exported = parse_export(export_text(fleet()).encode(), file="fleet.json")
    now_ms = 1_764_000_000_000
    first, second = (restoring(EMPTY, exported, {}, now_ms=time_ms).generation for time_ms in (now_ms, now_ms + 60_000))
    assert first is not None
    assert second is not None
    assert exported.generation < first < second
    # Changes after the first one, up to a thousand a second.
    assert second - first == 60_000
    behind = {"dpu1": DpuStatus("dpu1", applied=now_ms + 90_000)}
    assert restoring(EMPTY, exported, behind, now_ms=now_ms).generation == now_ms + 90_000 + GENERATION_STEP


def test_an_export_of_version_1_0_0_is_read() -> None:
    """It has no history, no pauses and no overrides that end."""
    document = json.loads(export_text(fleet())) | {"xenoovs_fleet": 1}
    del document["actions"]
    for each in document["intents"]:
        del each["is_paused"]
    for each in document["overrides"]:
        del each["until_ms"]
    assert read(document) == read(json.loads(export_text(fleet())))


def test_the_history_goes_on_after_that_of_the_export() -> None:
    export = replace(fleet(), actions={7: Action(7, 1, "ann", "drain a"), 9: Action(9, 2, "ann", "drain b")})
    exported = parse_export(export_text(export).encode(), file="fleet.json")
    view = replace(EMPTY, actions={each: Action(each, 3, "bob", f"add-dpu {each}") for each in (1, 7)})
    after = committed(view, with_entry(view, restoring(view, exported, {}, now_ms=0), Action(0, 4, "bob", "restore")))
    assert {number: each.text for number, each in after.actions.items()} == {
        7: "drain a",
        9: "drain b",
        10: "add-dpu 1",
        11: "add-dpu 7",
        12: "restore",
    }


HUGE = DpuStatus(
    "dpu1",
    version="v" * 1000,
    error="e" * 10_000,
    drift={**{f"s{number:05}": "d" * 1000 for number in range(5000)}, "n" * 500: ""},
    verdicts={f"v{number:05}": 1 for number in range(1000)},
    down=frozenset({*(f"t{number:06}" for number in range(50_000)), "n" * 500}),
)


def test_a_huge_report_is_cut_and_is_no_error() -> None:
    cut = HUGE.bounded
    assert cut.drift == {f"s{number:05}": "d" * MAX_NAME for number in range(MAX_DRIFT)}
    assert (len(cut.version), len(cut.error), len(cut.verdicts), len(cut.down)) == (
        MAX_NAME,
        MAX_ERROR,
        MAX_VERDICTS,
        MAX_DOWN,
    )
    assert cut.bounded == cut
    # One report with too much must not keep the others from being read.
    assert STATUSES.value(STATUSES.row(HUGE)) == cut
    usual = DpuStatus("dpu2", error="no port p9", drift={"dns": "0"}, down=frozenset({"192.0.2.1/tcp/80"}))
    assert usual.bounded == usual
