"""All tests in one run: `python -m pytest -n 6 -p tests.whole_run`.

Machines boot first and run beside the rest, the short tests fill the end. Cases that start daemons or machines and
fail are tried once more, alone, after the others (as RECHECK=yes in the tests of Open vSwitch, tests/testsuite.at).
What passes then is listed. After failures for more than a few reasons none is tried again; a scenario of the NIC is one
reason, whatever its tests say, and so is an error text of a file.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from heapq import nlargest

import pytest
from xdist.scheduler import LoadScopeScheduling

_PARTS = ("nic", "systemd", "packaging", "ovs", "browser", "property", "golden", "scenario", "unit")
"""Folders of tests in the order in which they begin."""
_MACHINES = _PARTS[:3]
_WITH_DAEMONS = _PARTS[:5]
_MOST_ALONE = 3
_MOST_SLOW = 10
SCENARIO = "scenario"
"""Of `user_properties`: what was recorded for several tests."""
_ALONE = pytest.StashKey[dict[str, str]]()
"""Names of the cases that passed alone, and how they failed before."""


def _part_of(nodeid: str) -> str:
    return nodeid.split("/")[1] if nodeid.startswith("tests/") else ""


class _ByPart(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each worker whole files, as they share fixtures; the tests of one kind of machine are as one file."""

    def _split_scope(self, nodeid: str) -> str:
        part = _part_of(nodeid)
        return part if part in _MACHINES else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    config.option.loadscopereorder = False
    return _ByPart(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {part: number for number, part in enumerate(_PARTS)}
    items.sort(key=lambda item: order.get(_part_of(item.nodeid), len(order)))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Try the failed cases again, one by one, when the workers and their daemons have ended."""
    config = session.config
    config.stash[_ALONE] = {}
    if hasattr(config, "workerinput") or exitstatus != pytest.ExitCode.TESTS_FAILED:
        return
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None
    stats = reporter.stats
    failed = {report.nodeid: report for kind in ("failed", "error") for report in stats.get(kind, ())}
    again = [name for name in failed if _part_of(name) in _WITH_DAEMONS]
    if len({_reason(failed[name]) for name in again}) > _MOST_ALONE:
        return
    alone = {name: failed[name].longreprtext for name in _passing(again, config)}
    for kind in ("failed", "error"):
        if not (left := [report for report in stats.pop(kind, ()) if report.nodeid not in alone]):
            continue
        stats[kind] = left
    passed = stats.setdefault("passed", [])
    passed += [failed[name] for name in alone.keys() - {report.nodeid for report in passed}]
    config.stash[_ALONE] = alone
    if alone.keys() == failed.keys():
        session.exitstatus = pytest.ExitCode.OK


def _reason(report: pytest.TestReport) -> object:
    scenario = dict(report.user_properties).get(SCENARIO)
    return scenario or (report.nodeid.partition("::")[0], report.longreprtext)


def _passing(names: Sequence[str], config: pytest.Config) -> list[str]:
    """Return those of the cases that pass, one after the other in one process: they share what fixtures start."""
    if not names:
        return []
    argv = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-p", "no:xdist", *names]
    lines = subprocess.run(argv, cwd=config.rootpath, check=False, capture_output=True, text=True).stdout.splitlines()
    outcome = {name: [line for line in lines if line.endswith(name) or f" {name} - " in line] for name in names}
    return [name for name, found in outcome.items() if found == [f"PASSED {name}"]]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show how long parts and the slowest cases took, and which cases passed alone; these also go into a file."""
    every = (each for found in terminalreporter.stats.values() for each in found)
    reports = [each for each in every if isinstance(each, pytest.TestReport)]
    terminalreporter.section("time")
    for line in (*_parts(reports), *_slowest(reports)):
        terminalreporter.write_line(line)
    alone, path = config.stash[_ALONE], config.rootpath / ".pytest_cache" / "passed-alone.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{name}\n{how}\n\n" for name, how in alone.items()))
    for name in alone:
        terminalreporter.write_line(f"passed alone, failed beside others: {name} (how it failed: {path})")


def _parts(reports: Collection[pytest.TestReport]) -> Iterator[str]:
    found = defaultdict[str, list[pytest.TestReport]](list)
    for report in reports:
        found[_part_of(report.nodeid)].append(report)
    for part, its in sorted(found.items(), key=lambda item: min(each.start for each in item[1])):
        cases, busy_s = len({each.nodeid for each in its}), sum(each.duration for each in its)
        whole_s = max(each.stop for each in its) - min(each.start for each in its)
        yield f"{whole_s:6.1f} s tests/{part}: {cases} cases, which took {busy_s:.0f} s"


def _slowest(reports: Collection[pytest.TestReport]) -> Iterator[str]:
    durations = defaultdict[str, float](float)
    for report in reports:
        durations[report.nodeid] += report.duration
    for name in nlargest(_MOST_SLOW, durations, key=durations.__getitem__):
        yield f"{durations[name]:6.1f} s {name}"
