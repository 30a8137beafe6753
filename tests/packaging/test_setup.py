"""`make setup` after one that was killed, where an earlier one has left half a .venv."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.dist, pytest.mark.timeout(600)]

_PROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "xenoovs"
version = "1"
"""

# The last of what is installed waits for the file `go` (PEP 660).
_BACKEND = """\
import time
from pathlib import Path
from zipfile import ZipFile

def build_editable(directory, config_settings=None, metadata_directory=None):
    Path("begun").touch()
    while not Path("go").exists():
        time.sleep(0.05)
    with ZipFile(Path(directory, "xenoovs-1-py3-none-any.whl"), "w") as wheel:
        wheel.writestr("installed.py", "")
        wheel.writestr("xenoovs-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: xenoovs\\nVersion: 1\\n")
        wheel.writestr("xenoovs-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("xenoovs-1.dist-info/RECORD", "")
    return "xenoovs-1-py3-none-any.whl"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "xenoovs").mkdir()
    shutil.copy(ROOT / "scripts" / "setup", tmp_path / "scripts")
    for name, text in {"pyproject.toml": _PROJECT, "requirements.lock": "", "backend.py": _BACKEND}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def started(project: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([project / "scripts" / "setup"], stderr=subprocess.PIPE, text=True)


def test_it_installs_into_a_broken_venv_when_a_killed_one_has_ended(project: Path) -> None:
    state = hashlib.sha256((project / "requirements.lock").read_bytes() + (project / "pyproject.toml").read_bytes())
    (project / ".venv").mkdir()
    (project / ".venv" / "installed-from").write_text(f"{state.hexdigest()}  -\n")
    killed = started(project)
    try:
        # However long pip takes beside others.
        while not (project / "begun").exists():
            assert killed.poll() is None, killed.communicate()
            time.sleep(0.05)
        killed.kill()
        again = started(project)
        assert again.stderr is not None
        assert "waiting for another setup to end" in again.stderr.readline()
    finally:
        killed.kill()
        # What they have begun ends too.
        (project / "go").touch()
    _, error = again.communicate()
    assert again.returncode == 0, error
    subprocess.run([project / ".venv" / "bin" / "python", "-c", "import installed, pip"], check=True)
