"""Rules of flower as Linux dumps them, and one as a trial: the driver's message is returned, and the rule removed."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xenoovs.datapath.tc import DriverAnswer, cookie_of_ufid
from xenoovs.errors import SwitchError
from xenoovs.switch.netlink import (
    Attribute,
    Refused,
    decode_attributes,
    decode_error,
    decode_messages,
    encode_attributes,
    find_attribute,
    kind_of,
)
from xenoovs.switch.skip_sw_probe import (
    INGRESS_PARENT,
    RTM_DELTFILTER,
    RTM_GETQDISC,
    RTM_GETTFILTER,
    RTM_NEWTFILTER,
    TCMSG,
    FlowerRule,
    SkipSwProber,
    parse_rule,
    preference_of,
    trial_options,
)

# Messages of rtnetlink(7) as Linux 6.1 sent them about rules that Open vSwitch 3.1.0 had put on an emulated NIC, whose
# device 2 is p0, device 4 p1. Recorded with `RouteSocket.dump` in the virtual machine of tests/nic.

HEADER = bytes.fromhex("000000000200000000000000f2ffffff080002000b000100666c6f776572000008000b0000000000")
"""The message of a dump about a preference before its rules."""

ACCEPTED = bytes.fromhex(
    "000000000200000001000000f2ffffff080002000b000100666c6f776572000008000b0000000000580202000a0004000200"
    "5e10000100000a000500ffffffffffff00000600080008000000050009001100000008000a00c612004008000b0000000001"
    "08000c000a030a2d08000d00ffffffff060015000035000006002600ffff000008002f000000000008003000000000010800"
    "1600040000000800560001000000dc010300080101000a000100706564697400000044000400140001000000000000000000"
    "0000000000000000140007000000000000000000000000000000000018000300000000000000000000000000000000000000"
    "00000c000900020000000300000008000a0000000000a00002002c0005001400060006000100010000000600020000000000"
    "14000600060001000100000006000200000000004c0004000100000000000000030000000100000001000000020000000000"
    "000002005e10000000000000000000000000000000000000ffff000200000400000000000000000000000000000024000100"
    "7d010000000000007d0100000000000000000000000000000000000000000000d00002000b0001006d697272656400004400"
    "0400140001000000000000000000000000000000000014000700000000000000000000000000000000001800030000000000"
    "0000000000000000000000000000000014000600177f64fd6f4177c4324bb89ade8514ef0c00090002000000030000000c00"
    "0700010000000100000008000a00000000004800020020000200010000000000000004000000010000000100000001000000"
    "04000000240001007d010000000000007d0100000000000000000000000000000000000000000000"
)
"""A block of a service, in hardware: masked source, set(eth(dst=..)), p1."""

UNSUPPORTED_KEY = bytes.fromhex(
    "000000000200000008000000f2ffffff080002000b000100666c6f776572000008000b00000000001c010200060008000800"
    "0000050009000100000008000c000a030a2d08000d00ffffffff050033000800000005003400ff00000008002f0000000000"
    "080030000000000108001600080000000800560000000000c8000300c40001000b0001006d69727265640000440004001400"
    "0100000000000000000000000000000000001400070000000000000000000000000000000000180003000000000000000000"
    "00000000000000000000000014000600e07478742c4368eff23311b7dd1199e60c000700010000000100000008000a000000"
    "000048000200200002000300000000000000040000000100000001000000010000000400000024000100cb00000000000000"
    "cb0000000000000000000000000000000000000000000000"
)
"""ICMP type 8 to the VIP, not in hardware: output to p1."""

UNSUPPORTED_ACTION = bytes.fromhex(
    "000000000200000002000000f2ffffff080002000b000100666c6f776572000008000b0000000000b0010200060008000800"
    "0000050009001100000008000c000a030a2f08000d00ffffffff08002f000000000008003000000000010800160008000000"
    "08005600000000006c010300a40001000c000100736b62656469740044000400140001000000000000000000000000000000"
    "0000140007000000000000000000000000000000000018000300000000000000000000000000000000000000000008000a00"
    "0000000048000200180002000100000000000000030000000100000001000000060007000000000024000100210200000000"
    "0000210200000000000000000000000000000000000000000000c40002000b0001006d697272656400004400040014000100"
    "0000000000000000000000000000000014000700000000000000000000000000000000001800030000000000000000000000"
    "000000000000000000001400060078f2f12db74c886122e50782b14162680c000700010000000100000008000a0000000000"
    "48000200200002000200000000000000040000000100000001000000030000000b0000002400010021020000000000002102"
    "00000000000000000000000000000000000000000000"
)
"""UDP, not in hardware: to the bridge's own port (skbedit, mirred to ingress)."""

