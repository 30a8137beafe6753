"""What commands print: tables, sentences and reports, on terminals that no text from outside can steer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG
from tests.judged import assert_recorded
from xenoovs.cli.doctor import restart_document, restart_lines
from xenoovs.cli.main import run
from xenoovs.cli.offload_report import ReportOptions, _show_override, show_bridge
from xenoovs.cli.plan import drain_line
from xenoovs.compile.drain_progress import Draining
from xenoovs.datapath.megaflow import Verdict
from xenoovs.judge.bridge import BridgeFindings, BridgeRow
from xenoovs.judge.findings import OverriddenBlocks
from xenoovs.openflow.flow import Match
from xenoovs.openflow.text import parse_flow
from xenoovs.switch.planned_restart import PlannedRestart
from xenoovs.terminal import output
from xenoovs.terminal.defaults import CHANGING
from xenoovs.terminal.output import echo, echo_over, print_table, print_text


@pytest.mark.parametrize(
    ("where", "told"),
    [
        # The number of a stream that the shell has closed would be that of the next file or socket.
        (">&-", "error: output: Bad file descriptor\n"),
        (">/dev/full", "error: output: No space left on device\n"),
        # A reader that has enough.
        (">&$0", ""),
    ],
)
def test_an_output_that_cannot_be_written_is_an_error_without_a_traceback(where: str, told: str) -> None:
    reader, broken = os.pipe()
    os.close(reader)
    argv = ["bash", "-c", f"{sys.executable} -m xenoovs --help {where}", str(broken)]
    done = subprocess.run(argv, stderr=subprocess.PIPE, text=True, check=False, pass_fds=[broken])
    os.close(broken)
    assert (done.returncode, done.stderr) == (1, told)


def test_bug_who_lacks_the_right_to_a_file_was_not_told_what_to_do(tmp_path: Path) -> None:
    config = tmp_path / "of-root.yaml"
    config.touch(mode=0)
    argv = [sys.executable, "-c", _AS_NOBODY, str(CONFIG), str(config)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        f"error: {config}: Permission denied\nRun the same command with `sudo`.\n",
    )


# The first run imports what only root may read, perhaps. What is not found later stays unknown to the process.
_AS_NOBODY = """
import os, sys
from xenoovs.cli.main import run
run(["validate", sys.argv[1]])
os.seteuid(os.geteuid() or 65534)
sys.exit(run(["validate", sys.argv[2]]))
"""

GOLDEN = Path(__file__).parents[2] / "golden" / "verify"
CONFIG = GOLDEN / "dns.yaml"
CLEAR, TITLE, C1, HIDDEN = "\x1b[2J", "\x1b]0;owned\x07", "\x9b2J", "\x1b[8m"
HOSTILE = f"{CLEAR}{TITLE}{C1}{HIDDEN}\r"


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def on_a_terminal(words: str) -> str:
    """What a command writes to a terminal, stdout and stderr."""
    written = Terminal()
    with redirect_stdout(written), redirect_stderr(written):
        run(words.split(" "))
    return written.getvalue()


_WORDS = {
    "dump": f"verify-offload {CONFIG} --from-dump dump",
    "dump, any bridge": "verify-offload --bridge br0 --from-dump dump",
    "log": f"why {CONFIG} --from-dump dump --from-log log",
    "flows": "lint --flows flows",
    "config": f"validate {CLEAR}.yaml",
    "option": f"trace {CONFIG} --offline --src {HOSTILE}",
    "command": HOSTILE,
}


@pytest.mark.parametrize("words", _WORDS.values(), ids=_WORDS)
def test_no_escapes_of_files_and_arguments_reach_a_terminal(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # Megaflows that send packets elsewhere, by actions that no switch prints; and a line that cannot be read.
    dump = (GOLDEN / "software.dump").read_text().replace("actions:", f"actions:userspace({HOSTILE}),")
    Path("dump").write_text(f"{dump}ufid:{HOSTILE}, x\n")
    line = f"2026-01-02T03:04:05.678Z|00001|netdev_offload_tc(h)|ERR|{HOSTILE} cannot offload: {HOSTILE}\n"
    Path("log").write_text(line)
    Path("flows").write_text(f" cookie=0x0, table=0, priority=7,ip,in_port=p0 actions=unknown({HOSTILE.rstrip()})\n")
    Path(f"{CLEAR}.yaml").write_text(SMALL_CONFIG.replace("fips2", '"\\e[2J\\e]0;owned\\a\\N\\x9b2J"'))
    written = on_a_terminal(words)
    assert r"\x1b[2J" in written, written
    assert not [sequence for sequence in (CLEAR, "\x1b]", "\x07", C1, HIDDEN, "\r") if sequence in written]


def test_colours_of_commands_reach_a_terminal() -> None:
    assert "\x1b[32m" in on_a_terminal(f"verify-offload {CONFIG} --from-dump {GOLDEN}/in_hardware.dump")


def test_every_way_to_print_filters(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    echo(HOSTILE)
    echo(HOSTILE, err=True)
    print_text(HOSTILE)
    print_table(["A", "B"], [[HOSTILE, HOSTILE]])
    echo_over(f"{CLEAR}\r")
    written = "".join(capsys.readouterr())
    assert written.count(r"\x1b[2J") == 6
    assert written.count("\r") == 1


HEADERS = ["CHECK", "N", "SEEN"]
ROWS = [["one", "7", "short"], ["two", "8", "words that need much more room than there is"]]
NAMES = ["resolvers-of-the-campus", "a-backend-with-a-long-name", "42.19%", "answered"]
SPARE = partial(print_table, ["A", "SPARE", "MORE", "B"], [["1", "2", "3", "4"]], right=range(4), spare=[1, 2])
LONG = partial(print_table, ["SERVICE", "BACKEND", "SHARE", "PROBE"], [NAMES], right=[2])
SENTENCE = partial(print_text, "  why: it takes long to say", indent="       ")
ONE_SIX, SIX_SIX = ("one", "six"), ("six", "six")
DONE = PlannedRestart(0.4567, {"ovsbr1": 8, "ovsbr2": 1}, {"ovsbr1": 2, "ovsbr2": 0})


def _drain(*ways: tuple[str, str]) -> None:
    print_text(drain_line(Draining("web", ways, blocks=3, left_s=15.0, is_settling=True, settles_s=1.4)))


def _override(*flows: str) -> None:
    _show_override(OverriddenBlocks("dns", (), 1, 2, Match(), "drop", tuple(map(parse_flow, flows))), ReportOptions())


def _bridge(recirculating: int, *, has_tc_chains: bool | None) -> None:
    rows = (BridgeRow("p0", Verdict.SW, "", True, 1, {"p1", "p2", "p3"}, megaflows=2, packets=10, bytes=1000),)
    names = {"p0": "vm1", "p1": "p1"}
    findings = BridgeFindings(rows, recirculating=recirculating, has_tc_chains=has_tc_chains, logical_ports=names)
    show_bridge(findings, ReportOptions())


def _restart() -> None:
    print_text("\n".join(restart_lines(DONE)))
    print_text(json.dumps(restart_document(DONE)))


_PREFIX = "priority=2900,udp,nw_src=198.18.1.0/24 actions=drop"
_DSCP = "priority=3000,udp,nw_tos=32 actions=drop"
PRINTED: dict[str, tuple[int | None, Callable[[], None]]] = {
    "text of a table goes on below itself": (40, partial(print_table, HEADERS, ROWS)),
    "columns that can be spared go first": (12, SPARE),
    "long names are cut": (40, LONG),
    "a table in a pipe": (None, partial(print_table, HEADERS, ROWS, spare=[1])),
    "a sentence is wrapped between words": (20, SENTENCE),
    "a sentence in a pipe": (None, SENTENCE),
    # A slow start during a drain was shown as `stay with six; new ones go to six`.
    "bug: a backend kept connections that it just got: some": (None, partial(_drain, ONE_SIX, ("two", "six"))),
    "in both directions": (None, partial(_drain, ONE_SIX, ("six", "two"))),
    "some back": (None, partial(_drain, SIX_SIX, ("one", "two"))),
    "back": (None, partial(_drain, SIX_SIX)),
    "a foreign flow overrides blocks": (None, partial(_override, _PREFIX)),
    "one of several candidates does": (None, partial(_override, _DSCP, _PREFIX)),
    "one sentence reports that the kernel has no chains": (None, partial(_bridge, 2, has_tc_chains=False)),
    "no chains, and nothing needs them": (None, partial(_bridge, 0, has_tc_chains=False)),
    "it is not known whether there are chains": (None, partial(_bridge, 2, has_tc_chains=None)),
    "a restart, for people and programs": (None, _restart),
}


def test_what_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, update_golden: bool
) -> None:
    shown = {}
    for title, (width, prints) in PRINTED.items():
        size = os.terminal_size((width or 20, 24))
        monkeypatch.setattr(output, "is_terminal", lambda width=width: width is not None)
        monkeypatch.setattr(shutil, "get_terminal_size", lambda *_, size=size, **__: size)
        prints()
        shown[title] = capsys.readouterr().out
    assert_recorded("cli/printed.txt", shown, update=update_golden)


def test_each_command_that_says_which_config_it_uses_exists() -> None:
    """Bug: commands of `measure` that had got other names did not say it any more."""
    page = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
    found = {line.partition(" `")[0].split()[-1] for line in page.read_text().splitlines() if line.startswith("#")}
    assert found.issuperset(CHANGING)
