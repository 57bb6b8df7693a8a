"""The money of a test: what was charged against what the upstream said it used."""

from decimal import Decimal

from conftest import Desk
from gateway import CREDIT
from kinds import Counts

MODEL = "svc-native-fast"


def check_books(desk: Desk, charged: int) -> None:
    """So many calls were charged, each by the upstream's own count within its bound; nothing is held, all adds up."""
    account = desk.gateway.settled_account()
    charges = desk.gateway.charges()
    assert len(charges) == charged
    prices = desk.gateway.prices(MODEL)
    spent = Decimal(0)
    for charge, used in zip(charges, counted(desk), strict=True) if charged else ():
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
    desk.gateway.audit()


def counted(desk: Desk) -> list[Counts]:
    """What is charged of the upstream's own count, for each answer that it gave."""
    answers = [exchange for exchange in desk.exchanges() if exchange.status == 200]
    assert None not in [desk.row.kind.counts(exchange) for exchange in answers], "the upstream did not count"
    return [bounded(desk, exchange) for exchange in answers]


def bounded(desk: Desk, exchange) -> Counts:
    """A mock may report more than was asked of it: it is charged up to the bound in docs/BILLING.md."""
    used = desk.row.kind.counts(exchange)
    cap = desk.row.kind.asked(exchange).max_tokens
    completion = min(used.completion, cap or used.completion)
    prompt = used.prompt
    if not exchange.asked.get("tools") and "user" in exchange.asked:
        texts = [message["content"] for message in exchange.asked["messages"]]
        sent = sum(16 + len(text.encode()) for text in texts) + len(exchange.asked["user"])
        prompt = min(prompt, 96 + sent)
    return Counts(prompt, min(used.cached, prompt), completion, min(used.reasoning, completion))


def check_usage(desk: Desk, usage) -> None:
    """The caller is told what is charged of the upstream's count for its latest answer."""
    used = counted(desk)[-1]
    assert (usage.prompt_tokens, usage.completion_tokens) == (used.prompt, used.completion)
    assert usage.total_tokens == used.prompt + used.completion
    assert usage.prompt_tokens_details.cached_tokens == used.cached