INGRESS_QDISC = bytes.fromhex(
    "00000000020000000000fffff1ffffff010000000c000100696e6772657373000400020005000c0000000000300007001400"
    "0100020100000000000003000000000000001800030000000000000000000000000000000000000000002c00030002010000"
    "000000000300000000000000000000000000000000000000000000000000000000000000"
)
"""The qdisc that Open vSwitch adds to p0."""

RULES = [HEADER, ACCEPTED, UNSUPPORTED_KEY, UNSUPPORTED_ACTION]
DEVICE = "lo"
"""A device that every machine has; the rules in these tests are the fake kernel's."""
WORDS = "eswitch: unsupported match key"

# Of uapi/linux/pkt_cls.h.
_ACTIONS, _ETH_TYPE, _SOURCE_MASK, _FLAGS, _VLAN_ETH_TYPE, _CVLAN_ETH_TYPE, _IN_HW_COUNT = 3, 8, 11, 22, 25, 79, 86


def _rule(body: bytes) -> FlowerRule:
    rule = parse_rule(body)
    assert rule is not None
    return rule


def _cookie(body: bytes) -> str:
    cookie = _rule(body).cookie
    assert cookie is not None
    return cookie.hex()


REFUSED_COOKIE = _cookie(UNSUPPORTED_KEY)

Driver = Callable[[bytes], Refused | None]
"""Its answer to a new rule; None: it takes it."""


def refusing(error: int, words: str) -> Driver:
    return lambda _: Refused(error, words)


def accept(_rule: bytes) -> None:
    """Take every rule."""


@dataclass(frozen=True, slots=True)
class FakeKernel:
    """Traffic control as far as the trial uses it, in a file that outlives its client. Implements Netlink.

    then: what happens to the client when a rule is in, before the answer. holds: a new rule as the kernel keeps it.
    """

    path: Path
    driver: Driver = accept
    then: Callable[[], None] = lambda: None
    holds: Callable[[bytes], bytes] = bytes

    def rules(self) -> list[bytes]:
        return [bytes.fromhex(text) for text in json.loads(self.path.read_text())]

    def put(self, rules: Sequence[bytes]) -> None:
        self.path.write_text(json.dumps([rule.hex() for rule in rules]))

    def request(self, kind: int, flags: int, body: bytes) -> None:
        assert kind in (RTM_NEWTFILTER, RTM_DELTFILTER), flags
        if kind == RTM_NEWTFILTER:
            if refused := self.driver(body):
                raise refused
            self.put([*self.rules(), self.holds(body)])
            self.then()
            return
        left = [rule for rule in self.rules() if _identity(rule) != _identity(body)]
        if len(left) == len(self.rules()):
            raise Refused(2, "Filter with specified priority/protocol not found")
        self.put(left)

    def dump(self, kind: int, body: bytes) -> Iterator[bytes]:
        if kind == RTM_GETQDISC:
            # Whatever the device is here, its number is in the message.
            _, *rest = TCMSG.unpack_from(body)
            yield TCMSG.pack(0, rest[0], 0, 0xFFFFFFF1, 1) + INGRESS_QDISC[TCMSG.size :]
        elif kind == RTM_GETTFILTER:
            yield from self.rules()


