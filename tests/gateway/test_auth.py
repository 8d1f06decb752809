"""From a token to a principal, and from nothing else."""

from __future__ import annotations

import pytest

from rtmem.errors import UnauthorizedError
from rtmem.gateway.auth import TICKET_COOKIE, Tokens

TOKENS = Tokens({"secret": "alice", "other": "bob", "ключ": "clara"})


@pytest.mark.parametrize(
    ("headers", "query", "principal"),
    [
        ({"authorization": "Bearer secret"}, "", "alice"),
        ({"authorization": "bearer  other "}, "", "bob"),
        ({"x-api-key": "secret"}, "", "alice"),
        ({}, "token=other", "bob"),
        ({}, "a=b&token=%D0%BA%D0%BB%D1%8E%D1%87", "clara"),
        ({"authorization": "Bearer secret"}, "token=other", "alice"),  # what is in a header was set on purpose
        ({"authorization": "Basic x", "x-api-key": "other"}, "", "bob"),
    ],
)
def test_a_known_token_is_its_principal(headers: dict[str, str], query: str, principal: str) -> None:
    assert TOKENS.principal(headers, query) == principal


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({}, ""),
        ({"authorization": "Bearer"}, ""),
        ({"authorization": "Bearer secre"}, ""),
        ({"authorization": "Bearer secret2"}, ""),
        ({"authorization": "Basic secret"}, ""),
        ({"x-api-key": "alice"}, ""),
        ({}, "token="),
        ({"authorization": "Bearer wrong", "x-api-key": "secret"}, ""),
    ],
)
def test_anything_else_is_nobody(headers: dict[str, str], query: str) -> None:
    with pytest.raises(UnauthorizedError):
        TOKENS.principal(headers, query)


def ticket(headers: dict[str, str]) -> str:
    cookie = TOKENS.ticket_cookie(headers)
    assert cookie is not None
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    return cookie.split(";")[0]


def test_a_ticket_stands_for_its_token_on_websockets_only() -> None:
    cookie = ticket({"authorization": "Bearer secret"})
    assert cookie.startswith(f"{TICKET_COOKIE}=")
    assert "secret" not in cookie
    assert TOKENS.websocket_principal({"cookie": f"a=b; {cookie}"}, "") == "alice"
    with pytest.raises(UnauthorizedError):
        TOKENS.principal({"cookie": cookie}, "")
    # It survives a restart, and dies with the token.
    assert Tokens({"secret": "alice"}).websocket_principal({"cookie": cookie}, "") == "alice"
    with pytest.raises(UnauthorizedError):
        Tokens({"renewed": "alice"}).websocket_principal({"cookie": cookie}, "")


def test_a_ticket_is_neither_given_to_a_browser_nor_taken_from_one() -> None:
    cookie = ticket({"x-api-key": "secret"})
    with pytest.raises(UnauthorizedError):
        TOKENS.websocket_principal({"cookie": cookie, "origin": "https://example.org"}, "")
    assert TOKENS.ticket_cookie({"x-api-key": "secret", "origin": "https://example.org"}) is None
    assert TOKENS.ticket_cookie({"x-api-key": "wrong"}) is None
    assert TOKENS.ticket_cookie({}) is None


def test_a_token_goes_before_a_ticket() -> None:
    cookie = ticket({"x-api-key": "secret"})
    assert TOKENS.websocket_principal({"cookie": cookie, "x-api-key": "other"}, "") == "bob"
    with pytest.raises(UnauthorizedError):
        TOKENS.websocket_principal({"cookie": cookie, "x-api-key": "wrong"}, "")
