"""Dumps copied from a terminal: prompts are no megaflows, and their command shows what the dump holds."""

from __future__ import annotations

import pytest

from xenoovs.datapath.megaflow import Megaflow, Verdict, verdict_of
from xenoovs.datapath.parse import parse_dump
from xenoovs.evidence.record import Transcript

KEYS = "recirc_id(0),in_port(2),eth_type(0x0800),ipv4(frag=no)"
BARE = f"{KEYS}, packets:3, bytes:294, used:0.3s, actions:3"
SLOW = f"{KEYS}, packets:3, bytes:294, used:0.3s, actions:userspace(pid=1,slow_path(action))"
WITH_M = f"ufid:11111111-0000-4000-8000-000000000001, {KEYS}, packets:3, bytes:294, used:0.3s, dp:tc, actions:p1"


def _read(text: str) -> tuple[list[Megaflow], Transcript]:
    transcript = Transcript(text.splitlines(keepends=True))
    return list(parse_dump(transcript)), transcript


@pytest.mark.parametrize(
    "prompt",
    ["[root@node2 ~]# ", "root@node2:~# ", "user@host:/var/log$ sudo ", "$ ", "# ", "", "sudo ", "+ ", "[root@a b]$ "],
)
def test_a_prompt_is_no_megaflow(prompt: str) -> None:
    megaflows, transcript = _read(f"{prompt}ovs-appctl dpctl/dump-flows -m\n{WITH_M}\n{prompt.removesuffix('sudo ')}\n")
    assert (len(megaflows), transcript.dumps, transcript.is_complete) == (1, 1, True)


@pytest.mark.parametrize(
    ("options", "verdict"),
    [
        ("type=offloaded", Verdict.HW),
        ("type=dpdk", Verdict.HW),
        ("type=partially-offloaded", Verdict.PARTIAL),
        ("type=ovs", Verdict.SW),
        ("type=non-offloaded", Verdict.SW),
        ("type=tc", None),
        ("type=tc,offloaded", None),
        ("", None),
    ],
)
def test_the_type_of_the_command_gives_the_layer_of_megaflows(options: str, verdict: Verdict | None) -> None:
    megaflows, transcript = _read(f"[root@node ~]# ovs-appctl dpctl/dump-flows {options}\n{BARE}\n")
    assert [verdict_of(megaflow) for megaflow in megaflows] == [verdict]
    assert transcript.is_complete == (not options)


@pytest.mark.parametrize("options", ["-m filter='in_port(p0)'", "-m | grep p0", "-m type=ovs"])
def test_a_selection_is_not_complete(options: str) -> None:
    assert not _read(f"# ovs-appctl dpctl/dump-flows {options}\n{WITH_M}\n")[1].is_complete


@pytest.mark.parametrize("ruler", ["--", "-----", "```", "```text", "~~~", "...", "[..]", "====="])
def test_bug_a_ruler_behind_a_dump_was_taken_for_the_rest_of_a_wrapped_line(ruler: str) -> None:
    """The port of the last megaflow was `3--`."""
    megaflows, _ = _read(f"{WITH_M}\n{ruler}\n{BARE}\n{ruler}\n")
    assert [megaflow.actions for megaflow in megaflows] == [("p1",), ("3",)]


def test_without_a_command_line_completeness_is_unknown() -> None:
    megaflows, transcript = _read(f"{WITH_M}\n")
    assert (len(megaflows), transcript.dumps, transcript.is_complete) == (1, 0, False)


def test_the_slow_path_is_software_also_without_m() -> None:
    assert [verdict_of(megaflow) for megaflow in _read(f"{SLOW}\n{BARE}\n")[0]] == [Verdict.SW, None]


def test_the_layer_in_the_dump_takes_precedence() -> None:
    assert [verdict_of(one) for one in _read(f"$ ovs-appctl dpctl/dump-flows -m type=ovs\n{WITH_M}\n")[0]] == [
        Verdict.TC_SW
    ]


def test_the_output_of_other_commands_is_skipped() -> None:
    text = (
        "2019-09-23T03:15:37Z|00001|dpif_netlink|INFO|The kernel module does not support meters.\n"
        f"{BARE}\n# a comment\n{BARE}\n[root@node ~]# ovs-vsctl show\n    Bridge br-int\n        fail_mode: secure\n"
    )
    assert len(_read(text)[0]) == 2


def test_two_dumps_in_one_file_are_remarked() -> None:
    command = "[root@node ~]# ovs-appctl dpctl/dump-flows -m\n"
    _, transcript = _read(f"{command}{WITH_M}\n{command}{WITH_M}\n")
    assert [remark.partition(",")[0] for remark in transcript.remarks()] == ["the file has 2 dumps"]


def test_wrapped_lines_below_a_prompt_are_joined() -> None:
    text = f"[root@node ~]# ovs-appctl dpctl/dump-flows -m\n{WITH_M[:90]}\n{WITH_M[90:]}\n"
    assert [megaflow.actions for megaflow in _read(text)[0]] == [("p1",)]