def _identity(body: bytes) -> tuple[int, int]:
    """Handle, preference and protocol."""
    _, _, handle, _, info = TCMSG.unpack_from(body)
    return handle, info


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a kernel keeps its rules: a header and three rules, one of them in hardware."""
    FakeKernel(tmp_path / "kernel").put(RULES)
    return tmp_path / "kernel"


def _ask(kernel: FakeKernel) -> DriverAnswer:
    """The answer about the rule with the unsupported key. No rule and no note is left."""
    before = kernel.rules()
    answers = SkipSwProber(kernel, kernel.path.parent).ask({DEVICE: [REFUSED_COOKIE]})
    assert _is_clean(kernel, before)
    return answers[REFUSED_COOKIE]


def _is_clean(kernel: FakeKernel, rules: Sequence[bytes] = tuple(RULES)) -> bool:
    return (kernel.rules(), list(kernel.path.parent.glob("*.json"))) == (list(rules), [])


def test_rules_in_hardware_and_not() -> None:
    rule, refused = _rule(ACCEPTED), _rule(UNSUPPORTED_KEY)
    assert (rule.ifindex, rule.parent) == (2, INGRESS_PARENT)
    assert (rule.preference, rule.protocol, rule.handle) == (2, 0x0800, 1)
    assert (rule.is_refused, refused.is_refused, rule.chain) == (False, True, 0)
    assert cookie_of_ufid("747874e0-ef68-432c-b711-33f2e69911dd") == REFUSED_COOKIE
    actions = _actions(rule.options)
    assert (6 in actions["pedit"], actions["mirred"][6]) == (False, rule.cookie), "of the first action that has one"
    assert (parse_rule(HEADER), parse_rule(INGRESS_QDISC), preference_of(HEADER)) == (None, None, 2)


def _actions(options: tuple[Attribute, ...]) -> dict[str, dict[int, bytes]]:
    """Kind of action -> its attributes by type."""
    actions = decode_attributes(find_attribute(options, _ACTIONS) or b"")
    found = ({kind_of(a): a[1] for a in decode_attributes(action)} for _, action in actions)
    return {action[1].rstrip(b"\0").decode(): action for action in found}


def test_a_trial_matches_the_same_packets_but_only_in_hardware() -> None:
    trial = decode_attributes(trial_options(_rule(ACCEPTED)))
    before, after = (
        [attribute for attribute in options if kind_of(attribute) not in (1, _ACTIONS, _FLAGS, _IN_HW_COUNT)]
        for options in (_rule(ACCEPTED).options, trial)
    )
    assert after == before
    assert find_attribute(trial, _FLAGS) == struct.pack("=I", 2)
    assert find_attribute(trial, _IN_HW_COUNT) is None
    assert find_attribute(trial, _SOURCE_MASK) == bytes((0, 0, 0, 1)), "which the command tc refuses to take"


def test_a_trial_has_the_actions_without_cookie_statistics_and_identity() -> None:
    for body in (ACCEPTED, UNSUPPORTED_ACTION):
        before, after = (
            _actions(options) for options in (_rule(body).options, decode_attributes(trial_options(_rule(body))))
        )
        assert list(after) == list(before)
        for name, attributes in after.items():
            assert set(attributes) == {1, 2}
            old, new = (
                find_attribute(decode_attributes(each[name][2]), 4 if name == "pedit" else 2) or b""
                for each in (before, after)
            )
            index, _, _, refcnt, bindcnt = struct.unpack_from("=IIiii", new)
            assert (index, refcnt, bindcnt) == (0, 0, 0)
            # As the device that mirred sends to.
            assert new[20:] == old[20:]


@pytest.mark.parametrize(
    ("driver", "answer"),
    [
        (refusing(95, WORDS), DriverAnswer(95, "Operation not supported", WORDS)),
        (refusing(28, ""), DriverAnswer(28, "No space left on device")),
        (accept, DriverAnswer(None)),
    ],
    ids=["in words", "without words", "accepted"],
)
def test_each_rule_that_is_not_in_hardware_has_the_answer_of_the_driver(
    driver: Driver, answer: DriverAnswer, path: Path
) -> None:
    kernel = FakeKernel(path, driver)
    asked = SkipSwProber(kernel, path.parent).ask({DEVICE: [_cookie(body) for body in RULES[1:]]})
    assert asked == {_cookie(UNSUPPORTED_KEY): answer, _cookie(UNSUPPORTED_ACTION): answer}
    assert _is_clean(kernel)


@pytest.mark.parametrize("rules", [{}, {DEVICE: ["0" * 32]}, {"no-such-device": [REFUSED_COOKIE]}])
def test_what_is_not_there_is_not_tried(rules: dict[str, list[str]], path: Path) -> None:
    assert SkipSwProber(FakeKernel(path, refusing(95, WORDS)), path.parent).ask(rules) == {}


@pytest.fixture
def killed(path: Path) -> FakeKernel:
    """A kernel whose client was killed while its trial rule was in."""
    if (victim := os.fork()) == 0:
        try:
            kernel = FakeKernel(path, then=lambda: os.kill(os.getpid(), signal.SIGKILL))
            SkipSwProber(kernel, path.parent).ask({DEVICE: [REFUSED_COOKIE]})
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(victim, 0)[1]) == -signal.SIGKILL
    return FakeKernel(path, refusing(95, WORDS))


def test_the_rule_of_a_killed_trial_is_deleted_with_or_without_a_next_trial(killed: FakeKernel) -> None:
    (left,) = [_rule(rule) for rule in killed.rules() if rule not in RULES]
    # In its own preference, under the same parent as the rules of Open vSwitch, and with no cookie of theirs.
    assert (left.ifindex, left.parent, left.cookie) == (2, INGRESS_PARENT, None)
    assert 2 < left.preference <= 16
    with_trial, prober = killed.rules(), SkipSwProber(killed, killed.path.parent)
    note = killed.path.with_name("xenoovs-trial.json")
    text = note.read_text()
    assert prober.finish()
    assert _is_clean(killed)
    killed.put(with_trial)
    assert not prober.finish(), "no note is left of what the trial before deleted"
    note.write_text(text)
    prober.ask({DEVICE: [REFUSED_COOKIE]})
    assert _is_clean(killed)


def test_a_device_that_is_gone_took_the_rule_with_it(killed: FakeKernel) -> None:
    note = killed.path.with_name("xenoovs-trial.json")
    number = socket.if_nametoindex(DEVICE)
    note.write_text(note.read_text().replace(f'"device_index": {number}', '"device_index": 4711'))
    before = killed.rules()
    assert SkipSwProber(killed, killed.path.parent).finish()
    assert _is_clean(killed, before)


_NO_NAME = (
    '{"device": "\\u0000", "device_index": 1, "ifindex": 1, "parent": 1, "preference": 1, "protocol": 1, "chain": 0}'
)


@pytest.mark.parametrize(
    "text", ["", "[]", "[" * 100_000, '{"device": "lo"}', '{"device": 1, "x": 2}', _NO_NAME], ids=lambda text: text[:9]
)
def test_a_foreign_note_is_ignored(text: str, path: Path) -> None:
    path.with_name("xenoovs-trial.json").write_text(text)
    with pytest.raises(SwitchError, match=r"xenoovs-trial\.json"):
        SkipSwProber(FakeKernel(path), path.parent).finish()
    assert FakeKernel(path).rules() == RULES


def test_ctrl_c_leaves_nothing(path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _ask(FakeKernel(path, then=interrupt))
    assert _is_clean(FakeKernel(path))


_NOT_SUPPORTED = "mlx5_core: Requested priority value is not supported"


def up_to(highest: int, driver: Driver = accept) -> Driver:
    """A NIC that takes preferences up to a number."""
    return lambda rule: Refused(95, _NOT_SUPPORTED) if preference_of(rule) > highest else driver(rule)


def test_a_nic_with_16_preferences_answers_about_the_rule(path: Path) -> None:
    """The trial was made above 49152, and the driver's answer about that was given as the reason."""
    full = refusing(28, "table full")
    assert _ask(FakeKernel(path, up_to(16, full))) == DriverAnswer(28, "No space left on device", "table full")
    assert _ask(FakeKernel(path, up_to(2, full))).is_about_trial


