"""`make faults`: puts small faults into `xenoovs/`, one at a time, and shows which of them the tests find.

Each is put into a copy of the tree. A change of the tests loses nothing if as many faults are found after it as before.
A fault is a text that stands once in the package, wherever the code is by now, and what replaces it; `--list` says
which texts are no longer there. Only tests that could see a fault run, until the first one fails.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_PACKAGE = "xenoovs"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_TIMEOUT_S = 1800

_DECIDE = ("tests/unit/decision", "tests/scenario", "tests/property/test_decision*", "tests/property/test_remotes*")
_BACKUPS = ("tests/property/test_backups*", "tests/property/test_plan_*")
_BLOCKS = ("tests/unit/partition", "tests/unit/decision", "tests/property/test_partition*", "tests/golden")
_ADVANCE = ("tests/unit/decision", "tests/unit/agent", "tests/scenario", "tests/property/test_compile_drain*")
_HEALTH = ("tests/unit/agent", "tests/scenario", "tests/property/test_agent*")
_COMPILE = (
    *("tests/unit/compile", "tests/golden", "tests/property/test_compile*"),
    *("tests/property/test_plan*", "tests/property/test_read*"),
)
_PLAN = (*_COMPILE, "tests/unit/cli")
_FLEET = (
    *("tests/unit/fleet", "tests/unit/agent", "tests/scenario/test_operators.py"),
    *("tests/property/test_fleet*", "tests/property/test_appointments*"),
)
_STORE = ("tests/unit/store", "tests/unit/fleet", "tests/property/test_store*", "tests/property/test_fleet*")
_VERIFY = ("tests/unit/judge", "tests/golden", "tests/property/test_verify*", "tests/property/test_offload*")
_PARSERS = ("tests/unit/datapath", "tests/unit/openflow", "tests/property/test_*openflow*", *_VERIFY)


@dataclass(frozen=True, slots=True)
class Fault:
    """A mistake that somebody could make.

    Attributes:
        name: What goes wrong.
        old: Stands once in the package.
        new: Replaces it.
        tests: Paths and patterns of the tests that could see it.
    """

    name: str
    old: str
    new: str
    tests: tuple[str, ...]


FAULTS = (
    Fault(
        "a path that is gone hands its blocks to the fullest path",
        "units[position] = heir = min(usable, key=lambda name: held[name])",
        "units[position] = heir = max(usable, key=lambda name: held[name])",
        (*_DECIDE, "tests/unit/agent_paths", "tests/property/test_path*"),
    ),
    Fault(
        "idle backends keep homes although the others cannot take their clients",
        "return least <= 1 and all(",
        "return all(",
        (*_DECIDE, *_BACKUPS),
    ),
    Fault(
        "the smallest backend that is gone is inherited first",
        "gone.sort(key=lambda i: -spaces[i])",
        "gone.sort(key=lambda i: spaces[i])",
        (*_DECIDE, *_BACKUPS),
    ),
    Fault(
        "a plan ends the slow starts that the bridge shows",
        "ramps |= {(service.name, name): part for name, part in displaced.items() if part}",
        "ramps |= {(service.name, name): part for name, part in displaced.items() if not part}",
        (*_DECIDE, *_PLAN),
    ),
    Fault(
        "all backends of a service start slowly at once",
        "if len(parts) < len(serving) else {}",
        "if len(parts) <= len(serving) else {}",
        (*_DECIDE, *_BACKUPS, *_HEALTH),
    ),
    Fault(
        "a backend that shrinks splits its largest piece",
        "cut = min(skipped, key=lambda piece: (piece.size, piece.start))",
        "cut = max(skipped, key=lambda piece: (piece.size, piece.start))",
        _BLOCKS,
    ),
    Fault(
        "exchanges of pieces move more clients than allowed",
        "if best.gain(price) < 0 or best.cost > left:",
        "if best.gain(price) < 0:",
        _BLOCKS,
    ),
    Fault(
        "free buddies are merged once only",
        "        while start ^ size in self._starts[size]:\n            self._starts[size].remove(start ^ size)",
        "        if start ^ size in self._starts[size]:\n            self._starts[size].remove(start ^ size)",
        _BLOCKS,
    ),
    Fault(
        "a solution with one block too many counts as optimal",
        "return lb1(allowed) >= count or",
        "return lb1(allowed) >= count - 1 or",
        _BLOCKS,
    ),
    Fault(
        "a budget of flows is not used to its last flow",
        "if len(found.assignment.blocks) <= max_flows:",
        "if len(found.assignment.blocks) < max_flows:",
        _BLOCKS,
    ),
    Fault(
        "a block opens by time alone, before Open vSwitch has revalidated",
        "return is_seen and settle_s is not None and",
        "return settle_s is not None and",
        _ADVANCE,
    ),
    Fault(
        "a block that came back is taken for settled",
        "if move is None or move.old == owner:",
        "if move is None:",
        _ADVANCE,
    ),
    Fault(
        "a service of any protocol has no connections to learn",
        "self._learns = service.claim.protocol in (None, Protocol.TCP)",
        "self._learns = service.claim.protocol is Protocol.TCP",
        _ADVANCE,
    ),
    Fault(
        "a backend that failed, came up and failed again counts as held all the time",
        "for name, free_s in self.held.items() if down.get(name) == self.down[name]",
        "for name, free_s in self.held.items() if name in down",
        _HEALTH,
    ),
    Fault(
        "the last backend may be ejected",
        "return max(min(int(health.max_down * total), total - 1), 0)",
        "return max(min(int(health.max_down * total), total), 0)",
        _HEALTH,
    ),
    Fault(
        "a slow start goes on half a step too late after a restart",
        "now_s - max(0.0, float(part) * STEPS - 0.5) /",
        "now_s - max(0.0, float(part) * STEPS) /",
        _HEALTH,
    ),
    Fault(
        "where both IP families differ, IPv6 wins",
        "key=lambda each: (-_family(each.flow), each.flow.priority)",
        "key=lambda each: (_family(each.flow), each.flow.priority)",
        _COMPILE,
    ),
    Fault(
        "moves of services that learn nothing are read as settling",
        "is_open = _hop(opens[block]) == to if block in opens else not self._learns",
        "is_open = _hop(opens[block]) == to if block in opens else False",
        (*_COMPILE, *_ADVANCE),
    ),
    Fault(
        "homes that are in use are not read",
        "return ServiceDecision(self._key, remembered.over(active), active)",
        "return ServiceDecision(self._key, remembered, active)",
        (*_COMPILE, *_DECIDE),
    ),
    Fault(
        "space that nobody serves counts as moved",
        "sum(max(0, lo - units) for units, (lo, _) in bounds) - unserved",
        "sum(max(0, lo - units) for units, (lo, _) in bounds)",
        _PLAN,
    ),
    Fault(
        "megaflows for ECN behind tunnels count once too often",
        "(ECN_CODE_POINTS - 1)",
        "ECN_CODE_POINTS",
        _PLAN,
    ),
    Fault(
        "a block is quiet from before its last packet",
        "found[block] = (count, since_s if count == before else read_s)",
        "found[block] = (count, since_s if count == before else asked_s)",
        (*_COMPILE, *_ADVANCE),
    ),
    Fault(
        "the only override of a service keeps its end, and ends again in each round",
        "remaining = tuple(replace(each, until_s=None) if each in due else each for each in overrides)",
        "remaining = overrides",
        _HEALTH,
    ),
    Fault(
        "maintenance returns the backends that probes have ejected",
        "ejected[service] = ejected.get(service, frozenset()) | names",
        "ejected[service] = names",
        _HEALTH,
    ),
    Fault(
        "a check is up if one of its backends was",
        "is_up = all(parts) if parts else None",
        "is_up = any(parts) if parts else None",
        _HEALTH,
    ),
    Fault(
        "maintenance keeps the weight of an earlier config",
        "remaining.append(replace(renamed, weight=renamed.configured))",
        "remaining.append(renamed)",
        _HEALTH,
    ),
    Fault(
        "a witness votes before it knows that it is one",
        "and watch.generation <= status.voted <= view.generation",
        "and status.voted <= view.generation",
        (*_FLEET, *_STORE),
    ),
    Fault(
        "half of the witnesses are a quorum",
        "return size // 2 + 1",
        "return (size + 1) // 2",
        _FLEET,
    ),
    Fault(
        "witnesses are replaced when most reports are missing",
        "may_choose = may_choose and 2 * len(fit) >= len(members(view.dpus))",
        "may_choose = may_choose and bool(fit)",
        _FLEET,
    ),
    Fault(
        "a wave fails at exactly 5 % of silent DPUs",
        "if problems or len(texts) > members * _MAX_SILENT:",
        "if problems or len(texts) >= members * _MAX_SILENT:",
        _FLEET,
    ),
    Fault(
        "a DPU that becomes unfit in its wave does not count",
        "and not (name in before and is_unfit(dpu, statuses))",
        "and not is_unfit(dpu, statuses)",
        _FLEET,
    ),
    Fault(
        "the history of intents has one too many",
        "oldest = sorted({*view.intents, intent.number})[:-MAX_INTENTS]",
        "oldest = sorted({*view.intents, intent.number})[: -MAX_INTENTS - 1]",
        _FLEET,
    ),
    Fault(
        "a key of a map that gets another value is not deleted first",
        "gone = [key for key in before if value.get(key) != before[key]]",
        "gone = [key for key in before if key not in value]",
        _STORE,
    ),
    Fault(
        "an escape at the end of a part of a message is forgotten",
        "at, end = int(self._is_escaped and bool(text)), len(text)",
        "at, end = 0, len(text)",
        _STORE,
    ),
    Fault(
        "hops without packets make chains as slow as they are",
        "active = [each for each in judged if each.packets] or judged",
        "active = judged",
        _VERIFY,
    ),
    Fault(
        "one stray packet makes a rule of the NIC one of software",
        "return Verdict.TC_SW if growth.sw_packets > _STRAY * growth.packets else Verdict.HW",
        "return Verdict.TC_SW if growth.sw_packets else Verdict.HW",
        _VERIFY,
    ),
    Fault(
        "services of any port are overlooked where a megaflow has a port",
        "            if in_port is not None:\n                yield from table.get((None, values), ())",
        "            if in_port is None:\n                yield from table.get((None, values), ())",
        _VERIFY,
    ),
    Fault(
        "hardware counters of 32 bits wrap down",
        "max(0, round((expected - least) / _WRAP))",
        "max(0, int((expected - least) / _WRAP))",
        _PARSERS,
    ),
    Fault(
        "an IPv6 mask with other first bits is sent in a form that says another mask",
        "if field.form is not Format.IPV6 or mask >> 112 or",
        "if field.form is not Format.IPV6 or",
        _PARSERS,
    ),
    Fault(
        "ports that begin within a range before them do not clash",
        "for other, owner in held[max(index - 1, 0) : index + 1]:",
        "for other, owner in held[index : index + 1]:",
        ("tests/unit/model", "tests/unit/cli", "tests/property/test_config*"),
    ),
)


class Tree:
    """A copy of the files that Git knows, where faults are put in and taken out."""

    def __init__(self, source: Path, target: Path) -> None:
        self.root, self._writes = target, 0
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=source, capture_output=True, check=True, text=True)
        for name in filter(None, listed.stdout.split("\0")):
            if (source / name).exists():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source / name, target / name, follow_symlinks=False)

    def places(self, text: str) -> list[Path]:
        """Return the files of the package with a text, as often as they have it."""
        files = sorted((self.root / _PACKAGE).rglob("*.py"))
        return [path for path in files for _ in range(path.read_text().count(text))]

    def write(self, path: Path, text: str) -> None:
        """Write a file; its time differs from all before, as compiled files of Python go by size and whole seconds."""
        path.write_text(text)
        self._writes += 1
        os.utime(path, (self._writes, self._writes))

    def run(self, patterns: Iterable[str], workers: int) -> tuple[int, str]:
        """Run the tests until one fails; return the exit status and the output. Patterns without files are left out."""
        paths = {str(path.relative_to(self.root)): None for each in patterns for path in sorted(self.root.glob(each))}
        argv = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", "--tb=no", *paths]
        argv += ["-n", str(workers), "--dist", "loadfile"] if workers else []
        env = {**os.environ, "PYTHONPATH": str(self.root), "HYPOTHESIS_STORAGE_DIRECTORY": str(self.root / ".examples")}
        done = subprocess.run(argv, cwd=self.root, capture_output=True, text=True, env=env, timeout=_TIMEOUT_S)
        return done.returncode, done.stdout + done.stderr


def verdict_on(tree: Tree, fault: Fault, workers: int) -> str:
    """Return `found by TEST`, `NOT FOUND`, or why the fault could not be put in."""
    places = tree.places(fault.old)
    if len(places) != 1:
        return f"TEXT STANDS {len(places)} TIMES: {fault.old}"
    sound = places[0].read_text()
    tree.write(places[0], sound.replace(fault.old, fault.new))
    try:
        status, output = tree.run(fault.tests, workers)
    except subprocess.TimeoutExpired:
        return f"found by a test that did not end within {_TIMEOUT_S} s"
    finally:
        tree.write(places[0], sound)
    if status == 0:
        return "NOT FOUND"
    failed = _FAILED.search(output)
    return f"found by {failed[1]}" if failed else f"FAILED WITH STATUS {status}: {output[-300:]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line for each fault, and how many were found. Status 1: fewer than `--least`, or tests fail without."""
    parser = ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="only show where the faults are")
    parser.add_argument("--only", metavar="TEXT", default="", help="faults whose name has this text")
    parser.add_argument("--least", metavar="N", type=int, default=0, help="status 1 if fewer are found")
    parser.add_argument("--workers", metavar="N", type=int, default=2, help="processes that test; 0: this one alone")
    given = parser.parse_args(arguments)
    faults = [each for each in FAULTS if given.only in each.name]
    with tempfile.TemporaryDirectory(prefix="seeded-faults-") as directory:
        tree = Tree(_ROOT, Path(directory))
        if given.list:
            for each in faults:
                places = [str(path.relative_to(tree.root)) for path in tree.places(each.old)]
                print(f"{each.name}: {', '.join(places) or f'NOWHERE: {each.old}'}")
            return 0
        status, output = tree.run({pattern: None for each in faults for pattern in each.tests}, given.workers)
        if status:
            print(f"without any fault the tests fail, so they show nothing:\n{output[-3000:]}")
            return 1
        found = 0
        for number, each in enumerate(faults, 1):
            verdict = verdict_on(tree, each, given.workers)
            found += verdict.startswith("found")
            print(f"{number:2} {each.name}: {verdict}", flush=True)
    print(f"{found} of {len(faults)} faults found")
    return int(found < given.least)


if __name__ == "__main__":
    sys.exit(main())
