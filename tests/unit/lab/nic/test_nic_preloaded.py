"""What the guest imports before it forks for a command."""

from __future__ import annotations

import subprocess
import sys

from xenoovs.config.templates import read_template

_COMMANDS = """\
import importlib, os, sys
from xenoovs.lab.commands import nic_guest
nic_guest.read_first_config()
for module in nic_guest.PRELOADED:
    importlib.import_module(module)
before, config = set(sys.modules), sys.stdin.read()
for command in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        reader, writer = os.pipe()
        os.write(writer, config.encode())
        os.close(writer)
        os.dup2(reader, 0)
        sys.stdin = os.fdopen(0)
        nic_guest.run([command, "-", "--db", "unix:/nonexistent/db.sock"])
        later = sorted(name for name in set(sys.modules) - before if name.startswith(("xenoovs.", "pydantic.")))
        print("IMPORTED", command, *later, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_bug_each_command_in_the_guest_imported_the_schema_of_configs() -> None:
    commands = ("plan", "apply", "verify-offload", "why", "doctor")
    argv = [sys.executable, "-c", _COMMANDS, *commands]
    done = subprocess.run(argv, input=read_template("quickstart"), capture_output=True, text=True, check=True)
    imported = [line.split() for line in done.stdout.splitlines() if line.startswith("IMPORTED")]
    assert imported == [["IMPORTED", command] for command in commands]
