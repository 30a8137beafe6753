"""`xenoovs verify-offload --diff`: what got worse between two records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from xenoovs.display import percent
from xenoovs.evidence.archive import Record, Replay
from xenoovs.evidence.collector import Collector
from xenoovs.judge.compare import Comparison, Side, Traffic, side_of, to_json
from xenoovs.regex import MULTILINE, regex
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.tape import passing_through
from xenoovs.terminal.command import EXIT_DIFFERS, EXIT_NOTHING_SEEN, EXIT_OK
from xenoovs.terminal.output import SarifResult, answer, echo, print_table, print_text
from xenoovs.terminal.reach import open_record

_DRIVER = regex(r"^(driver|firmware-version): (.+)$", MULTILINE)


def compare(before: Path, after: Record, file: Path) -> int:
    """Show what got worse since the record in a file, and return the exit status. `file`: that of the record `after`.
    Raises OSError, FileUnusable."""
    records = (open_record(before), after)
    versions = tuple(map(_versions, records))
    # A record lacks versions if it was cut or a port is gone; only those in both are compared.
    both = versions[0].keys() & versions[1].keys()
    known = ({name: found for name, found in each.items() if name in both} for each in versions)
    comparison = Comparison(*map(_side, records, known))
    answer(lambda: to_json(comparison), lambda: _show(comparison), lambda: _findings(comparison, str(file)))
    nothing = EXIT_NOTHING_SEEN if comparison.is_silent else EXIT_OK
    return EXIT_DIFFERS if comparison.worse else nothing


def _side(record: Record, versions: Mapping[str, str]) -> Side:
    with passing_through(Replay(record)):
        collector = Collector(ManagementSwitch(record.endpoint), interval_s=1.0)
        bridges = collector.switch.bridges()
        ports = frozenset(port.name for bridge in bridges for port in bridge.ports)
        evidence = collector.megaflows(bridges[0].name if bridges else "", ingress=ports, is_whole=True)
        known = collector.host_of_megaflows(evidence, ())
    return side_of(known, versions)


def _versions(record: Record) -> dict[str, str]:
    """Return the versions of programs, drivers and firmware."""
    found = dict[str, str]()
    for each in record.found:
        match each.question:
            case ("ip", "-V"):
                found["iproute2"] = each.answer.text.strip()
            case (*_, "ethtool", "-i", device):
                found |= {f"device {device}: {name}": value for name, value in _DRIVER.findall(each.answer.text)}
    return found


def _findings(comparison: Comparison, file: str) -> list[SarifResult]:
    worse = [SarifResult("traffic-worse", "error", f"{kind}: {text}", file) for kind, text in comparison.worse.items()]
    changes = [SarifResult("host-changed", "note", str(each), file) for each in comparison.changes]
    return [SarifResult("comparison", "error" if worse else "note", comparison.headline, file), *worse, *changes]


def _show(comparison: Comparison) -> None:
    worse = comparison.worse
    colour = "red" if worse else "yellow" if comparison.is_silent else "green"
    print_text(comparison.headline, fg=colour, bold=True)
    echo()
    sides = (comparison.before, comparison.after)
    rows = [
        [
            str(kind),
            *(cell for side in sides for cell in _cells(side.traffic.get(kind))),
            "worse" if kind in worse else "",
        ]
        for kind in comparison.kinds
    ]
    headers = ["TRAFFIC", *(f"{name} {when}" for when in ("BEFORE", "AFTER") for name in ("", "IN HW", "PACKETS")), ""]
    print_table([header.strip() for header in headers], rows, right=(2, 3, 5, 6))
    for kind, text in worse.items():
        print_text(f"\n{kind}: {text}", indent="  ", fg="red")
    if comparison.changes:
        echo("\nchanged:")
    for change in comparison.changes:
        print_text(f"  {change.name}: {change.before or '-'} -> {change.after or '-'}", indent="    ")


def _cells(traffic: Traffic | None) -> tuple[str, str, str]:
    if traffic is None:
        return "-", "-", "-"
    return traffic.verdict.value, percent(traffic.share), str(traffic.growth.packets)
