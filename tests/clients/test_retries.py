"""Retries of the official libraries when connections are cut: each request is charged once."""

import os
import time
import uuid
from urllib.parse import urlsplit

import anthropic
import httpx
import openai
import operator_api
import pytest
from anthropic import Anthropic
from cutting_proxy import CuttingProxy
from openai import OpenAI

MODEL = "svc-native-fast"
# `make retries` sets more.
ROUNDS = int(os.environ.get("TOLLGATE_RETRY_ROUNDS", "10"))
SLOW = "[[sim tokens=40 delay_ms=3 first_ms=20]]"
BROKEN = (openai.APIConnectionError, anthropic.APIConnectionError, httpx.TransportError)


@pytest.fixture
def customer(account):
    operator_api.set_limit(account, MODEL, rpm=100_000, tpm=1_000_000_000)
    return account


def gateway() -> tuple[str, int]:
    url = urlsplit(os.environ["OPENAI_BASE_URL"])
    return url.hostname, url.port


def charges(account) -> int:
    """How many requests were charged, once none is running."""
    path = f"/operator/accounts/{account.id}"
    deadline = time.monotonic() + 30
    while operator_api.call("GET", path)["held"] != "0.000000":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return len(operator_api.call("GET", f"{path}/usage")["data"])


def chat(client: OpenAI, key: str, text: str) -> str:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": text}],
        extra_headers={"Idempotency-Key": key},
    )
    return answer.id + answer.choices[0].message.content


def streamed_chat(client: OpenAI, key: str, text: str) -> str:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": text}],
        stream=True,
        extra_headers={"Idempotency-Key": key},
    )
    chunks = list(stream)
    if chunks[-1].choices[0].finish_reason is None:
        raise httpx.ReadError("the stream was cut")
    return chunks[0].id + "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def streamed_response(client: OpenAI, key: str, text: str) -> str:
    stream = client.responses.create(
        model=MODEL, input=text, stream=True, store=False, extra_headers={"Idempotency-Key": key}
    )
    last = list(stream)[-1]
    if last.type != "response.completed":
        raise httpx.ReadError("the stream was cut")
    return last.response.id + last.response.output_text


@pytest.mark.parametrize("ask, longest", [(chat, 2_000), (streamed_chat, 20_000), (streamed_response, 40_000)])
def test_with_a_key_each_request_is_charged_once_wherever_it_is_cut(customer, ask, longest):
    with CuttingProxy(gateway(), longest) as proxy:
        client = OpenAI(api_key=customer.key, base_url=f"{proxy.base_url}/v1", timeout=30)
        for _ in range(ROUNDS):
            key, answers = str(uuid.uuid4()), []
            while len(answers) < 2:
                try:
                    answers.append(ask(client, key, f"{key} {SLOW}"))
                except BROKEN:
                    pass
            assert answers[0] == answers[1], "the second request replays the first"
        assert proxy.connections > ROUNDS, "some were cut"
    assert charges(customer) == ROUNDS


@pytest.mark.parametrize("stream", [False, True])
def test_without_a_key_a_retry_of_the_library_gets_the_response_that_was_cut_off(customer, stream):
    with CuttingProxy(gateway(), before_response=1) as proxy:
        client = OpenAI(api_key=customer.key, base_url=f"{proxy.base_url}/v1", timeout=30)
        answer = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "[[sim tokens=20 first_ms=1500]]"}],
            stream=stream,
        )
        if stream:
            assert list(answer)[-1].choices[0].finish_reason is not None
        assert proxy.connections == 2
    assert charges(customer) == 1


def test_without_a_key_a_retry_of_the_anthropic_library_is_charged_once(customer):
    with CuttingProxy(gateway(), before_response=2) as proxy:
        client = Anthropic(api_key=customer.key, base_url=proxy.base_url, timeout=30)
        message = client.messages.create(
            model=MODEL,
            max_tokens=1_000,
            messages=[{"role": "user", "content": "[[sim tokens=20 first_ms=3000]]"}],
        )
        assert message.stop_reason == "end_turn"
        assert proxy.connections == 3, "the library tries three times"
    assert charges(customer) == 1