def test_the_words_at_the_nearest_preference_come_first_and_none_are_lost(path: Path) -> None:
    """Only those of the last trial, above 49152, were kept."""

    def other_words(rule: bytes) -> Refused:
        return Refused(
            95, f"Requested {'chain' if preference_of(rule) < 0xC001 else 'priority'} is out of supported range"
        )

    answer = _ask(FakeKernel(path, other_words))
    assert answer.message == "Requested chain is out of supported range"
    assert (answer.further, answer.is_about_trial) == (("Requested priority is out of supported range",), True)


@pytest.mark.parametrize(("own", "highest", "message"), [(40, 16, _NOT_SUPPORTED), (40, 65535, None), (2, 16, None)])
def test_a_rule_is_refused_for_its_own_preference(own: int, highest: int, message: str | None, path: Path) -> None:
    """Each new mask gets the next preference. A trial at a low one was accepted, and the reason was `not-retried`."""
    kernel = FakeKernel(path, up_to(highest))
    heads = [TCMSG.unpack_from(body) for body in RULES]
    kernel.put(
        [
            TCMSG.pack(*head, own << 16 | info & 0xFFFF) + body[TCMSG.size :]
            for (*head, info), body in zip(heads, RULES, strict=True)
        ]
    )
    answer = _ask(kernel)
    assert (answer.message, answer.is_about_trial) == (message, False)


@pytest.mark.parametrize(
    ("words", "is_about_trial"),
    [
        (_NOT_SUPPORTED, True),
        ("mlx5_core: Requested chain is out of supported range", True),
        ("mlx5_core: Requested priority is out of supported range", True),
        ("unsupported chain", True),
        ("bucket chain too long", False),
        ("mlx5_core: Requested destination chain is out of supported range", False),
        ("rules of this prio collide", False),
        ("mlx5_core: Setting VLAN prio is not supported", False),
        ("eswitch: unsupported match key", False),
    ],
)
def test_which_answers_are_about_the_trial(words: str, is_about_trial: bool, path: Path) -> None:
    assert _ask(FakeKernel(path, refusing(95, words))).is_about_trial == is_about_trial


