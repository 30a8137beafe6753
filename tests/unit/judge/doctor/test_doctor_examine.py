"""All checks together: a correct host has no wrong row, and which fixes are safe."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.judge.doctor.facts import DEVICES, GOOD, HOST, with_config, with_device, with_host
from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.host import Feature, HostFacts
from xenoovs.evidence.command_target import THIS_HOST
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.doctor.check import CheckState, DoctorCase
from xenoovs.judge.doctor.examine import examine, has_wrong, safe_fixes, to_json


def test_each_row_of_a_good_host_is_ok_has_its_reason_and_no_command_and_is_there_once() -> None:
    rows = examine(GOOD)
    assert {(row.state, row.fix) for row in rows} == {(CheckState.OK, None)}
    assert not has_wrong(rows)
    assert all(row.seen and row.why for row in rows)
    assert len({(row.name, row.subject) for row in rows}) == len(rows)


def test_a_host_without_open_vswitch_has_one_row() -> None:
    nothing = HostFacts(is_local=True, database=Unknown("refused"), daemon=Unknown("refused"), devices=Unknown("-"))
    rows = examine(DoctorCase(Evidence(nothing)))
    assert [(row.name, row.state) for row in rows] == [("Open vSwitch runs", CheckState.WRONG)]


def test_a_database_alone_is_enough() -> None:
    silent = replace(HOST, daemon=Unknown("no"), devices=Unknown("no"), eswitches=(), kernel=Unknown("no"))
    rows = examine(replace(GOOD, evidence=Evidence(silent)))
    assert {row.state for row in rows} == {CheckState.OK, CheckState.WRONG, CheckState.UNKNOWN}
    assert [row.name for row in rows if row.state is CheckState.WRONG] == ["Open vSwitch runs"]


def test_only_safe_fixes_are_offered() -> None:
    host = with_host(
        devices={n: replace(d, hw_tc_offload=Feature(is_on=False), is_up=False) for n, d in DEVICES.items()}
    )
    commands = [fix.command(THIS_HOST) for fix in safe_fixes(examine(host))]
    assert commands == [f"ethtool -K {port} hw-tc-offload on && ovs-appctl revalidator/purge" for port in ("p0", "p1")]


def test_each_lost_qdisc_is_followed_by_its_own_purge() -> None:
    """A purge before the second qdisc would leave its port's flows in software."""
    host = with_host(devices={name: replace(device, ingress=False) for name, device in DEVICES.items()})
    assert [fix.command(THIS_HOST) for fix in safe_fixes(examine(host))] == [
        "tc qdisc add dev p0 ingress && ovs-appctl revalidator/purge",
        "tc qdisc add dev p1 ingress && ovs-appctl revalidator/purge",
    ]


def test_a_fix_of_two_rows_is_done_once() -> None:
    case = with_config(max_idle="500", max_revalidator="500")
    fixes = [fix.command(THIS_HOST) for fix in safe_fixes(examine(case))]
    assert len(fixes) == len(set(fixes)) == 2


def test_json_has_every_row_with_its_command() -> None:
    rows = to_json(examine(with_device("p0", hw_tc_offload=Feature(is_on=False))), THIS_HOST)
    (wrong,) = (row for row in rows if row["state"] == "wrong")
    assert wrong == {
        "check": "hw-tc-offload",
        "subject": "p0",
        "state": "wrong",
        "seen": "off",
        "why": "without it the driver refuses every TC rule of the device",
        "fix": "ethtool -K p0 hw-tc-offload on && ovs-appctl revalidator/purge",
        "safe_to_fix": True,
        "needs_restart": False,
    }
