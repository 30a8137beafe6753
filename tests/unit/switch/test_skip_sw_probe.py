"""The trial rule: the driver's message is returned, and the rule is always removed."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.switch.fake_kernel import FakeKernel
from tests.unit.switch.netlink_samples import ACCEPTED, HEADER, UNSUPPORTED_ACTION, UNSUPPORTED_KEY
from xenoovs.datapath.tc import DriverAnswer
from xenoovs.errors import SwitchError
from xenoovs.switch.netlink import Refused, decode_attributes, encode_attributes, kind_of
from xenoovs.switch.skip_sw_probe import TCMSG, FilterParent, SkipSwProber, parse_rule, preference_of

RULES = [HEADER, ACCEPTED, UNSUPPORTED_KEY, UNSUPPORTED_ACTION]
DEVICE = "lo"
"""A device that every machine has; the rules in these tests are the fake kernel's."""
WORDS = "eswitch: unsupported match key"

_PROGRAM = """
import sys
from pathlib import Path
from tests.unit.switch.fake_kernel import FakeKernel
from tests.unit.switch.test_skip_sw_probe import DEVICE, REFUSED_COOKIE
from xenoovs.switch.skip_sw_probe import SkipSwProber

directory = Path(sys.argv[1])
SkipSwProber(FakeKernel(directory / "kernel", dies_after_add=True), directory).ask({DEVICE: [REFUSED_COOKIE]})
"""


def _cookie(body: bytes) -> str:
    rule = parse_rule(body)
    assert rule is not None
    assert rule.cookie is not None
    return rule.cookie.hex()


REFUSED_COOKIE = _cookie(UNSUPPORTED_KEY)
ALL = {DEVICE: [_cookie(body) for body in RULES[1:]]}


@pytest.fixture
def kernel(tmp_path: Path) -> FakeKernel:
    made = FakeKernel(tmp_path / "kernel", Refused(95, WORDS))
    made.put(RULES)
    return made