_IPV4, _TAG, _OUTER_TAG = b"\x08\x00", b"\x81\x00", b"\x88\xa8"


def _refuse_tags(body: bytes) -> Refused | None:
    """As fl_set_key() of net/sched/cls_flower.c reads tags; fl_dump_key() dumps them otherwise."""
    options = {kind_of(attribute): attribute[1] for attribute in _rule(body).options}
    return Refused(95, WORDS) if options.get(_ETH_TYPE) in (_TAG, _OUTER_TAG) else None


def _tagged(body: bytes, *tags: tuple[int, bytes]) -> bytes:
    """A dumped rule as it is for tagged packets: its protocol is the outer tag, its EtherType the inner one."""
    *head, info = TCMSG.unpack_from(body)
    protocol = struct.unpack("=H", _OUTER_TAG if len(tags) == 2 else _TAG)[0]
    with_tags = [
        (kind, payload + encode_attributes(tags) if kind_of((kind, payload)) == 2 else payload)
        for kind, payload in decode_attributes(body[TCMSG.size :])
    ]
    return TCMSG.pack(*head, info & ~0xFFFF | protocol) + encode_attributes(with_tags)


@pytest.mark.parametrize(
    "tags",
    [(), ((_VLAN_ETH_TYPE, _IPV4),), ((_VLAN_ETH_TYPE, _TAG), (_CVLAN_ETH_TYPE, _IPV4))],
    ids=["any VLAN", "one tag", "two tags"],
)
def test_a_rule_for_tagged_packets_is_tried_with_its_tags(tags: tuple[tuple[int, bytes], ...], path: Path) -> None:
    """The trial was a copy of the dump, so a rule for untagged packets: accepted, and the reason was `not-retried`."""
    kernel = FakeKernel(path, _refuse_tags)
    kernel.put([_tagged(UNSUPPORTED_KEY, *tags)])
    assert _ask(kernel) == DriverAnswer(95, "Operation not supported", WORDS)


def test_a_trial_that_the_kernel_holds_as_another_rule_is_no_answer(path: Path) -> None:
    def without_type(body: bytes) -> bytes:
        options = [attribute for attribute in _rule(body).options if kind_of(attribute) != _ETH_TYPE]
        return body[: TCMSG.size] + encode_attributes(((1, b"flower\0"), (2, encode_attributes(options))))

    assert _ask(FakeKernel(path, holds=without_type)) == DriverAnswer(None, is_about_trial=True)


_ATTRIBUTES = st.lists(st.tuples(st.integers(0, 0xFFFF), st.binary(max_size=40)), max_size=8).map(tuple)


@given(_ATTRIBUTES)
def test_attributes_come_back(attributes: tuple[tuple[int, bytes], ...]) -> None:
    data = encode_attributes(attributes)
    assert len(data) % 4 == 0
    assert decode_attributes(data) == attributes


@given(st.binary(max_size=60))
def test_any_bytes_are_read(data: bytes) -> None:
    assert len(decode_attributes(data)) <= len(data) // 4
    assert len(list(decode_messages(data))) <= len(data) // 16


def test_flags_of_a_type_do_not_hide_it() -> None:
    nested = (0x8000 | 2, b"abcd")
    assert kind_of(nested) == 2
    assert find_attribute((nested,), 2) == b"abcd"


def test_messages_of_one_datagram() -> None:
    first = struct.pack("=IHHII", 18, 44, 2, 7, 0) + b"xy"
    data = first + bytes(2) + struct.pack("=IHHII", 16, 3, 2, 7, 0)
    assert list(decode_messages(data)) == [(44, 2, 7, b"xy"), (3, 2, 7, b"")]


_MESSAGE = encode_attributes(((1, WORDS.encode() + b"\0"),))


@pytest.mark.parametrize(
    ("flags", "error", "rest", "text", "shown"),
    [
        (0x300, 95, _MESSAGE, WORDS, WORDS),
        (0x200, 95, bytes(8) + _MESSAGE, WORDS, WORDS),
        (0x100, 28, b"", "", "No space left on device"),
    ],
    ids=["capped", "with the request", "without a message"],
)
def test_the_message_of_the_kernel(flags: int, error: int, rest: bytes, text: str, shown: str) -> None:
    refused = decode_error(flags, struct.pack("=i", -error) + struct.pack("=IHHII", 24, 44, 5, 7, 0) + rest)
    assert refused is not None
    assert (refused.error, refused.text, str(refused)) == (error, text, shown)


def test_an_acknowledgement_is_no_refusal() -> None:
    assert decode_error(0x100, bytes(20)) is None
