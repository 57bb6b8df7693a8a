"""Accounts and keys, created through the operator API of the gateway under test."""

import json
import os
import uuid
from dataclasses import dataclass
from urllib.request import Request, urlopen


@dataclass
class Account:
    id: str
    key: str


def call(method: str, path: str, body: dict) -> dict:
    request = Request(
        os.environ["TOLLGATE_OPERATOR_URL"] + path,
        data=json.dumps(body).encode(),
        method=method,
        headers={"Authorization": f"Bearer {os.environ['TOLLGATE_OPERATOR_TOKEN']}"},
    )
    with urlopen(request, timeout=10) as response:
        return json.load(response)


def create_account(track: str = "business", tier: str = "flex") -> Account:
    """A new account with credit and a key, so that no other test shares its limits."""
    email = f"{uuid.uuid4().hex}@example.com"
    account = call("POST", "/operator/accounts", {"email": email, "track": track, "tier": tier})
    path = f"/operator/accounts/{account['id']}"
    call("POST", f"{path}/grants", {"amount": "10.00"})
    return Account(account["id"], call("POST", f"{path}/keys", {"name": "client tests"})["key"])


def close_account(account: Account) -> None:
    call("PATCH", f"/operator/accounts/{account.id}", {"closed": True})


def set_limit(account: Account, model: str, **ceilings: int) -> None:
    call("PUT", "/operator/limits", {"account": account.id, "model": model, **ceilings})
