"""`make test-versions`: tests on each Open vSwitch and Python that Debian has; docs/how-to/install.md shows what ran.

`scripts/test_versions.py [SUITE[:PART]...]`, such as `trixie`, `sid:demo`; without any: all parts of all releases.

core: the tests marked `each_release`, on this host's Python, with the Open vSwitch of the release.
demo: `make demo` in that Debian, with its own Python; `make setup` installs what it needs.
ovs:  all of tests/ovs there; of a release whose Python is too old on this host's Python.
laws: tests/golden and tests/property there.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.ovs.releases import DIFFERENCES, version_of

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests" / "versions.json"
PAGE = ROOT / "docs" / "how-to" / "install.md"
BEGIN, END = "<!-- made by scripts/test_versions.py from tests/versions.json -->\n", "<!-- end -->\n"
PARTS = {
    "bullseye": ("core", "ovs"),
    "bookworm": ("core", "demo", "ovs", "laws"),
    "trixie": ("core", "demo", "ovs", "laws"),
    "sid": ("core", "demo", "ovs", "laws"),
}
"""Debian 11 has Python 3.9, which xenoovs does not support."""
NAMES = {
    "core": "core laws: apply, read back, verify, failover, controller, megaflows",
    "demo": "`make setup` and `make demo`",
    "ovs": "all of tests/ovs",
    "laws": "golden files and property laws",
}
_TESTS = (
    "-m",
    "pytest",
    "-q",
    "-n",
    "2",
    "--dist",
    "loadfile",
    "-p",
    "no:cacheprovider",
    "-k",
    "not bullseye and not trixie",
)
_ARGUMENTS = {
    "core": (*_TESTS, "-m", "each_release", "tests/ovs"),
    "ovs": (*_TESTS, "tests/ovs"),
    "laws": (*_TESTS, "tests/golden", "tests/property"),
}
_SUMMARY = re.compile(r"^=*\s*((?:[0-9]+ [a-z]+,? ?)+) in [0-9.]+s", re.MULTILINE)


def main() -> int:
    """Return 1 where a part failed."""
    wanted = sys.argv[1:] or list(PARTS)
    runs = [
        (suite, each)
        for suite, _, part in (word.partition(":") for word in wanted)
        for each in ([part] if part else PARTS[suite])
    ]
    lines, failed = list[str](), False
    for suite, part in runs:
        is_own = part == "core" or suite == "bullseye"
        within = [str(ROOT / "scripts" / ("ovs-release" if is_own else "in-debian")), suite]
        python = sys.executable if is_own else ".venv/bin/python"
        if part == "demo":
            argv = ["make", "demo"]
        else:
            argv = (
                [python, *_ARGUMENTS[part]]
                if is_own
                else ["sh", "-c", 'make -s setup; exec "$@"', "sh", python, *_ARGUMENTS[part]]
            )
        print(f"==> {suite}: {NAMES[part]}", flush=True)
        done = subprocess.run([*within, *argv], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout, flush=True)
        summary = _SUMMARY.search(done.stdout)
        result = summary[1] if summary else "passed" if done.returncode == 0 else f"status {done.returncode}"
        failed |= done.returncode != 0
        where = ["sh", "-c", '. /etc/os-release; echo "$PRETTY_NAME"; "$0" -V; ovs-vswitchd --version', python]
        system, version, ovs = subprocess.check_output([*within, *where], cwd=ROOT, text=True).splitlines()[:3]
        row = {
            "date": time.strftime("%Y-%m-%d"),
            "system": system,
            "python": version.split()[1],
            "ovs": ovs.split()[3],
            "release": suite,
            "part": part,
            "result": result,
        }
        record(row)
        lines.append(" ".join((row["system"], "Python", row["python"], "Open vSwitch", row["ovs"], f"{part}:", result)))
    print("\n".join(lines))
    for suite in dict.fromkeys(suite for suite, _ in runs):
        for each in DIFFERENCES:
            if version_of(suite) <= each.last:
                print(f"not on {suite}: {each.tests}: {each.reason}")
    return 1 if failed else 0


def record(row: dict[str, str]) -> None:
    """Write a result in the place of the one before, and the table of the page."""
    rows = json.loads(RECORD.read_text()) if RECORD.exists() else []
    rows = [each for each in rows if (each["release"], each["part"]) != (row["release"], row["part"])]
    order = [(suite, part) for suite, parts in PARTS.items() for part in parts]
    rows = sorted([*rows, row], key=lambda each: order.index((each["release"], each["part"])))
    RECORD.write_text(json.dumps(rows, indent=1) + "\n")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + "".join(table()) + END + rest.partition(END)[2])


def table() -> Iterator[str]:
    """Yield the lines of the table of what ran."""
    yield "| system | Python | Open vSwitch | what ran | result | date |\n|---|---|---|---|---|---|\n"
    for row in json.loads(RECORD.read_text()):
        release = f" of {row['release']}" if row["part"] == "core" or row["release"] == "bullseye" else ""
        cells = (row["system"], row["python"], row["ovs"] + release, NAMES[row["part"]], row["result"], row["date"])
        yield f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    sys.exit(main())
