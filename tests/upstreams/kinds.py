"""The kinds of providers: how to read their requests, and the token counts of their responses.

Tests inspect recorded exchanges through this module, and so are the same for every kind.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from tap import Exchange


@dataclass(frozen=True)
class UpstreamRequest:
    """The gateway's request to an upstream, in common terms."""

    model: str
    max_tokens: int | None
    stop: list[str]
    tools: list[str]
    usage: bool
    """Whether the response will contain usage; some APIs need a parameter for that in streams."""


@dataclass(frozen=True)
class Counts:
    """Usage that an upstream reports; `prompt` includes `cached`, `completion` includes `reasoning`."""

    prompt: int
    cached: int
    completion: int
    reasoning: int


@dataclass(frozen=True)
class Kind:
    name: str
    """Its name in the configuration."""
    key: str
    """The header that carries the provider's key, up to the key itself."""
    read_request: Callable[[Exchange], UpstreamRequest]
    counts: Callable[[Exchange], Counts | None]
    blank_stops: bool = True
    """Whether it accepts white space as a stop sequence."""


def openai_request(exchange: Exchange) -> UpstreamRequest:
    body = exchange.request
    return UpstreamRequest(
        model=body["model"],
        max_tokens=body.get("max_tokens"),
        stop=body.get("stop", []),
        tools=[tool["function"]["name"] for tool in body.get("tools", [])],
        usage=not body["stream"] or body.get("stream_options") == {"include_usage": True},
    )


def openai_counts(exchange: Exchange) -> Counts | None:
    """The last usage in the response."""
    said = exchange.events if exchange.request["stream"] else [json.loads(exchange.body)]
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


def anthropic_request(exchange: Exchange) -> UpstreamRequest:
    body = exchange.request
    return UpstreamRequest(
        model=body["model"],
        max_tokens=body["max_tokens"],
        stop=body.get("stop_sequences", []),
        tools=[tool["name"] for tool in body.get("tools", [])],
        usage=True,  # always sent
    )


def anthropic_counts(exchange: Exchange) -> Counts | None:
    """Uncached input comes at the start, output at the end; counts are cumulative."""
    usage, ended = {}, not exchange.request["stream"]
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


def gemini_request(exchange: Exchange) -> UpstreamRequest:
    settings = exchange.request["generationConfig"]
    tools = [tool for group in exchange.request.get("tools", []) for tool in group["functionDeclarations"]]
    return UpstreamRequest(
        model=re.search(r"/models/([^/:]+):", exchange.path)[1],
        max_tokens=settings.get("maxOutputTokens"),
        stop=settings.get("stopSequences", []),
        tools=[tool["name"] for tool in tools],
        usage=True,  # always sent
    )


def gemini_counts(exchange: Exchange) -> Counts | None:
    """The last usage in the response; counts of zero may be missing."""
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


OPENAI = Kind("openai", "authorization: Bearer ", openai_request, openai_counts)
ANTHROPIC = Kind("anthropic", "x-api-key: ", anthropic_request, anthropic_counts, blank_stops=False)
GEMINI = Kind("gemini", "x-goog-api-key: ", gemini_request, gemini_counts)
