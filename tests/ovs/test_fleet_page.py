"""docs/how-to/fleet.md, "Try it on one machine": its commands work as they stand there, and remove what they made.

They use the default directory and ports, so they run in mount and network namespaces of their own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_S

_PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "fleet.md"
_OWN = ("/run/netns", "/run/xenoovs", "/var/lib/xenoovs")
_SCRIPT = """\
set -eu
mount --make-rprivate /
for directory in {own}; do mkdir -p $directory; mount -t tmpfs tmpfs $directory; done
ip link set lo up
{commands}
wait
echo left: $(ls {own} | grep -v :)
"""


def test_its_commands_make_a_fleet_and_remove_it(tmp_path: Path) -> None:
    page = _PAGE.read_text(encoding="utf-8")
    section = page[page.index("\n## Try it on one machine\n") : page.index("\n## Roll out\n")]
    made, changed, removed = re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    [promised] = re.findall(r"It ends with `([^`]+)`", section)
    commands = "\n".join([made, "echo MADE", changed, "echo CHANGED", removed])
    done = subprocess.run(
        ["unshare", "--mount", "--net", "bash", "-c", _SCRIPT.format(own=" ".join(_OWN), commands=commands)],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=4 * PATIENCE_S,
        check=False,
    )
    said = done.stdout
    assert done.returncode == 0, said
    first, rest = said.split("MADE\n")
    assert first.splitlines()[-1] == promised
    drained, undrained = re.findall(r"generation \d+: applied by 2 of 2 DPUs", rest)
    assert drained != undrained
    assert re.findall(r"fips3 .* 0 +0% +0%", rest)[1:] != [], said
    assert said.splitlines()[-1] == "left:", said
