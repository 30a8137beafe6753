"""Rules of flower as Linux dumps them, and the same rule as a trial."""

from __future__ import annotations

import struct

from tests.unit.switch.netlink_samples import ACCEPTED, HEADER, INGRESS_QDISC, UNSUPPORTED_ACTION, UNSUPPORTED_KEY
from xenoovs.datapath.tc import cookie_of_ufid
from xenoovs.switch.netlink import Attribute, decode_attributes, find_attribute, kind_of
from xenoovs.switch.skip_sw_probe import FilterParent, FlowerRule, parse_rule, preference_of, trial_options


def _rule(body: bytes) -> FlowerRule:
    rule = parse_rule(body)
    assert rule is not None
    return rule


def _actions(options: tuple[Attribute, ...]) -> dict[str, dict[int, bytes]]:
    """Kind of action -> its attributes by type."""
    actions = decode_attributes(find_attribute(options, 3) or b"")
    found = ({kind_of(a): a[1] for a in decode_attributes(action)} for _, action in actions)
    return {action[1].rstrip(b"\0").decode(): action for action in found}


def _trial(body: bytes) -> tuple[Attribute, ...]:
    return decode_attributes(trial_options(_rule(body)))


def test_a_rule_in_hardware() -> None:
    rule = _rule(ACCEPTED)
    assert (rule.place, rule.preference, rule.protocol, rule.handle) == (FilterParent(2), 2, 0x0800, 1)
    assert (rule.in_hw, rule.skip_hw, rule.chain) == (True, False, 0)


def test_a_rule_that_the_driver_refused() -> None:
    rule = _rule(UNSUPPORTED_KEY)
    assert (rule.in_hw, rule.skip_hw) == (False, False)
    assert rule.cookie is not None
    assert rule.cookie.hex() == cookie_of_ufid("747874e0-ef68-432c-b711-33f2e69911dd")


def test_the_cookie_is_of_the_first_action_that_has_one() -> None:
    cookie = _rule(ACCEPTED).cookie
    assert cookie is not None
    assert 6 not in _actions(_rule(ACCEPTED).options)["pedit"]
    assert _actions(_rule(ACCEPTED).options)["mirred"][6] == cookie


def test_headers_and_other_messages_are_no_rules() -> None:
    assert parse_rule(HEADER) is None
    assert parse_rule(INGRESS_QDISC) is None
    assert preference_of(HEADER) == 2


def test_a_trial_matches_the_same_packets_but_only_in_hardware() -> None:
    known = (1, 3, 22, 86)
    matched = [attribute for attribute in _rule(ACCEPTED).options if kind_of(attribute) not in known]
    trial = _trial(ACCEPTED)
    assert [attribute for attribute in trial if kind_of(attribute) not in known] == matched
    assert find_attribute(trial, 22) == struct.pack("=I", 2)
    assert find_attribute(trial, 86) is None
    # The mask 0.0.0.1 of the source, which the command tc refuses to take.
    assert find_attribute(trial, 11) == bytes((0, 0, 0, 1))


def test_a_trial_has_the_actions_without_cookie_statistics_and_identity() -> None:
    for body in (ACCEPTED, UNSUPPORTED_ACTION):
        before, after = _actions(_rule(body).options), _actions(_trial(body))
        assert list(after) == list(before)
        for name, attributes in after.items():
            assert set(attributes) == {1, 2}
            parameters = find_attribute(decode_attributes(attributes[2]), 4 if name == "pedit" else 2)
            assert parameters is not None
            index, _, _, refcnt, bindcnt = struct.unpack_from("=IIiii", parameters)
            assert (index, refcnt, bindcnt) == (0, 0, 0)


def test_the_device_that_mirred_sends_to_stays() -> None:
    before = find_attribute(decode_attributes(_actions(_rule(ACCEPTED).options)["mirred"][2]), 2)
    after = find_attribute(decode_attributes(_actions(_trial(ACCEPTED))["mirred"][2]), 2)
    assert before is not None
    assert after is not None
    assert after[20:] == before[20:] == struct.pack("=iI", 1, 4)
