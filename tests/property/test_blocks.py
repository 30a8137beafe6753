"""Blocks, and the difference of two decisions, against counting every client one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tests.property.decisions import owned, tilings
from xenoovs.decision.decision import Blocks, Decision, Owner, ServiceDecision, Space, compare, moved, shifts
from xenoovs.model.block_key import BlockKey, KeyField
from xenoovs.partition.block import Block, select

WIDTH = 5
CLIENTS = range(1 << WIDTH)
OWNERS = ("a", "b", "02:00:00:00:00:07@p1")

Rows = Sequence[tuple[Block, Owner | None]]

some_blocks = st.integers(0, WIDTH).flatmap(
    lambda depth: st.integers(0, (1 << depth) - 1).map(lambda value: Block(value, depth))
)
some_rows = st.lists(st.tuples(some_blocks, st.sampled_from((*OWNERS, None))), max_size=12)


def owners_of(rows: Rows) -> list[Owner | None]:
    """For each client the owner of the last block that has it."""
    return [next((owner for block, owner in reversed(rows) if block.contains(client)), None) for client in CLIENTS]


@given(some_rows)
def test_the_last_of_blocks_that_overlap_has_the_client_and_rows_are_prefix_free_sorted_and_as_few_as_can_be(
    rows: Rows,
) -> None:
    """So those are equal that send every client to the same owner."""
    found = Blocks.of(rows)
    assert owners_of(found.rows) == owners_of(rows)
    assert list(found.rows) == sorted(found.rows, key=lambda row: (row[0].depth, row[0].value))
    assert all(sum(block.contains(client) for block, _ in found.rows) <= 1 for client in CLIENTS)
    by_block = dict(found.rows)
    assert all(by_block.get(block.buddy()) != owner for block, owner in found.rows if block.depth)


@given(some_rows)
def test_shares_are_counts(rows: Rows) -> None:
    counts = Counter(owner for owner in owners_of(rows) if owner is not None)
    found = Blocks.of(rows)
    assert found.shares() == {owner: Fraction(count, len(CLIENTS)) for owner, count in counts.items()}
    assert found.owners == counts.keys()


@given(some_rows, st.lists(some_blocks, max_size=4))
def test_within_cuts_each_block_into_parts_of_one_owner(rows: Rows, asked: list[Block]) -> None:
    owners = owners_of(rows)
    found = list(Blocks.of(rows).within(asked))
    for whole in set(asked):
        parts = [(part, owner) for block, part, owner in found if block == whole]
        for client in filter(lambda client: whole.contains(client), CLIENTS):
            meets = [owner for part, owner in parts if part.contains(client)]
            assert meets == [owners[client]] * asked.count(whole)
        assert all(whole.contains(part.value) and part.depth >= whole.depth for part, _ in parts)


@given(some_rows, some_rows)
def test_over_fills_the_gaps(above: Rows, below: Rows) -> None:
    pairs = zip(owners_of(above), owners_of(below), strict=True)
    assert owners_of(Blocks.of(above).over(Blocks.of(below)).rows) == [one or other for one, other in pairs]


@given(some_rows, st.dictionaries(st.sampled_from(OWNERS), st.sampled_from(OWNERS)))
def test_other_names_of_owners(rows: Rows, names: dict[Owner, Owner]) -> None:
    """Two owners may get one name, and their blocks coalesce then."""
    renamed = Blocks.of(rows).renamed(names)
    assert owners_of(renamed.rows) == [o and names.get(o, o) for o in owners_of(rows)]
    assert renamed == Blocks.of(renamed.rows)


@given(some_rows)
def test_an_assignment_has_all_clients_and_gives_the_same_blocks_back(rows: Rows) -> None:
    found = Blocks.of(rows)
    assignment, names = found.assignment()
    assert [names[assignment.owner(client)] for client in CLIENTS] == owners_of(rows)
    covered = [(block, names[owner]) for block, owner in assignment.blocks]
    assert Blocks.of(covered) == found
    if None not in {name for _, name in covered}:
        assert Blocks.of_assignment(assignment, [name or "" for name in names]) == found


@given(st.lists(some_blocks, min_size=2, max_size=6))
def test_a_space_refuses_blocks_that_overlap(blocks: list[Block]) -> None:
    overlap = any(sum(block.contains(client) for block in blocks) > 1 for client in CLIENTS)
    try:
        Space(WIDTH, ((block, "a") for block in blocks))
    except ValueError:
        assert overlap
    else:
        assert not overlap


@given(some_rows, some_rows)
def test_what_others_lack_over_the_others_is_the_whole(rows: Rows, others: Rows) -> None:
    everyone = (Block(0, 0), "a")
    whole, other = Blocks.of([everyone, *[row for row in rows if row[1]]]), Blocks.of(others)
    lacking = whole.without(other)
    assert lacking.over(other) == whole
    assert not set(lacking.rows) & set(other.rows)
    assert whole.without(whole) == Blocks()


BITS = 7
WIDE_CLIENTS = range(1 << BITS)


@st.composite
def service_decisions(draw: st.DrawFn) -> ServiceDecision:
    """Blocks of any of the bits, in any order; some clients may have no backend."""
    positions = draw(st.permutations(range(BITS)))[: draw(st.integers(1, BITS))]
    blocks = draw(owned(draw(tilings(most_depth=len(positions))), ("b0", "b1", "b2", None)))
    return ServiceDecision(BlockKey(positions=tuple(positions)), blocks, blocks)


def owners(service: ServiceDecision) -> list[str | None]:
    """The owner of each client."""
    positions = service.key.positions
    assert positions is not None
    selected = [select(client, positions, len(positions)) for client in WIDE_CLIENTS]
    return [next((o for block, o in service.active.rows if block.contains(bits)), None) for bits in selected]


@given(service_decisions(), service_decisions())
def test_shifts_are_counts_of_clients(one: ServiceDecision, other: ServiceDecision) -> None:
    pairs = Counter(zip(owners(one), owners(other), strict=True))
    counted = {(old, new): Fraction(n, len(WIDE_CLIENTS)) for (old, new), n in pairs.items() if old != new}
    found = shifts(one, other)
    assert {(shift.old, shift.new): shift.share for shift in found} == counted
    assert [shift.share for shift in found] == sorted((shift.share for shift in found), reverse=True)
    assert moved(one, other) == sum((n for (old, _), n in counted.items() if old is not None), Fraction(0))
    decision = Decision.of({1: one})
    (difference,) = compare(decision, Decision.of({1: other}))
    assert (difference.share, difference.shifts) == (sum(counted.values(), Fraction(0)), found)
    # A service that one of them lacks differs for all clients.
    ((gone,), (new,)) = compare(decision, Decision()), compare(Decision(), decision)
    assert gone.share == new.share == 1
    shares = one.active.shares()
    assert (
        {shift.old: shift.share for shift in gone.shifts} == {shift.new: shift.share for shift in new.shifts} == shares
    )


@given(service_decisions())
def test_ports_and_addresses_have_nothing_to_do_with_each_other(service: ServiceDecision) -> None:
    """A change of the key's field moves each client by chance."""
    by_port = ServiceDecision(BlockKey(KeyField.SOURCE_PORT, service.key.positions), service.home, service.active)
    shares = service.active.shares()
    together = {(old, new): a * b for old, a in shares.items() for new, b in shares.items() if old != new}
    found = {(s.old, s.new): s.share for s in shifts(service, by_port) if s.old is not None and s.new is not None}
    assert found == together
