"""The kinds of providers: how each writes a request, and how its answers count tokens.

A test asks what was said on the wire in these words, and so is the same for every kind.
"""

import json
import re
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
    key: str
    """The header that carries the provider's key, up to the key itself."""
    asked: Callable[[Exchange], Asked]
    counts: Callable[[Exchange], Counts | None]
    blank_stops: bool = True
    """Whether it can be told to stop at a blank or at the end of a line."""


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


def anthropic_asked(exchange: Exchange) -> Asked:
    body = exchange.asked
    return Asked(
        model=body["model"],
        max_tokens=body["max_tokens"],
        stop=body.get("stop_sequences", []),
        tools=[tool["name"] for tool in body.get("tools", [])],
        usage=True,  # comes unasked
    )


def anthropic_counts(exchange: Exchange) -> Counts | None:
    """Input without what was cached, at the start; output at the end, each time all there was so far."""
    usage, ended = {}, not exchange.asked["stream"]
    for part in [json.loads(exchange.body)] if ended else exchange.events:
        usage |= part.get("usage") or part.get("message", {}).get("usage") or {}
        ended |= part["type"] == "message_delta" and "usage" in part
    if not ended or "input_tokens" not in usage:
        return None
    cached = usage.get("cache_read_input_tokens") or 0
    written = usage.get("cache_creation_input_tokens") or 0
    details = usage.get("output_tokens_details") or {}
    return Counts(
        usage["input_tokens"] + written + cached,
        cached,
        usage["output_tokens"],
        details.get("thinking_tokens") or 0,
    )


def gemini_asked(exchange: Exchange) -> Asked:
    settings = exchange.asked["generationConfig"]
    tools = [tool for group in exchange.asked.get("tools", []) for tool in group["functionDeclarations"]]
    return Asked(
        model=re.search(r"/models/([^/:]+):", exchange.path)[1],
        max_tokens=settings.get("maxOutputTokens"),
        stop=settings.get("stopSequences", []),
        tools=[tool["name"] for tool in tools],
        usage=True,  # comes unasked
    )


def gemini_counts(exchange: Exchange) -> Counts | None:
    """By the answer's last word on it; a count of zero may be left out."""
    stream = ":streamGenerateContent" in exchange.path
    said = exchange.events if stream else [json.loads(exchange.body)]
    usage = [part["usageMetadata"] for part in said if part.get("usageMetadata")]
    if not usage:
        return None
    count = {name: number for name, number in usage[-1].items() if name.endswith("TokenCount")}
    prompt = count["promptTokenCount"] + count.get("toolUsePromptTokenCount", 0)
    candidates, thoughts = count.get("candidatesTokenCount", 0), count.get("thoughtsTokenCount", 0)
    inside = thoughts <= candidates and count.get("totalTokenCount") == prompt + candidates
    completion = candidates if inside else candidates + thoughts
    return Counts(prompt, count.get("cachedContentTokenCount", 0), completion, thoughts)


OPENAI = Kind("openai", "authorization: Bearer ", openai_asked, openai_counts)
ANTHROPIC = Kind("anthropic", "x-api-key: ", anthropic_asked, anthropic_counts, blank_stops=False)
GEMINI = Kind("gemini", "x-goog-api-key: ", gemini_asked, gemini_counts)
