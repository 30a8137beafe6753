"""Which requests are authorised."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from xenoovs.agent.control.auth import TokenAuth, is_loopback, read_token
from xenoovs.errors import ListenError, RequestRefused

TOKEN = "a-token-of-24-characters"
OPEN, LOCKED = TokenAuth(), TokenAuth(TOKEN)
JSON = {"Content-Type": "application/json; charset=utf-8"}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1:80", "localhost", "LocalHost:9090", "[::1]:9090", "::1"])
def test_hosts_of_this_machine_may_read_and_change_nothing(host: str) -> None:
    assert is_loopback(host)
    OPEN.check("GET", host, {})
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        with pytest.raises(RequestRefused) as refused:
            OPEN.check(method, host, {})
        assert refused.value.code == "read_only"


@pytest.mark.parametrize(
    "host",
    ["", "0.0.0.0", "10.0.0.1:80", "localhost.evil.example", "127.0.0.1.evil.example", "[::]", "::", "a b", "@::1"],
)
def test_other_hosts(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(RequestRefused) as refused:
        OPEN.check("GET", host, {})
    assert refused.value.code == "wrong_host"


def basic(password: str) -> str:
    return f"Basic {base64.b64encode(f'me:{password}'.encode()).decode()}"


@pytest.mark.parametrize("authorization", [f"Bearer {TOKEN}", f"bearer {TOKEN}", basic(TOKEN)])
def test_the_token_opens_and_a_form_of_another_site_changes_nothing(authorization: str) -> None:
    LOCKED.check("GET", "", {"Authorization": authorization})
    LOCKED.check("POST", "", {"Authorization": authorization, **JSON})
    with pytest.raises(RequestRefused) as refused:
        LOCKED.check("POST", "", {"Authorization": authorization, "Content-Type": "text/plain"})
    assert refused.value.status == 415


# Bytes of a header that are not UTF-8 come as surrogates.
_WRONG = ("", "Bearer", f"Token {TOKEN}", "Basic %%%", "Bearer \u00e9", basic("x"), "Bearer \udcff", "Basic \udcff")


@pytest.mark.parametrize("authorization", _WRONG)
def test_anything_else_does_not(authorization: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        LOCKED.check("GET", "", {"Authorization": authorization})
    assert refused.value.status == 401


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        (f"{TOKEN}\n", 0o600, None),
        (TOKEN, 0o644, "other users may read it"),
        ("short", 0o600, "16 characters"),
        (f"{TOKEN} {TOKEN}", 0o600, "one line"),
        (None, 0, "cannot be read"),
    ],
)
def test_a_token_file(tmp_path: Path, text: str | None, mode: int, message: str | None) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    if message is None:
        assert read_token(path) == TOKEN
    else:
        with pytest.raises(ListenError, match=message):
            read_token(path)
