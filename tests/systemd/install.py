"""Installs xenoovs as in docs/how-to/agent.md: a wheel, into a virtual environment of its own in /opt/xenoovs."""

from __future__ import annotations

import re
import shlex
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from xenoovs.switch.process import run

_REPOSITORY = Path(__file__).parents[2]
AGENT_PAGE = _REPOSITORY / "docs" / "how-to" / "agent.md"
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DEPENDENCIES = Path("/opt/dependencies")
"""Where the libraries are that pip would download: those of the project stand in for them, as there is no network."""

# In a mount namespace of its own: this machine's /opt stays what it is.
_INSTALL = """\
set -eu
export PATH=/usr/bin:/bin PYTHONPATH={dependencies} PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1
mount --bind {opt} /opt
mount --bind {site_packages} {dependencies}
cd {directory}
{documented}
echo {dependencies} >"$(echo /opt/xenoovs/lib/python3*/site-packages)/dependencies.pth"
"""


@dataclass(frozen=True, slots=True)
class Installed:
    """What is to be mounted: `opt` on /opt, and on it `site_packages` on DEPENDENCIES."""

    opt: Path
    site_packages: Path


def block_with(command: str) -> str:
    """The one block of commands of the page in which `command` stands, to be run as it stands there."""
    [block] = [found[1] for found in _BLOCK.finditer(AGENT_PAGE.read_text()) if command in found[1]]
    return block


def install(directory: Path) -> Installed:
    """Build the wheel and install it. `directory` is empty, and needed as long as the installation."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheel = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory), str(_REPOSITORY)]
    run([*pip, *wheel], timeout_s=300.0)
    opt, site_packages = directory / "opt", Path(sysconfig.get_path("purelib"))
    (opt / DEPENDENCIES.name).mkdir(parents=True)
    script = _INSTALL.format(
        dependencies=DEPENDENCIES,
        opt=shlex.quote(str(opt)),
        site_packages=shlex.quote(str(site_packages)),
        directory=shlex.quote(str(directory)),
        documented=block_with("-m venv"),
    )
    run(["unshare", "--mount", "sh", "-c", script], timeout_s=300.0)
    return Installed(opt, site_packages)
