"""Which requests are authorised."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from xenoovs.agent.control.auth import TokenAuth, is_loopback, read_token
from xenoovs.errors import ListenError, RequestRefused

TOKEN = "a-token-of-24-characters"


OPEN, LOCKED = TokenAuth(), TokenAuth(TOKEN)


def ask(auth: TokenAuth, method: str = "GET", *, host: str = "127.0.0.1:9090", **headers: str) -> None:
    auth.check(method, host, headers)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1:80", "localhost", "LocalHost:9090", "[::1]:9090", "::1"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


HOSTS = ["", "0.0.0.0", "10.0.0.1:80", "localhost.evil.example", "127.0.0.1.evil.example", "[::]", "::", "a b", "@::1"]


@pytest.mark.parametrize("host", HOSTS)
def test_other_hosts(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(RequestRefused) as refused:
        ask(OPEN, host=host)
    assert refused.value.code == "wrong_host"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_loopback_is_read_only(method: str) -> None:
    ask(OPEN, "GET")
    with pytest.raises(RequestRefused) as refused:
        ask(OPEN, method)
    assert refused.value.code == "read_only"


def basic(password: str) -> str:
    return f"Basic {base64.b64encode(f'me:{password}'.encode()).decode()}"


@pytest.mark.parametrize("authorization", [f"Bearer {TOKEN}", f"bearer {TOKEN}", basic(TOKEN)])
def test_the_token_opens(authorization: str) -> None:
    ask(LOCKED, Authorization=authorization)
    ask(LOCKED, "POST", Authorization=authorization, **{"Content-Type": "application/json; charset=utf-8"})


# Bytes of a header that are not UTF-8 come as surrogates.
_WRONG = ("", "Bearer", f"Token {TOKEN}", "Basic %%%", "Bearer \u00e9", basic("x"), "Bearer \udcff", "Basic \udcff")


@pytest.mark.parametrize("authorization", _WRONG)
def test_anything_else_does_not(authorization: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        ask(LOCKED, Authorization=authorization)
    assert refused.value.status == 401


def test_a_form_of_another_site_changes_nothing() -> None:
    with pytest.raises(RequestRefused) as refused:
        ask(LOCKED, "POST", Authorization=basic(TOKEN), **{"Content-Type": "text/plain"})
    assert refused.value.status == 415


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        (TOKEN, 0o644, "other users may read it"),
        ("short", 0o600, "16 characters"),
        (f"{TOKEN} {TOKEN}", 0o600, "one line"),
    ],
)
def test_a_token_file_that_will_not_do(tmp_path: Path, text: str, mode: int, message: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(ListenError, match=message):
        read_token(path)


def test_a_token_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    assert read_token(path) == TOKEN
    with pytest.raises(ListenError, match="cannot be read"):
        read_token(tmp_path / "none")
