"""`xenoovs lint`: its answers, its reasons, its exit statuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import CommandLine

ROOT = Path(__file__).parents[3]
QUICKSTART = ROOT / "templates" / "quickstart.yaml"
CONTROLLER = "priority=5,ip actions=CONTROLLER:65535"


@pytest.fixture
def xenoovs(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


def _config(path: Path, *, service: str = "", switch: str = "", bits: str = "auto") -> Path:
    backends = ", ".join(f"{{name: b{n}, mac: '02:00:00:00:00:0{n}', weight: 1}}" for n in (1, 2, 3, 4))
    path.write_text(
        f"version: 1\nswitch: {{ingress: [p0], egress: p1{switch}}}\nservices:\n"
        f"- {{name: web, match: {{bits: {bits}}}, backends: [{backends}]{service}}}\n",
        encoding="utf-8",
    )
    return path


@pytest.mark.parametrize("profile", ["tc", "doca", "dpdk"])
@pytest.mark.parametrize("name", ["quickstart", "minimal", "hardware-budget"])
def test_our_templates_can_be_offloaded(xenoovs: CommandLine, name: str, profile: str) -> None:
    result = xenoovs("lint", ROOT / "templates" / f"{name}.yaml", "--profile", profile)
    assert (result.status, result.err) == (0, "")
    assert "the NIC can take all" in result.out


def test_arp_is_shown_and_not_counted(xenoovs: CommandLine) -> None:
    result = xenoovs("lint", QUICKSTART)
    assert result.status == 0
    assert "SW       ARP or neighbour discovery, 1 flow, not counted: Write fields of ARP" in result.out
    document = json.loads(xenoovs("lint", QUICKSTART, "-o", "json").out)
    assert [finding["counted"] for finding in document["program"]["findings"]] == [False]


def test_flows_that_depend_fail_only_with_strict(xenoovs: CommandLine, tmp_path: Path) -> None:
    config = _config(tmp_path / "my.yaml", switch=", other_traffic: normal")
    assert xenoovs("lint", config).status == 0
    result = xenoovs("lint", config, "--strict")
    assert result.status == 2
    assert "for 2 it depends (Forward as a learning switch (NORMAL, FLOOD, ALL))" in result.out


def test_a_backend_behind_the_same_port_twice_is_fine_but_the_table_can_be_too_small(
    xenoovs: CommandLine, tmp_path: Path
) -> None:
    config = _config(tmp_path / "my.yaml")
    assert xenoovs("lint", config, "--table-size", 4).status == 0
    result = xenoovs("lint", config, "--table-size", 3)
    assert result.status == 2
    assert "4 entries needed, the table holds 3: 1 stay in software" in result.out
    assert result.out.splitlines()[-1].endswith("4 entries for the services, more than the table holds")


def test_costs_have_numbers(xenoovs: CommandLine, tmp_path: Path) -> None:
    config = _config(
        tmp_path / "my.yaml",
        service=", rewrite_source_mac: '02:00:00:00:00:99', vip: [192.0.2.1, 192.0.2.2]",
        bits="2",
    )
    document = json.loads(xenoovs("lint", config, "--client-macs", 5, "-o", "json").out)
    costs = {cost["cost"]: cost["entries"] for cost in document["costs"]}
    assert costs == {"match-combinations": 8, "source-mac": 40}
    assert document["entries"] == 40


@pytest.mark.parametrize(
    ("protocol", "bits", "wanted"),
    [
        ("udp", "[0, 1]", ["affinity"]),
        ("tcp", "2", ["affinity"]),
        ("tcp", "[1, 2, 0]", ["affinity"]),
        ("tcp", "[1, 0]", ["affinity", "even-ports"]),
    ],
)
def test_the_drawbacks_of_source_port_are_notes(
    xenoovs: CommandLine, tmp_path: Path, protocol: str, bits: str, wanted: list[str]
) -> None:
    config = _config(tmp_path / "my.yaml", service=f", protocol: {protocol}", bits=f"{bits}, field: source_port")
    assert [cost["cost"] for cost in json.loads(xenoovs("lint", config, "-o", "json").out)["costs"]] == wanted
    assert (
        "COST     web: source_port: connections of one client may go to different backends"
        in xenoovs("lint", config).out
    )
    assert xenoovs("lint", config, "--strict").status == 0
    notes = json.loads(xenoovs("validate", config, "-o", "json").out)["notes"]
    assert [(note["service"], note["note"]) for note in notes] == [("web", name) for name in wanted]
    assert (
        "note: web: source_port: connections of one client may go to different backends"
        in xenoovs("validate", config).out
    )


def test_services_by_address_have_no_notes(xenoovs: CommandLine) -> None:
    assert json.loads(xenoovs("validate", QUICKSTART, "-o", "json").out)["notes"] == []
    assert "note" not in xenoovs("validate", QUICKSTART).out


def test_ipv6_of_any_protocol_is_expensive(xenoovs: CommandLine, tmp_path: Path) -> None:
    config = _config(tmp_path / "my.yaml", service=", vip: 2001:db8::10")
    assert "4 entries for each IP protocol of its clients (12 for 3)" in xenoovs("lint", config).out
    config = _config(tmp_path / "my.yaml", service=", vip: 2001:db8::10, protocol: udp")
    assert "for each IP protocol" not in xenoovs("lint", config).out


def test_wide_matches_of_ipv6_become_chains_on_doca(xenoovs: CommandLine, tmp_path: Path) -> None:
    config = _config(tmp_path / "my.yaml", service=", vip: 2001:db8::10, protocol: udp, ports: [53]")
    result = xenoovs("lint", config, "--profile", "doca", "--all")
    assert result.status == 0
    assert "evidence: 43 bytes" in result.out


def test_versions_differ(xenoovs: CommandLine, tmp_path: Path) -> None:
    dump = tmp_path / "flows.txt"
    dump.write_text("priority=5,ip actions=meter:1,output:p1\n", encoding="utf-8")
    assert xenoovs("lint", "--flows", dump, "--ovs", "2.17.9").status == 2
    assert xenoovs("lint", "--flows", dump, "--ovs", "3.0.0").status == 0


def test_a_dump_of_others_is_judged_flow_by_flow(xenoovs: CommandLine, tmp_path: Path) -> None:
    dump, groups = tmp_path / "flows.txt", tmp_path / "groups.txt"
    dump.write_text(
        "NXST_FLOW reply (xid=0x4):\n# a comment\n"
        f" cookie=0x0, duration=5.1s, table=0, n_packets=7, n_bytes=588, idle_age=1, {CONTROLLER}\r\n"
        " cookie=0x0, duration=5.1s, table=0, n_packets=0, n_bytes=0, priority=4,ip actions=group:1\n"
        " cookie=0x0, duration=5.1s, table=0, n_packets=0, n_bytes=0, priority=0 actions=output:p1\n",
        encoding="utf-8",
    )
    groups.write_text("group_id=1,type=all,bucket=actions=output:p1\n", encoding="utf-8")
    document = json.loads(xenoovs("lint", "--flows", dump, "--groups", groups, "-o", "json").out)
    flows = document["dump"]["flows"]
    assert [flow["verdict"] for flow in flows] == ["SW", "HW", "HW"]
    assert flows[0]["findings"][0]["topic"] == "controller"
    result = xenoovs("lint", "--flows", dump)
    assert result.status == 2
    assert f"SW       {CONTROLLER}" in result.out
    assert "for 1 it depends (A group of unknown type); 1 stays with the CPU (Send to a controller)" in result.out


def test_bug_options_of_add_flow_were_taken_for_conditions(xenoovs: CommandLine, tmp_path: Path) -> None:
    flows = tmp_path / "flows.txt"
    flows.write_text("idle_timeout=0,hard_timeout=0,importance=5,check_overlap,priority=9,tcp,actions=output=2\n")
    result = xenoovs("lint", "--flows", str(flows))
    assert (result.status, result.out.splitlines()[-1].endswith("the NIC can take 1 flow")) == (0, True)


def test_foreign_flows_beside_ours_are_judged_and_their_cost_is_reported(xenoovs: CommandLine, tmp_path: Path) -> None:
    config, dump = _config(tmp_path / "my.yaml"), tmp_path / "flows.txt"
    own = xenoovs("compile", config).out
    dump.write_text(f"{own}table=0, priority=2000,ip,nw_src=203.0.113.9 actions=output:p1\n", encoding="utf-8")
    document = json.loads(xenoovs("lint", config, "--flows", dump, "-o", "json").out)
    assert [flow["flow"] for flow in document["dump"]["flows"]] == [
        "priority=2000,ip,nw_src=203.0.113.9 actions=output:p1"
    ]
    (cost,) = document["costs"]
    assert cost["cost"] == "foreign-flows"
    assert cost["entries"] > 4
    assert f"{cost['entries']} entries instead of 4" in cost["text"]


def test_a_dump_that_cannot_be_read(xenoovs: CommandLine, tmp_path: Path) -> None:
    dump = tmp_path / "flows.txt"
    dump.write_text("priority=5,ip actions=output:p1\nthis is no flow\n", encoding="utf-8")
    result = xenoovs("lint", "--flows", dump)
    assert (result.status, result.out) == (1, "")
    assert result.err.startswith("error: line 2, column 1: expected a flow")
    groups = tmp_path / "groups.txt"
    groups.write_text("no group\n", encoding="utf-8")
    dump.write_text("ip actions=group:1\n", encoding="utf-8")
    assert xenoovs("lint", "--flows", dump, "--groups", groups).status == 1
    assert xenoovs("lint", "--flows", tmp_path / "missing").status == 1
    assert xenoovs("lint", tmp_path / "missing.yaml").status == 1


@pytest.mark.parametrize(
    "arguments",
    [(), ("--groups", "g", str(QUICKSTART)), ("--ovs", "2.5", str(QUICKSTART)), ("--ovs", "new", str(QUICKSTART))],
)
def test_wrong_usage(xenoovs: CommandLine, arguments: tuple[str, ...]) -> None:
    assert xenoovs("lint", *arguments).status == 64


def test_validate_reports_it_in_one_line(xenoovs: CommandLine) -> None:
    result = xenoovs("validate", QUICKSTART)
    assert result.out.splitlines()[-1] == "offload (tc, Open vSwitch 3.1): the NIC can take all 10 flows"
    lint = json.loads(xenoovs("validate", QUICKSTART, "-o", "json").out)["lint"]
    assert lint == {"profile": "tc", "ovs": "3.1", "summary": "the NIC can take all 10 flows"}


@pytest.mark.parametrize(
    ("options", "assumed"),
    [
        (("--ovs", "9.9"), "the table covers Open vSwitch 2.13 to 4.0: 9.9 is judged as 4.0"),
        (("--ovs", "4.0"), None),
        (("--ovs", "9.9", "--profile", "doca"), None),
    ],
)
def test_a_version_beyond_the_table_is_judged_as_the_newest(
    xenoovs: CommandLine, options: tuple[str, ...], assumed: str | None
) -> None:
    assert json.loads(xenoovs("lint", QUICKSTART, *options, "-o", "json").out)["assumed"] == assumed
    assert ("the table covers" in xenoovs("lint", QUICKSTART, *options).out) is (assumed is not None)


def test_a_dump_of_our_flows_alone_has_none_of_others(xenoovs: CommandLine, tmp_path: Path) -> None:
    """It printed that the NIC can take all 0 flows."""
    dump = tmp_path / "ours.flows"
    dump.write_text(xenoovs("compile", QUICKSTART).out, encoding="utf-8")
    result = xenoovs("lint", QUICKSTART, "--flows", dump)
    assert (result.status, result.err) == (0, "")
    assert "; foreign flows: none" in result.out


def test_prompts_in_a_dump_are_skipped(xenoovs: CommandLine, tmp_path: Path) -> None:
    dump = tmp_path / "flows.txt"
    dump.write_text(
        "[root@node ~]# ovs-ofctl --names dump-flows br0\n cookie=0x1, priority=5,ip actions=output:p1\n"
        "[root@node ~]# \nuser@node:~$ ovs-ofctl dump-flows br0\n"
    )
    result = xenoovs("lint", "--flows", dump, "-o", "json")
    assert (result.status, len(json.loads(result.out)["dump"]["flows"])) == (0, 1)


def test_a_dump_of_megaflows_is_named_as_one(xenoovs: CommandLine, tmp_path: Path) -> None:
    dump = Path(__file__).parents[2] / "golden" / "verify" / "in_hardware.dump"
    result = xenoovs("lint", "--flows", dump)
    assert (result.status, result.out) == (1, "")
    assert "it is a dump of megaflows" in result.err
    assert "`xenoovs verify-offload --from-dump`" in result.err