def _notes(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.json"))


def test_the_message_of_the_driver_for_each_rule_that_is_not_in_hardware(kernel: FakeKernel, tmp_path: Path) -> None:
    answer = DriverAnswer(95, "Operation not supported", WORDS)
    asked = SkipSwProber(kernel, tmp_path).ask(ALL)
    assert asked == {_cookie(UNSUPPORTED_KEY): answer, _cookie(UNSUPPORTED_ACTION): answer}
    assert (kernel.rules(), _notes(tmp_path)) == (RULES, [])


def test_a_driver_without_a_message(tmp_path: Path) -> None:
    kernel = FakeKernel(tmp_path / "kernel", Refused(28, ""))
    kernel.put(RULES)
    assert SkipSwProber(kernel, tmp_path).ask({DEVICE: [REFUSED_COOKIE]}) == {
        REFUSED_COOKIE: DriverAnswer(28, "No space left on device")
    }


def test_an_accepted_trial_is_deleted_at_once(tmp_path: Path) -> None:
    kernel = FakeKernel(tmp_path / "kernel")
    kernel.put(RULES)
    assert SkipSwProber(kernel, tmp_path).ask({DEVICE: [REFUSED_COOKIE]}) == {REFUSED_COOKIE: DriverAnswer(None)}
    assert (kernel.rules(), _notes(tmp_path)) == (RULES, [])


@pytest.mark.parametrize("rules", [{}, {DEVICE: ["0" * 32]}, {"no-such-device": [REFUSED_COOKIE]}])
def test_what_is_not_there_is_not_tried(rules: dict[str, list[str]], kernel: FakeKernel, tmp_path: Path) -> None:
    assert SkipSwProber(kernel, tmp_path).ask(rules) == {}


def test_killed_half_way_the_next_run_deletes_the_rule(tmp_path: Path) -> None:
    kernel = FakeKernel(tmp_path / "kernel", Refused(95, WORDS))
    kernel.put(RULES)
    victim = subprocess.run([sys.executable, "-c", _PROGRAM, str(tmp_path)], check=False, cwd=Path(__file__).parents[3])
    assert victim.returncode == -signal.SIGKILL
    left = [rule for rule in kernel.rules() if rule not in RULES]
    assert len(left) == 1
    trial = parse_rule(left[0])
    assert trial is not None
    # In its own preference, under the same parent as the rules of Open vSwitch, and with no cookie of theirs.
    assert (trial.place, trial.cookie) == (FilterParent(2), None)
    assert 2 < trial.preference <= 16

    assert SkipSwProber(kernel, tmp_path).finish()
    assert (kernel.rules(), _notes(tmp_path)) == (RULES, [])
    assert not SkipSwProber(kernel, tmp_path).finish()


def test_killed_half_way_the_next_trial_deletes_the_rule_first(tmp_path: Path) -> None:
    kernel = FakeKernel(tmp_path / "kernel", Refused(95, WORDS))
    kernel.put(RULES)
    subprocess.run([sys.executable, "-c", _PROGRAM, str(tmp_path)], check=False, cwd=Path(__file__).parents[3])
    assert len(kernel.rules()) == len(RULES) + 1
    SkipSwProber(kernel, tmp_path).ask({DEVICE: [REFUSED_COOKIE]})
    assert kernel.rules() == RULES


class _FewPreferences(FakeKernel):
    """A NIC that takes preferences up to a number, and whose table is full."""

    highest = 16

    def request(self, kind: int, flags: int, body: bytes) -> None:
        if kind == 44 and preference_of(body) > self.highest:
            raise Refused(95, "mlx5_core: Requested priority value is not supported")
        FakeKernel.request(self, kind, flags, body)


class _NoPreference(_FewPreferences):
    highest = 2


class _RoomNow(_FewPreferences):
    """A NIC that takes preferences up to a number, and has room."""

    def __init__(self, path: Path, highest: int) -> None:
        super().__init__(path)
        object.__setattr__(self, "highest", highest)


def test_a_nic_with_16_preferences_answers_about_the_rule(tmp_path: Path) -> None:
    """The trial was made above 49152, and the driver's answer about that was given as the reason."""
    kernel = _FewPreferences(tmp_path / "kernel", Refused(28, "table full"))
    kernel.put(RULES)
    assert SkipSwProber(kernel, tmp_path).ask({DEVICE: [REFUSED_COOKIE]}) == {
        REFUSED_COOKIE: DriverAnswer(28, "No space left on device", "table full")
    }


class _TwoMessages(FakeKernel):
    """A NIC that refuses preferences in other words below 0xC001 than above it."""

    def request(self, kind: int, flags: int, body: bytes) -> None:
        if kind == 44:
            near = preference_of(body) < 0xC001
            raise Refused(95, f"Requested {'chain' if near else 'priority'} is out of supported range")
        FakeKernel.request(self, kind, flags, body)


def test_the_words_at_the_nearest_preference_come_first_and_none_are_lost(tmp_path: Path) -> None:
    """Only those of the last trial, above 49152, were kept."""
    kernel = _TwoMessages(tmp_path / "kernel")
    kernel.put(RULES)
    (answer,) = SkipSwProber(kernel, tmp_path).ask({DEVICE: [REFUSED_COOKIE]}).values()
    assert answer.message == "Requested chain is out of supported range"
    assert (answer.further, answer.is_about_trial) == (("Requested priority is out of supported range",), True)


_PUT_RULE = 44
_ETH_TYPE, _VLAN_ETH_TYPE, _CVLAN_ETH_TYPE = 8, 25, 79
"""Of uapi/linux/pkt_cls.h."""
_IPV4, _TAG, _OUTER_TAG = b"\x08\x00", b"\x81\x00", b"\x88\xa8"


class _RefusesTags(FakeKernel):
    """A kernel that reads tags as fl_set_key() and dumps them as fl_dump_key() of net/sched/cls_flower.c does."""

    def request(self, kind: int, flags: int, body: bytes) -> None:
        if kind == _PUT_RULE and _requested(body).get(_ETH_TYPE) in (_TAG, _OUTER_TAG):
            raise Refused(95, WORDS)
        FakeKernel.request(self, kind, flags, body)


def _requested(body: bytes) -> dict[int, bytes]:
    rule = parse_rule(body)
    assert rule is not None
    return {kind_of(attribute): attribute[1] for attribute in rule.options}


def _tagged(body: bytes, *tags: tuple[int, bytes]) -> bytes:
    """A dumped rule as it is for tagged packets: its protocol is the outer tag, its EtherType the inner one."""
    family, ifindex, handle, parent, info = TCMSG.unpack_from(body)
    protocol = struct.unpack("=H", _OUTER_TAG if len(tags) == 2 else _TAG)[0]
    attributes = decode_attributes(body[TCMSG.size :])
    with_tags = [
        (kind, payload + encode_attributes(tags) if kind_of((kind, payload)) == 2 else payload)
        for kind, payload in attributes
    ]
    head = TCMSG.pack(family, ifindex, handle, parent, info & ~0xFFFF | protocol)
    return head + encode_attributes(with_tags)


@pytest.mark.parametrize(
    "tags",
    [
        (),
        ((_VLAN_ETH_TYPE, _IPV4),),
        ((_VLAN_ETH_TYPE, _TAG), (_CVLAN_ETH_TYPE, _IPV4)),
    ],
    ids=["any VLAN", "one tag", "two tags"],
)
def test_a_rule_for_tagged_packets_is_tried_with_its_tags(tags: tuple[tuple[int, bytes], ...], tmp_path: Path) -> None:
    """The trial was a copy of the dump, so a rule for untagged packets: accepted, and the reason was `not-retried`."""
    kernel = _RefusesTags(tmp_path / "kernel")
    kernel.put([_tagged(UNSUPPORTED_KEY, *tags)])
    assert SkipSwProber(kernel, tmp_path).ask({DEVICE: [REFUSED_COOKIE]}) == {
        REFUSED_COOKIE: DriverAnswer(95, "Operation not supported", WORDS)
    }


class _Forgetful(FakeKernel):
    """A kernel that does not know an attribute, and holds the rule without it."""

    def request(self, kind: int, flags: int, body: bytes) -> None:
        if kind == _PUT_RULE:
            rule = parse_rule(body)
            assert rule is not None
            options = [attribute for attribute in rule.options if kind_of(attribute) != _ETH_TYPE]
            body = body[: TCMSG.size] + encode_attributes(((1, b"flower\0"), (2, encode_attributes(options))))
        FakeKernel.request(self, kind, flags, body)


def test_a_trial_that_the_kernel_holds_as_another_rule_is_no_answer(tmp_path: Path) -> None:
    kernel = _Forgetful(tmp_path / "kernel")
    kernel.put(RULES)
    assert SkipSwProber(kernel, tmp_path).ask({DEVICE: [REFUSED_COOKIE]}) == {
        REFUSED_COOKIE: DriverAnswer(None, is_about_trial=True)
    }
    assert (kernel.rules(), _notes(tmp_path)) == (RULES, [])


def _at_preference(body: bytes, preference: int) -> bytes:
    family, ifindex, handle, parent, info = TCMSG.unpack_from(body)
    return TCMSG.pack(family, ifindex, handle, parent, preference << 16 | info & 0xFFFF) + body[TCMSG.size :]


@pytest.mark.parametrize(
    ("own", "highest", "message"),
    [(40, 16, "mlx5_core: Requested priority value is not supported"), (40, 65535, None), (2, 16, None)],
)
def test_a_rule_is_refused_for_its_own_preference(own: int, highest: int, message: str | None, tmp_path: Path) -> None:
    """Each new mask gets the next preference. A trial at a low one was accepted, and the reason was `not-retried`."""
    kernel = _RoomNow(tmp_path / "kernel", highest)
    rules = [_at_preference(body, own) for body in RULES]
    kernel.put(rules)
    (answer,) = SkipSwProber(kernel, tmp_path).ask({DEVICE: [REFUSED_COOKIE]}).values()
    assert (answer.message, answer.is_about_trial) == (message, False)
    assert (kernel.rules(), _notes(tmp_path)) == (rules, [])


def test_an_answer_about_every_preference_is_a_failed_trial(tmp_path: Path) -> None:
    kernel = _NoPreference(tmp_path / "kernel", Refused(28, "table full"))
    kernel.put(RULES)
    (answer,) = SkipSwProber(kernel, tmp_path).ask({DEVICE: [REFUSED_COOKIE]}).values()
    assert answer.is_about_trial
    assert (kernel.rules(), _notes(tmp_path)) == (RULES, [])


@pytest.mark.parametrize(
    ("words", "is_about_trial"),
    [
        ("mlx5_core: Requested priority value is not supported", True),
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
def test_which_answers_are_about_the_trial(words: str, is_about_trial: bool, tmp_path: Path) -> None:
    kernel = FakeKernel(tmp_path / "kernel", Refused(95, words))
    kernel.put(RULES)
    (answer,) = SkipSwProber(kernel, tmp_path).ask({DEVICE: [REFUSED_COOKIE]}).values()
    assert answer.is_about_trial == is_about_trial


class _Interrupted(FakeKernel):
    """Ctrl-C arrives when the rule is installed, before the acknowledgement is read."""

    def request(self, kind: int, flags: int, body: bytes) -> None:
        FakeKernel.request(self, kind, flags, body)
        if kind == 44:
            raise KeyboardInterrupt


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    kernel = _Interrupted(tmp_path / "kernel")
    kernel.put(RULES)
    with pytest.raises(KeyboardInterrupt):
        SkipSwProber(kernel, tmp_path).ask({DEVICE: [REFUSED_COOKIE]})
    assert (kernel.rules(), _notes(tmp_path)) == (RULES, [])


def test_a_device_that_is_gone_took_the_rule_with_it(tmp_path: Path) -> None:
    kernel = FakeKernel(tmp_path / "kernel", Refused(95, WORDS))
    kernel.put(RULES)
    subprocess.run([sys.executable, "-c", _PROGRAM, str(tmp_path)], check=False, cwd=Path(__file__).parents[3])
    note = tmp_path / "xenoovs-trial.json"
    number = socket.if_nametoindex(DEVICE)
    note.write_text(note.read_text().replace(f'"device_index": {number}', '"device_index": 4711'))
    before = kernel.rules()
    assert SkipSwProber(kernel, tmp_path).finish()
    assert (kernel.rules(), _notes(tmp_path)) == (before, [])


@pytest.mark.parametrize("text", ["", "[]", '{"device": "lo"}', '{"device": 1, "x": 2}'])
def test_a_foreign_note_is_ignored(text: str, kernel: FakeKernel, tmp_path: Path) -> None:
    (tmp_path / "xenoovs-trial.json").write_text(text)
    with pytest.raises(SwitchError, match=r"xenoovs-trial\.json"):
        SkipSwProber(kernel, tmp_path).finish()
    assert kernel.rules() == RULES
