"""`cluster/status` as values, recorded from ovsdb-server 3.1.0, and the messages for operators."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from xenoovs.errors import StoreError
from xenoovs.store.rows import StoreDatabase
from xenoovs.store.servers import ServerFacts, ServerRole, with_cluster_status

LEADER = """\
5d6d
Name: xenoovs
Cluster ID: 7213 (72138b35-9f8a-4e30-b328-849a9f5eb45f)
Server ID: 5d6d (5d6db013-2b53-491f-855c-b6f38e7edd97)
Address: tcp:127.0.0.1:26641
Status: cluster member
Role: leader
Term: 2
Leader: self
Vote: self

Last Election started 617 ms ago, reason: timeout
Last Election won: 617 ms ago
Election timer: 2000
Log: [2, 6]
Entries not yet committed: 0
Entries not yet applied: 0
Connections: <-304d ->304d <-a3df ->a3df
Disconnections: 0
Servers:
    304d (304d at tcp:127.0.0.1:26642) next_index=6 match_index=3 last msg 307 ms ago
    a3df (a3df at tcp:127.0.0.1:26643) next_index=6 match_index=5 last msg 7307 ms ago
    5d6d (5d6d at tcp:127.0.0.1:26641) (self) next_index=3 match_index=5
"""
CANDIDATE = """\
a3df
Name: xenoovs
Cluster ID: 7213 (72138b35-9f8a-4e30-b328-849a9f5eb45f)
Server ID: a3df (a3df44c7-aa74-4494-805a-c82d0dda639a)
Address: tcp:127.0.0.1:26643
Status: disconnected from the cluster (election timeout)
Role: candidate
Term: 3
Leader: unknown
Vote: self

Last Election started 1981 ms ago, reason: leadership_transfer
Election timer: 2000
Log: [2, 6]
Entries not yet committed: 1
Entries not yet applied: 1
Connections: (->0000) (->0000)
Disconnections: 2
Servers:
    304d (304d at tcp:127.0.0.1:26642) last msg 3893 ms ago
    a3df (a3df at tcp:127.0.0.1:26643) (self) (voted for a3df)
    5d6d (5d6d at tcp:127.0.0.1:26641)
"""


def facts(text: str, **changed: object) -> ServerFacts:
    made = ServerFacts(StoreDatabase.FLEET, Path("/store/xenoovs.db"), ServerRole.DOWN, is_connected=True)
    return replace(with_cluster_status(made, text), **{"size_bytes": 1000, "free_bytes": 10_000, **changed})  # type: ignore[arg-type]


def test_a_leader_reports_how_many_entries_others_lack_and_a_candidate_none() -> None:
    status = facts(LEADER)
    assert [(each.lag, each.silent_s) for each in status.members] == [(2, 0.307), (0, 7.307), (0, None)]
    status = facts(CANDIDATE)
    assert status.role is ServerRole.CANDIDATE
    assert [(each.lag, each.silent_s) for each in status.members] == [(None, 3.893), (None, None), (None, None)]


@pytest.mark.parametrize(
    "part",
    ["Role", "Term", "Election timer", "Log", "(304d at tcp:127.0.0.1:26642)"],
)
def test_a_text_without_a_line_that_counts_or_with_a_member_in_another_form_is_refused(part: str) -> None:
    with pytest.raises(StoreError, match="not known"):
        facts(LEADER.replace(part, "7"))


LOST = "the server of xenoovs has lost most of its cluster: nothing can be written until they are back"
DOWN = ServerFacts(StoreDatabase.STATES, Path("/store/x.db"), ServerRole.DOWN, is_connected=False)


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (facts(LEADER), "server tcp:127.0.0.1:26643 of xenoovs has not answered for 7s; look whether it runs"),
        (facts(CANDIDATE, is_connected=False), LOST),
        (facts(CANDIDATE), ""),
        (
            facts(CANDIDATE, size_bytes=1001),
            "the disk of /store/xenoovs.db has 10kB free, less than 10 times the database (1kB): make room. With a "
            "full disk a server goes on in memory; then stop it with `xenoovs fleet server --stop`, which writes its "
            "file again, and start it",
        ),
        (DOWN, "the server of xenoovs_state does not answer on this host; start it with `xenoovs fleet server`"),
    ],
    ids=["a silent server", "cut off", "none", "a disk", "down"],
)
def test_what_is_wrong_with_a_server_is_one_sentence(found: ServerFacts, problem: str) -> None:
    assert list(found.problems()) == [problem] * bool(problem)
