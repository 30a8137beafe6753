"""Pairing of answers with probes: what was sent counts, once and in time."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

from xenoovs.agent.paths.frame import Answer, Token
from xenoovs.agent.paths.rounds import Rounds

REMOTE = IPv4Address("192.168.200.1")


def begun(*sent_us: float) -> tuple[Rounds, list[Token]]:
    """A round whose probes, one a path, were sent at these times; the time-out is 60 ms."""
    rounds = Rounds(7, REMOTE, timeout_us=60_000)
    rounds.begin(len(sent_us), tos=0x24, now_us=sent_us[0])
    tokens = []
    for path, at_us in enumerate(sent_us):
        tokens.append(rounds.probe(path, nonce=1000 + path))
        rounds.sent(tokens[-1], sent_us=at_us)
    return rounds, tokens


def answer(token: Token, source: IPv4Address = REMOTE) -> Answer:
    return Answer(token, source, 0x20)


def test_answers_are_paired_with_their_probes_in_any_order() -> None:
    rounds, tokens = begun(0.0, 10.0)
    assert rounds.answered(answer(tokens[1]), received_us=910.0)
    assert rounds.answered(answer(tokens[0]), received_us=500.0)
    assert [done.answers for done in rounds.finished(now_us=1000.0)] == [(500.0, 900.0)]
    assert rounds.tos == (0x20, 0x24)


def test_a_round_waits_for_its_time_out() -> None:
    rounds, tokens = begun(0.0, 10.0)
    rounds.answered(answer(tokens[0]), received_us=500.0)
    assert not [*rounds.finished(now_us=60_010.0)]
    assert [done.answers for done in rounds.finished(now_us=60_011.0)] == [(500.0, None)]


def test_an_answer_with_another_nonce_does_not_count_and_the_true_one_does() -> None:
    rounds, tokens = begun(0.0)
    assert not rounds.answered(answer(replace(tokens[0], nonce=1)), received_us=5.0)
    assert rounds.answered(answer(tokens[0]), received_us=500.0)
    assert rounds.forged == 1
    assert [done.answers for done in rounds.finished(now_us=600.0)] == [(500.0,)]


def test_an_answer_from_another_address_does_not_count() -> None:
    rounds, tokens = begun(0.0)
    assert not rounds.answered(answer(tokens[0], IPv4Address("192.168.200.9")), received_us=5.0)
    assert rounds.forged == 1


def test_a_repeated_answer_counts_once() -> None:
    rounds, tokens = begun(0.0, 10.0)
    assert rounds.answered(answer(tokens[0]), received_us=500.0)
    assert not rounds.answered(answer(tokens[0]), received_us=501.0)
    assert (rounds.forged, rounds.late) == (0, 1)


def test_an_answer_to_a_probe_that_was_never_sent_is_forged() -> None:
    rounds, tokens = begun(0.0)
    assert not rounds.answered(answer(replace(tokens[0], sequence=tokens[0].sequence + 1)), received_us=5.0)
    assert rounds.forged == 1


def test_a_late_answer_is_lost_also_if_it_is_read_in_time() -> None:
    rounds, tokens = begun(0.0)
    rounds.answered(answer(tokens[0]), received_us=60_001.0)
    assert [done.answers for done in rounds.finished(now_us=0.0)] == [(None,)]


def test_a_late_reader_sees_the_same_times() -> None:
    rounds, tokens = begun(0.0)
    rounds.answered(answer(tokens[0]), received_us=400.0)
    assert [done.answers for done in rounds.finished(now_us=9_000_000.0)] == [(400.0,)]


def test_an_answer_before_its_probe_is_lost() -> None:
    """The clock was set back."""
    rounds, tokens = begun(1_000_000.0)
    rounds.answered(answer(tokens[0]), received_us=400.0)
    assert [done.answers for done in rounds.finished(now_us=1_000_500.0)] == [(None,)]


def test_finished_rounds_leave_no_state() -> None:
    rounds, tokens = begun(0.0, 1.0)
    assert len([*rounds.finished(now_us=1e9)]) == 1
    assert not rounds.answered(answer(tokens[0]), received_us=2.0)
