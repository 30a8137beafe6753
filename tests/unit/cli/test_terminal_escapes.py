"""No text from a dump, a log or a config can move the cursor, hide text or set the title of the terminal."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, XENOOVS
from xenoovs.terminal.output import echo, echo_over, filtered, print_table, print_text

GOLDEN = Path(__file__).parents[2] / "golden" / "verify"
CONFIG = GOLDEN / "dns.yaml"
CLEAR, TITLE, C1, HIDDEN = "\x1b[2J", "\x1b]0;owned\x07", "\x9b2J", "\x1b[8m"
HOSTILE = f"{CLEAR}{TITLE}{C1}{HIDDEN}\r"


def on_a_terminal(*arguments: object) -> str:
    """What a command writes to a terminal, stdout and stderr."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [XENOOVS, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, close_fds=True
    )
    os.close(theirs)
    written = b""
    try:
        while data := os.read(ours, 65536):
            written += data
    except OSError:
        # The other end is closed (pty(7)).
        pass
    finally:
        os.close(ours)
        process.wait()
    return written.decode().replace("\r\n", "\n")


def check(written: str) -> None:
    assert r"\x1b[2J" in written, written
    for sequence in (CLEAR, "\x1b]", "\x07", C1, HIDDEN, "\r"):
        assert sequence not in written


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Megaflows that send packets elsewhere, by actions that no switch prints; and a line that cannot be read."""
    path = tmp_path / "hostile.dump"
    text = (GOLDEN / "software.dump").read_text()
    path.write_text(text.replace("actions:", f"actions:userspace({HOSTILE}),") + f"ufid:{HOSTILE}, x\n")
    return path


def test_verify_offload_prints_no_escapes_of_a_dump(dump: Path) -> None:
    check(on_a_terminal("verify-offload", CONFIG, "--from-dump", dump))
    check(on_a_terminal("verify-offload", "--bridge", "br0", "--from-dump", dump))


def test_why_prints_no_escapes_of_a_dump_or_a_log(dump: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"2026-01-02T03:04:05.678Z|00001|netdev_offload_tc(h)|ERR|{HOSTILE} cannot offload: {HOSTILE}\n")
    check(on_a_terminal("why", CONFIG, "--from-dump", dump, "--from-log", log))


def test_lint_prints_no_escapes_of_flows(tmp_path: Path) -> None:
    flows = tmp_path / "flows"
    flows.write_text(f" cookie=0x0, table=0, priority=7,ip,in_port=p0 actions=unknown({HOSTILE.rstrip()})\n")
    check(on_a_terminal("lint", "--flows", flows))


def test_errors_print_no_escapes_of_a_config(tmp_path: Path) -> None:
    config = tmp_path / f"{CLEAR}.yaml"
    config.write_text(SMALL_CONFIG.replace("fips2", '"\\e[2J\\e]0;owned\\a\\N\\x9b2J"'))
    check(on_a_terminal("validate", config))


def test_usage_errors_print_no_escapes_of_arguments() -> None:
    check(on_a_terminal("trace", CONFIG, "--offline", "--src", f"{HOSTILE}"))
    check(on_a_terminal(HOSTILE))


def test_colours_of_commands_reach_a_terminal() -> None:
    assert "\x1b[32m" in on_a_terminal("verify-offload", CONFIG, "--from-dump", GOLDEN / "in_hardware.dump")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("tab\tand\nline", "tab\tand\nline"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("\x1b[8mhidden", r"\x1b[8mhidden"),
        ("\x1b[31;8mhidden", r"\x1b[31;8mhidden"),
        ("user\u202etxt.exe", r"user\u202etxt.exe"),
        ("caf\u00e9 \u2192 \u65e5\u672c", "caf\u00e9 \u2192 \u65e5\u672c"),
        ("file\udcff", r"file\udcff"),
        ("a\x00b\x7fc\x85d", r"a\x00b\x7fc\x85d"),
    ],
)
def test_only_text_and_known_colours_are_printable(text: str, shown: str) -> None:
    assert filtered(text) == shown


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
