"""What `xenoovs` said of a moment (`guest/record.py`, Judgement), beside what the NIC and traffic control hold then."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from tests.nic.recorded import VIP, Seen, Story
from xenoovs.datapath.megaflow import Megaflow, match_of, read_masked


@dataclass(frozen=True, slots=True)
class Judged:
    """One moment. `verify`, `why`, `doctor`: the JSON documents, empty if not asked; `exit_codes`: by command.

    asked: `why` about one client, which speaks of megaflows of no service too; none, where there are none to explain.
    """

    look: Seen
    verify: dict[str, Any]
    why: dict[str, Any]
    asked: dict[str, Any]
    doctor: dict[str, Any]
    exit_codes: dict[str, int]
    before: dict[str, Any]
    after: dict[str, Any]

    @property
    def explained(self) -> dict[str, list[dict[str, Any]]]:
        """The reasons that `why` gives, the most likely first, by the ufid of the megaflow."""
        megaflows = (*self.asked["megaflows"], *self.why["megaflows"])
        return {megaflow["ufid"]: megaflow["reasons"] for megaflow in megaflows}

    def causes(self, *, to: str = VIP) -> set[str]:
        """The most likely causes of megaflows for packets to `to` that are not in hardware."""
        ufids = self.look.verdicts(to=to)
        return {reasons[0]["cause"] for ufid, reasons in self.explained.items() if ufid in ufids}

    @property
    def wrong(self) -> list[tuple[str, str | None]]:
        """The rows of `doctor` that are wrong: check and subject."""
        return [(row["check"], row["subject"]) for row in self.doctor["checks"] if row["state"] == "wrong"]


def judgements(story: Story, command: str) -> list[Judged]:
    """All of a scenario in which a command was asked, oldest first: at least one."""
    found = [_judged(story, one) for one in story.record["judgements"] if command in one["said"]]
    assert found
    return found


def judged_at(story: Story, label: str) -> Judged:
    """The one at the look of that label."""
    return next(_judged(story, one) for one in story.record["judgements"] if one["label"] == label)


def _judged(story: Story, one: dict[str, Any]) -> Judged:
    said = one["said"]
    documents = {command: _document(words) for command, words in said.items() if command != "trace"}
    return Judged(
        look=story.look(one["label"]),
        verify=documents.get("verify-offload", {}),
        why=documents.get("why", {}),
        asked=documents.get("why of a client", {"megaflows": []}),
        doctor=documents.get("doctor", {}),
        exit_codes={command: words["exit_code"] for command, words in said.items()},
        before=one["before"],
        after=one["after"],
    )


def _document(said: dict[str, Any]) -> dict[str, Any]:
    assert said["exit_code"] in (0, 2, 3), said
    document: dict[str, Any] = json.loads(said["stdout"])
    return document


def megaflows_of(block: dict[str, Any], look: Seen) -> list[Megaflow]:
    """The megaflows that carry packets of a block, by addresses and ingress port alone: no code of the join."""
    to = "10.3.10.46" if block["service"] == "plain" else VIP
    vip, low_bits = read_masked(to, 32), read_masked(_source_of(block), 32)
    found = []
    for flow in look.megaflows:
        match = match_of(flow)
        source = match.get("nw_src")
        is_here = flow.in_port == "p0" and flow.recirc_id == 0 and match.get("nw_dst") == vip
        is_ours = "nw_proto" in match and match["nw_proto"].value in (_TCP, _UDP)
        if is_here and is_ours and source is not None and source.value & low_bits.mask == low_bits.value:
            found.append(flow)
    return found


_TCP, _UDP = 6, 17


def _source_of(block: dict[str, Any]) -> str:
    [source] = re.findall(r"nw_src=([^ ,]+)", block["flow"])
    return str(source)
