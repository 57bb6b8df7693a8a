"""Compares charges with the usage that the upstream reported."""

from decimal import Decimal

from conftest import Setup
from gateway import CREDIT
from kinds import Counts

MODEL = "svc-native-fast"


def check_ledger(setup: Setup, charged: int) -> None:
    """Asserts this many charges, each equal to the upstream's usage within its bound; nothing is held and the ledger adds up."""
    account = setup.gateway.settled_account()
    charges = setup.gateway.charges()
    assert len(charges) == charged
    prices = setup.gateway.prices(MODEL)
    spent = Decimal(0)
    for charge, used in zip(charges, counted(setup), strict=True) if charged else ():
        assert charge["prompt_tokens"] == used.prompt
        assert charge["cached_tokens"] == used.cached
        assert charge["completion_tokens"] == used.completion
        assert charge["reasoning_tokens"] == used.reasoning
        cost = (
            (used.prompt - used.cached) * prices["prompt"]
            + used.cached * prices["input_cache_read"]
            + used.completion * prices["completion"]
        )
        assert Decimal(charge["cost"]) == cost > 0
        spent += cost
    assert Decimal(account["balance"]) == Decimal(account["available"]) == CREDIT - spent
    setup.gateway.audit()


def counted(setup: Setup) -> list[Counts]:
    """The chargeable usage of each response of the upstream."""
    answers = [exchange for exchange in setup.exchanges() if exchange.status == 200]
    assert None not in [setup.row.kind.counts(exchange) for exchange in answers], "the upstream reported no usage"
    return [bounded(setup, exchange) for exchange in answers]


def bounded(setup: Setup, exchange) -> Counts:
    """The usage up to the bound in METERING.md, because a mock may report more than was requested."""
    used = setup.row.kind.counts(exchange)
    cap = setup.row.kind.read_request(exchange).max_tokens
    completion = min(used.completion, cap or used.completion)
    prompt = used.prompt
    if not exchange.request.get("tools") and "user" in exchange.request:
        texts = [message["content"] for message in exchange.request["messages"]]
        sent = sum(16 + len(text.encode()) for text in texts) + len(exchange.request["user"])
        prompt = min(prompt, 96 + sent)
    return Counts(prompt, min(used.cached, prompt), completion, min(used.reasoning, completion))


def check_usage(setup: Setup, usage) -> None:
    """Asserts that the caller sees the chargeable usage of the latest response."""
    used = counted(setup)[-1]
    assert (usage.prompt_tokens, usage.completion_tokens) == (used.prompt, used.completion)
    assert usage.total_tokens == used.prompt + used.completion
    assert usage.prompt_tokens_details.cached_tokens == used.cached
