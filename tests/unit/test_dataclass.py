"""Records behave as the dataclasses of Python that they stand for."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
from collections.abc import Callable
from itertools import count
from operator import ge, gt, le, lt

import pytest

from xenoovs.dataclass import dataclass, field, uncollected

FROZEN = {"frozen": True, "slots": True}
made = count(1)


def classes(dataclass: Callable[..., Callable[[type], type]]) -> tuple[type, ...]:
    @dataclass(**FROZEN)
    class Plain:
        a: int
        b: str = "b"
        c: dict[str, int] = dataclasses.field(default_factory=dict, hash=False)

    @dataclass(**FROZEN)
    class Derived(Plain):
        b: str = "d"
        e: int = dataclasses.field(default=5, compare=False, repr=False)

    @dataclass(**FROZEN)
    class Computed:
        a: int
        b: int = dataclasses.field(init=False)
        c: list[int] = dataclasses.field(init=False, default_factory=list)
        d: int = dataclasses.field(default=4, kw_only=True)

        def __post_init__(self) -> None:
            object.__setattr__(self, "b", self.a * 2)

    @dataclass(**FROZEN)
    class Own:
        a: int

        def __eq__(self, other: object) -> bool:
            return True

        def __repr__(self) -> str:
            return "own"

    @dataclass(**FROZEN)
    class Hashed:
        a: int

        def __hash__(self) -> int:
            return 7

    @dataclass(**FROZEN)
    class Empty:
        pass

    @dataclass(**FROZEN, order=True)
    class Ordered:
        a: int
        b: str = "b"
        c: int = dataclasses.field(default=0, compare=False)

    return Plain, Derived, Computed, Own, Hashed, Empty, Ordered


CALLS: tuple[tuple[tuple[object, ...], dict[str, object]], ...] = (
    ((), {}),
    ((1,), {}),
    ((1, "x"), {}),
    ((), {"a": 1}),
    ((), {"a": 2, "b": 3}),
    ((1,), {"d": 9}),
    ((1, "x", {"y": 1}), {}),
    ((1,), {"e": 6}),
    ((1, 2, 3, 4, 5), {}),
)


def told(kind: type, call: tuple[tuple[object, ...], dict[str, object]]) -> tuple[object, ...]:
    """Return all that can be seen of a record that is called for."""
    try:
        made = kind(*call[0], **call[1])
    except TypeError:
        return ("refused",)
    other = dataclasses.replace(made, a=7) if hasattr(made, "a") else made
    copied = copy.deepcopy(made)
    kept = {each.name: getattr(copied, each.name) for each in dataclasses.fields(copied)}
    try:
        digest: object = hash(made)
    except TypeError:
        digest = None
    same, differs = made == kind(*call[0], **call[1]), made == other
    ordered = [sign(made, other) for sign in (lt, le, gt, ge)] if kind.__name__ == "Ordered" else []
    return repr(made), repr(other), same, differs, made == 1, digest, copied == made, kept, made.__match_args__, ordered


def test_a_record_shows_compares_hashes_and_copies_as_a_dataclass() -> None:
    for ours, python in zip(classes(dataclass), classes(dataclasses.dataclass), strict=True):
        assert [told(ours, call) for call in CALLS] == [told(python, call) for call in CALLS]


def test_a_record_does_not_change_and_has_no_further_attributes() -> None:
    for kind in classes(dataclass):
        values = {each.name: 1 for each in dataclasses.fields(kind) if each.init}
        record = kind(**values)
        for name in ("a", "further"):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(record, name, 1)
            with pytest.raises(dataclasses.FrozenInstanceError):
                delattr(record, name)
        assert not hasattr(record, "__dict__")


def test_a_record_has_an_order_among_its_own_kind_only() -> None:
    ordered = classes(dataclass)[-1]
    assert sorted([ordered(2), ordered(1, "c"), ordered(1)]) == [ordered(1), ordered(1, "c"), ordered(2)]
    with pytest.raises(TypeError):
        assert ordered(1) < 2


def test_a_record_of_the_product_goes_through_a_pipe() -> None:
    from xenoovs.datapath.fact import Unresponsive

    sent = Unresponsive("no answer", fix=(("kill", "1"),))
    assert pickle.loads(pickle.dumps(sent)) == sent


def test_defaults_are_made_for_each_record() -> None:
    @dataclass(frozen=True, slots=True)
    class Made:
        number: int = field(default_factory=lambda: next(made))

    assert Made() != Made()
    assert Made(3) == Made(3)


def test_a_record_without_a_docstring_is_defined_without_a_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    # dataclasses would parse one, which took a twentieth of the start of a command.
    monkeypatch.setattr("inspect.signature", None)

    @dataclass(frozen=True, slots=True)
    class Undocumented:
        a: int

    assert (Undocumented(1).a, Undocumented.__doc__) == (1, "Undocumented")


def test_bug_the_collector_of_garbage_ran_again_before_the_end_of_what_paused_it() -> None:
    """A config that was read while a dump was read."""
    seen = [gc.isenabled()]
    with uncollected():
        with uncollected():
            seen.append(gc.isenabled())
        seen.append(gc.isenabled())
    assert [*seen, gc.isenabled()] == [True, False, False, True]
