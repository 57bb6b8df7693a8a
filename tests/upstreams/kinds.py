"""The kinds of providers: how each writes a request, and how its answers count tokens.

A test asks what was said on the wire in these words, and so is the same for every kind.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from tap import Exchange


@dataclass(frozen=True)
class Asked:
    """What the gateway asked an upstream for."""

    model: str
    max_tokens: int | None
    stop: list[str]
    tools: list[str]
    usage: bool
    """Whether it asked for usage, in a stream where that must be asked for."""


@dataclass(frozen=True)
class Counts:
    """What an upstream says it used; `prompt` includes `cached`, `completion` includes `reasoning`."""

    prompt: int
    cached: int
    completion: int
    reasoning: int


@dataclass(frozen=True)
class Kind:
    name: str
    """As it is configured."""
    asked: Callable[[Exchange], Asked]
    counts: Callable[[Exchange], Counts | None]


def openai_asked(exchange: Exchange) -> Asked:
    body = exchange.asked
    return Asked(
        model=body["model"],
        max_tokens=body.get("max_tokens"),
        stop=body.get("stop", []),
        tools=[tool["function"]["name"] for tool in body.get("tools", [])],
        usage=not body["stream"] or body.get("stream_options") == {"include_usage": True},
    )


def openai_counts(exchange: Exchange) -> Counts | None:
    """By the answer's last word on it."""
    said = exchange.events if exchange.asked["stream"] else [json.loads(exchange.body)]
    usage = [part["usage"] for part in said if part.get("usage")]
    if not usage:
        return None
    read = usage[-1].get("prompt_tokens_details") or {}
    written = usage[-1].get("completion_tokens_details") or {}
    return Counts(
        usage[-1]["prompt_tokens"],
        read.get("cached_tokens") or 0,
        usage[-1]["completion_tokens"],
        written.get("reasoning_tokens") or 0,
    )


OPENAI = Kind("openai", openai_asked, openai_counts)
