"""Help of any command imports no library that it does not need."""

from __future__ import annotations

import subprocess
import sys

from xenoovs.cli.main import COMMANDS

HEAVY = {"ssl", "numpy", "aiohttp", "pydantic", "asyncio", "yaml", "rich"}
LAB = ("up", "down", "status", "traffic", "exec", "shell")
PROGRAM = """
import sys
from contextlib import redirect_stdout
from io import StringIO
from xenoovs.cli.main import run
heavy, *commands = sys.argv[1:]
for command in commands:
    before = {*sys.modules}
    with redirect_stdout(StringIO()) as printed:
        status = run([*command.split(), "--help"])
    imported = {*heavy.split()} & {*sys.modules} - before
    if status or "Usage: xenoovs" not in printed.getvalue() or imported:
        print(f"xenoovs {command} --help: status {status}, imports {', '.join(sorted(imported))}")
"""


def test_help_imports_no_heavy_library() -> None:
    """`apply --help` took twice the time of others, as it imported ssl for a server that --confirm alone needs."""
    commands = ["", *COMMANDS, *(f"lab {name}" for name in LAB)]
    argv = [sys.executable, "-c", PROGRAM, " ".join(HEAVY), *commands]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == ""
