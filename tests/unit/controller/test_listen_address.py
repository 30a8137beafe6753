"""Where to listen, as text."""

from __future__ import annotations

import pytest

from xenoovs.controller.listen import parse_address


@pytest.mark.parametrize(
    ("text", "is_local"),
    [("127.0.0.1:6653", True), ("[::1]:0", True), ("0.0.0.0:6653", False), ("[2001:db8::1]:65535", False)],
)
def test_valid_addresses(text: str, is_local: bool) -> None:
    address = parse_address(text)
    assert (str(address), address.is_local) == (text, is_local)


@pytest.mark.parametrize("text", ["", "6653", "localhost:6653", "127.0.0.1", "::1:6653", "127.0.0.1:65536", "[1]:2"])
def test_invalid_addresses(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_address(text)
