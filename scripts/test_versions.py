"""`make test-versions`: tests on each Open vSwitch and Python that Debian has; docs/how-to/install.md shows what ran.

`scripts/test_versions.py [--again] [RELEASE[:PIECE]...]`, such as `trixie`, `sid:demo`, `sid:tests/ovs/test_why.py`.
A piece is `demo`, `tests/golden`, `tests/property` or a file of tests/ovs. Its result is written down at once, and what
has passed runs again only with `--again`: a run that was ended goes on where it was.

A release runs in its own Debian, with its own Python. Python 3.9 of bullseye is too old: its Open vSwitch runs on this
host instead, with this host's Python. Pythons that no Debian has are those that scripts/in-python finds.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.machines import IPSEC_PACKAGES
from tests.ovs.releases import DIFFERENCES

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests" / "versions.json"
PAGE = ROOT / "docs" / "how-to" / "install.md"
BEGIN, END = "<!-- made by scripts/test_versions.py from tests/versions.json -->\n", "<!-- end -->\n"
RELEASES = {
    "bullseye": ("demo", "tests/ovs"),
    "bookworm": ("demo", "tests/ovs", "tests/golden", "tests/property"),
    "trixie": ("demo", "tests/ovs", "tests/golden", "tests/property"),
    "sid": ("demo", "tests/ovs", "tests/golden", "tests/property"),
    "3.10": ("tests/golden", "tests/property", "tests/unit"),
    "3.12": ("tests/golden", "tests/property", "tests/unit"),
}
_HOW = {"bullseye": "ovs-release", "3.10": "in-python", "3.12": "in-python"}
_PYTHON = {"in-debian": ".venv/bin/python", "in-python": "python", "ovs-release": sys.executable}
_PATIENCE_S = 3600
_IPSEC = " ".join(IPSEC_PACKAGES)
_PREPARE = (
    "make -s setup; scripts/setup-frr; scripts/setup-ovn; scripts/setup-measure; "
    f"dpkg -s {_IPSEC} >/dev/null 2>&1 || apt-get install -qq -y --no-install-recommends {_IPSEC} >/dev/null"
)
_BEGINNING = """. /etc/os-release; echo "$PRETTY_NAME|$("$0" -V)|$(ovs-vswitchd --version | head -n 1)"; exec "$@" """
_MIXED = "test_servers_of_three_releases_of_open_vswitch"
_PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", f"not bullseye and not trixie and not {_MIXED}")
_SUMMARY = re.compile(r"^=*\s*((?:[0-9]+ [a-z]+,? ?)+) in [0-9.]+s", re.MULTILINE)


def main() -> int:
    """Return 1 where a piece failed."""
    words = sys.argv[1:]
    again = "--again" in words
    wanted = [word for word in words if word != "--again"] or list(RELEASES)
    failed, releases = False, dict.fromkeys(word.partition(":")[0] for word in wanted)
    for release, _, piece in (word.partition(":") for word in wanted):
        for each in [piece] if piece else pieces_of(release):
            if not again and is_passed(_results(release).get(each, {}).get("result", "")):
                continue
            print(f"==> {release}: {each}", flush=True)
            failed |= not is_passed(run(release, each))
    for release in releases:
        print(f"{release}: {total(_results(release))}")
    return 1 if failed else 0


def pieces_of(release: str) -> Iterator[str]:
    """Yield all pieces; files with the core laws, marked `each_release`, come first of tests/ovs."""
    for each in RELEASES[release]:
        if each != "tests/ovs":
            yield each
        else:
            files = sorted((ROOT / each).glob("test_*.py"))
            files.sort(key=lambda path: "pytest.mark.each_release" not in path.read_text())
            yield from (str(path.relative_to(ROOT)) for path in files)


def run(release: str, piece: str) -> str:
    """Run a piece, and return what is written down: `passed`, what pytest counts, or how it ended."""
    how = _HOW.get(release, "in-debian")
    python = _PYTHON[how]
    argv = ["make", "demo"] if piece == "demo" else [python, *_PYTEST, piece]
    begin = ["sh", "-ec", f"({_PREPARE}) >&2; {_BEGINNING}" if how == "in-debian" else _BEGINNING, python]
    try:
        done = subprocess.run(
            [str(ROOT / "scripts" / how), release, *begin, *argv],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return record(release, piece, f"not done after {_PATIENCE_S} s", "")
    print(done.stdout, flush=True)
    summary = _SUMMARY.search(done.stdout)
    result = summary[1] if summary else "passed" if done.returncode == 0 else f"status {done.returncode}"
    return record(release, piece, result, done.stdout.partition("\n")[0])


def is_passed(result: str) -> bool:
    """Return whether nothing failed, of what the version can."""
    return bool(re.search("passed|deselected", result)) and not re.search("failed|error", result)


def record(release: str, piece: str, result: str, versions: str) -> str:
    """Write a result in the place of the one before, and the table of the page. Return the result."""
    rows = json.loads(RECORD.read_text())
    row = rows.setdefault(release, {"pieces": {}})
    if versions.count("|") == 2:
        system, python, ovs = versions.split("|")
        row |= {"system": system, "python": python.split()[1], "ovs": ovs.split()[3]}
    row["pieces"][piece] = {"date": time.strftime("%Y-%m-%d"), "result": result}
    RECORD.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + "".join(table()) + END + rest.partition(END)[2])
    return result


def _results(release: str) -> dict[str, dict[str, str]]:
    """Return piece -> date and result."""
    results: dict[str, dict[str, str]] = json.loads(RECORD.read_text()).get(release, {}).get("pieces", {})
    return results


def table() -> Iterator[str]:
    """Yield the lines of the table of what ran, and of what an older version cannot do."""
    yield "| system | Python | Open vSwitch | what ran | result | date |\n|---|---|---|---|---|---|\n"
    rows = json.loads(RECORD.read_text())
    for release, kinds in RELEASES.items():
        for kind in kinds:
            all_of = [each for each in pieces_of(release) if each.startswith(kind)]
            ran = {each: _results(release)[each] for each in all_of if each in _results(release)}
            if not ran:
                continue
            row = {"system": "", "python": "", "ovs": ""} | rows[release]
            what = f"`{'make demo' if kind == 'demo' else kind}`"
            what += f", {len(ran)} of {len(all_of)} files" if kind == "tests/ovs" else ""
            of = f" of {release}" if release == "bullseye" else ""
            date = max(each["date"] for each in ran.values())
            ovs = row["ovs"] + of if kind in ("demo", "tests/ovs") else "-"
            cells = (row["system"], row["python"], ovs, what, total(ran), date)
            yield f"| {' | '.join(cells)} |\n"
    yield "\nNot run on old versions:\n\n"
    for each in DIFFERENCES:
        text = f"- {'.'.join(map(str, each.last))} and older, `{each.tests}`: {each.reason}"
        yield textwrap.fill(text, 145, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) + "\n"
    yield f"\n`{_MIXED}` of `test_store_upgrade.py` runs in `make test` only: it starts 2.15, 3.1 and 3.5 itself.\n"


def total(ran: dict[str, dict[str, str]]) -> str:
    """Return the results of pieces as one: what passed, and the files where something did not."""
    counts = Counter[str]()
    for each in ran.values():
        for number, word in re.findall(r"([0-9]+) (passed|failed|errors?)", each["result"]):
            counts[word.removesuffix("s")] += int(number)
    bad = [f"`{piece}`: {each['result']}" for piece, each in ran.items() if not is_passed(each["result"])]
    return "; ".join(
        [f"{counts['passed']} passed" if counts["passed"] else "passed", *bad] if len(bad) < len(ran) else bad
    )


if __name__ == "__main__":
    sys.exit(main())
