"""The owners of rules at a port, by their cookies, which are ufids of megaflows."""

from __future__ import annotations

from xenoovs.datapath.host import TcRules
from xenoovs.datapath.tc import TcFilter
from xenoovs.switch.tc import count_rules

ALIVE = "b91ad343cc4f394eaf4a80bd325adc34"


def _rule(handle: int, cookie: str | None) -> TcFilter:
    return TcFilter("ip", 2, 0, handle, cookie, in_hw=True, counters=None)


def test_rules_of_megaflows() -> None:
    rules = [_rule(1, ALIVE)]
    assert count_rules(rules, rules, [ALIVE]) == TcRules(total=1)


def test_stale_and_foreign_rules() -> None:
    rules = [_rule(1, ALIVE), _rule(2, "00" * 16), _rule(3, None)]
    assert count_rules(rules, rules, [ALIVE]) == TcRules(total=3, stale=1, foreign=1)


def test_rules_that_come_or_go_during_the_read_are_no_fault() -> None:
    gone, new = _rule(2, "00" * 16), _rule(3, "11" * 16)
    assert count_rules([_rule(1, ALIVE), gone], [_rule(1, ALIVE), new], [ALIVE]) == TcRules(total=1)


def test_a_reused_handle_is_another_rule() -> None:
    assert count_rules([_rule(1, "00" * 16)], [_rule(1, "11" * 16)], [ALIVE]) == TcRules(total=0)
