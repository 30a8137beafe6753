"""Commands, and help of any, import nothing that they do not need; a guest imports what commands need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from xenoovs.cli.main import COMMANDS
from xenoovs.cli.nic_guest import PRELOADED

ROOT = Path(__file__).resolve().parents[3]
HEAVY = {"ssl", "numpy", "aiohttp", "pydantic", "asyncio", "yaml", "rich"}
LAB = ("up", "down", "status", "traffic", "exec")
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


ROOMS = ("agent", "controller", "engine", "lab", "judge.simulate")
OF_OTHERS = {"asyncio", "rich", *(f"xenoovs.{room}" for room in ROOMS)}
OF_WHY = {"xenoovs.judge.why", "xenoovs.judge.bridge"}
RUN = """
import sys
from contextlib import redirect_stdout
from io import StringIO
from xenoovs.cli.main import run
with redirect_stdout(StringIO()):
    run(sys.argv[1:])
print(*sys.modules)
"""


def modules_of(*arguments: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", RUN, *arguments], capture_output=True, text=True, check=True, input="")
    return set(done.stdout.split())


QUICKSTART = str(ROOT / "templates" / "quickstart.yaml")
NOWHERE = ("--db", "unix:/nowhere/db.sock")
MODULES_OF = {
    ("--help",): 13,
    ("validate", QUICKSTART): 71,
    ("lint", QUICKSTART): 76,
    ("plan", QUICKSTART, *NOWHERE): 95,
    ("apply", QUICKSTART, "-y", *NOWHERE): 97,
    ("status", QUICKSTART, *NOWHERE): 94,
    ("verify-offload", QUICKSTART, "--from-dump", "-"): 108,
    ("why", QUICKSTART, "--from-dump", "-"): 121,
    ("doctor", QUICKSTART, *NOWHERE): 126,
    ("history", *NOWHERE): 70,
    ("lab", "list"): 43,
}
"""Modules of xenoovs that a command may import. A start is a third of a second for 100 (docs/adr/README.md, 31)."""


def test_a_command_imports_no_more_modules_than_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XENOOVS_LAB_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    found = {words: sum(name.startswith("xenoovs") for name in modules_of(*words)) for words in MODULES_OF}
    assert {words: count for words, count in found.items() if count > MODULES_OF[words]} == {}


def test_a_check_imports_nothing_that_only_explains() -> None:
    """Half of the time of `verify-offload` was the import of modules; those of `why` were among them."""
    modules = modules_of("verify-offload", QUICKSTART, "--from-dump", "-")
    assert "xenoovs.judge.offload" in modules
    assert not modules & (OF_OTHERS | OF_WHY)


def test_doctor_imports_nothing_that_only_fixes() -> None:
    modules = modules_of("doctor", "--help")
    assert "xenoovs.judge.doctor.examine" in modules
    assert not modules & {"xenoovs.lab.lab", "xenoovs.switch.planned_restart", *OF_WHY}


def test_a_config_is_read_without_pydantic_and_without_forms_that_it_does_not_use() -> None:
    """Building them was a third of the time of `validate`."""
    code = """if True:
        import sys
        from xenoovs.model.load import load_config, Path
        from xenoovs.model.form import form_of
        from xenoovs.model.tunnel import HostTunnel
        load_config(Path(sys.argv[1]))
        print("pydantic" in sys.modules, "keys" in vars(form_of(HostTunnel)))
    """
    argv = [sys.executable, "-c", code, QUICKSTART]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == "False False\n"


def test_it_is_all_there_and_starts_no_thread() -> None:
    imports = "".join(f"import {module}\n" for module in PRELOADED)
    code = f"{imports}import os\nprint(len(os.listdir('/proc/self/task')))"
    environment = {"OPENBLAS_NUM_THREADS": "1", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
