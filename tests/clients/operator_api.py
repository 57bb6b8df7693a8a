"""Accounts and keys, created through the operator API of the gateway under test."""

import json
import os
import uuid
from dataclasses import dataclass
from decimal import Decimal
from urllib.request import Request, urlopen


@dataclass
class Account:
    id: str
    key: str


def call(method: str, path: str, body: dict | None = None) -> dict:
    request = Request(
        os.environ["TOLLGATE_OPERATOR_URL"] + path,
        data=body and json.dumps(body).encode(),
        method=method,
        headers={"Authorization": f"Bearer {os.environ['TOLLGATE_OPERATOR_TOKEN']}"},
    )
    with urlopen(request, timeout=10) as response:
        return json.load(response)


def create_account(track: str = "business", tier: str = "flex", credit: str | None = "10.00") -> Account:
    """A new account with credit and a key, so that no other test shares its limits."""
    email = f"{uuid.uuid4().hex}@example.com"
    account = call("POST", "/operator/accounts", {"email": email, "track": track, "tier": tier})
    path = f"/operator/accounts/{account['id']}"
    if credit:
        call("POST", f"{path}/grants", {"amount": credit})
    return Account(account["id"], call("POST", f"{path}/keys", {"name": "client tests"})["key"])


def close_account(account: Account) -> None:
    call("PATCH", f"/operator/accounts/{account.id}", {"closed": True})


def set_limit(account: Account, model: str, **ceilings: int) -> None:
    call("PUT", "/operator/limits", {"account": account.id, "model": model, **ceilings})


def spent_nanos(account: Account, credit: str = "10.00") -> int:
    """What is gone of the account's credit, in billionths of a dollar. Nothing may be held any more."""
    shown = call("GET", f"/operator/accounts/{account.id}")
    assert Decimal(shown["held"]) == 0, shown
    return nanos(credit) - nanos(shown["balance"])


def nanos(dollars: str) -> int:
    return int(Decimal(dollars) * 10**9)


def sessions(account: Account) -> list[dict]:
    """The account's sessions of coding agents, the one that was used last first."""
    return call("GET", f"/operator/sessions?account={account.id}")["data"]


def usage(account: Account) -> list[dict]:
    """The account's calls, the newest first."""
    return call("GET", f"/operator/accounts/{account.id}/usage")["data"]
