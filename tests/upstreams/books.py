"""The money of a test: what was charged against what the upstream said it used."""

from decimal import Decimal

from conftest import Desk
from gateway import CREDIT
from kinds import Counts

MODEL = "svc-native-fast"


def check_books(desk: Desk, charged: int) -> None:
    """So many calls were charged, each by the upstream's own count; nothing is held, all adds up."""
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
    """What the upstream says it used, for each answer that it gave."""
    answers = [exchange for exchange in desk.exchanges() if exchange.status == 200]
    counts = [desk.row.kind.counts(exchange) for exchange in answers]
    assert None not in counts, "the upstream did not count"
    return counts


def check_usage(desk: Desk, usage) -> None:
    """The caller is told what the upstream counted in its latest answer."""
    used = counted(desk)[-1]
    assert (usage.prompt_tokens, usage.completion_tokens) == (used.prompt, used.completion)
    assert usage.total_tokens == used.prompt + used.completion
    assert usage.prompt_tokens_details.cached_tokens == used.cached
