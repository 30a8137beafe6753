"""The HELLO of a switch, as the framework is given it."""

from __future__ import annotations

import pytest

from xenoovs.controller.session import plain_hello, spoken_versions


@pytest.mark.parametrize(
    ("hello", "versions"),
    [
        ("0100000800000001", (1,)),
        ("0500000800000001", (1, 2, 3, 4, 5)),
        ("05000010000000010001000800000012", (1, 4)),
        ("050000180000000100070005000000000001000800000020", (5,)),
        ("0500000b00000001000100", (1, 2, 3, 4, 5)),
    ],
)
def test_versions_of_a_hello(hello: str, versions: tuple[int, ...]) -> None:
    assert spoken_versions(bytes.fromhex(hello)) == versions


def test_a_plain_hello_says_the_same() -> None:
    hello = bytes.fromhex("050000180000000100070008000000000001000800000032")
    plain = plain_hello(hello, spoken_versions(hello))
    assert plain == bytes.fromhex("05000010000000010001000800000032")
    assert spoken_versions(plain) == spoken_versions(hello) == (1, 4, 5)
