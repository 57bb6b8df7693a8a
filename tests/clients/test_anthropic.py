"""Anthropic's official Python library."""

import anthropic
import operator_api
import pytest
from anthropic import Anthropic, DefaultHttpxClient, beta_tool

MODEL = "svc-native-fast"
TEXT = "Hello from Anthropic's library!"
OSLO = '[[sim tool=weather {"city": "Oslo"}]]'
WEATHER = {
    "name": "weather",
    "description": "The weather in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def ask(text: str = TEXT, **more) -> dict:
    return {"model": MODEL, "max_tokens": 1_000, "messages": [{"role": "user", "content": text}], **more}


def failure(kind, action, status, type, code):
    """The error that `action` raises: exactly of this class, with these fields and a request ID."""
    with pytest.raises(anthropic.APIStatusError) as caught:
        action()
    error = caught.value
    assert error.__class__ is kind, error
    assert (error.status_code, error.type) == (status, type)
    assert error.body["error"]["details"]["error_code"] == code
    assert error.body["error"]["message"] and error.body["request_id"] == error.request_id
    return error


@pytest.fixture
def counted(account):
    """A client with the default retries, and the list of its requests."""
    requests = []
    http = DefaultHttpxClient(event_hooks={"request": [requests.append]})
    with Anthropic(api_key=account.key, timeout=30, http_client=http) as client:
        yield client, requests


def test_answer(anthropic_client):
    message = anthropic_client.messages.create(**ask(system="Be brief."))
    [block] = message.content
    assert (block.type, message.model, message.stop_reason) == ("text", MODEL, "end_turn")
    assert block.text.endswith(TEXT)
    assert message.usage.input_tokens > 0 and message.usage.output_tokens > 0
    assert message._request_id


def test_charges_equal_the_usage(anthropic_client, account):
    with anthropic_client.messages.stream(**ask("[[sim cached=10 cache_write=5]] " + "word " * 40)) as stream:
        usage = stream.get_final_message().usage
    assert (usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (10, 5)
    # Nano-dollars per token: 0.20 and 0.80 dollars per million, a tenth for cached input.
    cost = 200 * (usage.input_tokens + 5) + 20 * 10 + 800 * usage.output_tokens
    assert operator_api.spent_nanos(account) == cost


@pytest.mark.parametrize("as_bearer", [False, True])
def test_both_ways_to_send_the_key(account, as_bearer):
    key = {"auth_token": account.key} if as_bearer else {"api_key": account.key}
    with Anthropic(**key) as client:
        assert client.messages.create(**ask()).content[0].text.endswith(TEXT)


async def test_async(async_anthropic_client):
    message = await async_anthropic_client.messages.create(**ask())
    async with async_anthropic_client.messages.stream(**ask()) as stream:
        text = "".join([piece async for piece in stream.text_stream])
    assert text == message.content[0].text


def test_stream(anthropic_client):
    plain = anthropic_client.messages.create(**ask())
    with anthropic_client.messages.stream(**ask()) as stream:
        pieces = list(stream.text_stream)
        message = stream.get_final_message()
    assert len(pieces) > 4 and "".join(pieces) == plain.content[0].text
    assert (message.content[0].text, message.stop_reason) == (plain.content[0].text, "end_turn")
    assert message.usage == plain.usage


def test_events_of_a_stream(anthropic_client):
    kinds = [event.type for event in anthropic_client.messages.create(**ask(), stream=True)]
    deltas = kinds.count("content_block_delta")
    assert kinds == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * deltas,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


@pytest.mark.parametrize("streamed", [False, True])
def test_tools(anthropic_client, streamed):
    def create(**request):
        if not streamed:
            return anthropic_client.messages.create(**request)
        with anthropic_client.messages.stream(**request) as stream:
            return stream.get_final_message()

    request = ask(f"{OSLO} {OSLO.replace('Oslo', 'Rome')}", tools=[WEATHER])
    called = create(**request)
    assert called.stop_reason == "tool_use"
    assert [(block.type, block.name, block.input) for block in called.content] == [
        ("tool_use", "weather", {"city": "Oslo"}),
        ("tool_use", "weather", {"city": "Rome"}),
    ]
    first, second = called.content
    results = [
        {"type": "tool_result", "tool_use_id": first.id, "content": "Rain in Oslo"},
        {"type": "tool_result", "tool_use_id": second.id, "content": "no such city", "is_error": True},
    ]
    turns = [{"role": "assistant", "content": called.content}, {"role": "user", "content": results}]
    answer = create(**{**request, "messages": request["messages"] + turns})
    assert answer.stop_reason == "end_turn"
    assert "Rain in Oslo" in answer.content[0].text and "no such city" in answer.content[0].text


def test_a_forced_tool(anthropic_client):
    request = ask(tools=[WEATHER], tool_choice={"type": "tool", "name": "weather"})
    [call] = anthropic_client.messages.create(**request).content
    assert (call.name, set(call.input)) == ("weather", {"city"})


@pytest.mark.parametrize("streamed", [False, True])
def test_the_tool_runner_goes_on_without_threads(counted, streamed):
    client, requests = counted

    @beta_tool
    def weather(city: str) -> str:
        """The weather in a city.

        Args:
            city: Its name.
        """
        return f"Rain in {city}"

    runner = client.beta.messages.tool_runner(**ask(OSLO), tools=[weather], stream=streamed)
    if streamed:
        messages = [stream.get_final_message() for stream in runner]
    else:
        messages = list(runner)
    assert [message.stop_reason for message in messages] == ["tool_use", "end_turn"]
    assert "Rain in Oslo" in messages[-1].content[0].text
    # The runner asks for a thread first; refused, it sends the whole conversation each time.
    assert len(requests) == 3


def test_an_output_budget_is_kept(anthropic_client):
    message = anthropic_client.messages.create(**ask("[[sim tokens=200]]", max_tokens=50))
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 50)


def test_structured_output(anthropic_client):
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    config = {"format": {"type": "json_schema", "schema": schema}}
    message = anthropic_client.messages.create(**ask("Who?", output_config=config))
    assert '"age"' in message.content[0].text


def test_counting(anthropic_client, account):
    request = ask(system="Be brief.", tools=[WEATHER])
    del request["max_tokens"]
    counted = anthropic_client.messages.count_tokens(**request).input_tokens
    request["messages"].append({"role": "user", "content": "word " * 100})
    assert anthropic_client.messages.count_tokens(**request).input_tokens > counted + 50
    assert operator_api.spent_nanos(account) == 0


def test_models(anthropic_client):
    models = list(anthropic_client.models.list(limit=5))  # iterates over all pages
    assert len({model.id for model in models}) == len(models) == 17
    assert anthropic_client.models.retrieve(MODEL).max_tokens == 66_000
    # A name that Claude Code asks for.
    assert anthropic_client.models.retrieve("claude-opus-5-5").id == "claude-opus-5-5"
    with pytest.raises(anthropic.NotFoundError):
        anthropic_client.models.retrieve("svc-unknown")


def test_a_name_of_anthropics(anthropic_client):
    message = anthropic_client.messages.create(**ask(model="claude-sonnet-5-5"))
    assert message.model == "claude-sonnet-5-5"


def test_invalid_key(counted):
    client, requests = counted
    wrong = client.with_options(api_key="sk-wrong")
    create = lambda: wrong.messages.create(**ask())
    failure(anthropic.AuthenticationError, create, 401, "authentication_error", "invalid_api_key")
    assert len(requests) == 1


def test_closed_account(account, anthropic_client):
    operator_api.close_account(account)
    create = lambda: anthropic_client.messages.create(**ask())
    error = failure(anthropic.APIStatusError, create, 402, "billing_error", "no_account")
    assert error.body["error"]["details"]["billing_url"] in error.message


def test_no_credit():
    account = operator_api.create_account(credit=None)
    with Anthropic(api_key=account.key, max_retries=0) as client:
        create = lambda: client.messages.create(**ask())
        failure(anthropic.APIStatusError, create, 402, "billing_error", "insufficient_credits")


def test_a_model_outside_the_plan():
    account = operator_api.create_account("personal", "free")
    with Anthropic(api_key=account.key, max_retries=0) as client:
        create = lambda: client.messages.create(**ask(model="svc-pro"))
        error = failure(anthropic.PermissionDeniedError, create, 403, "permission_error", "tier_upgrade_required")
    assert error.body["error"]["details"]["required_tier"] == "pro"


def test_unknown_model_and_route(anthropic_client):
    create = lambda: anthropic_client.messages.create(**ask(model="svc-unknown"))
    failure(anthropic.NotFoundError, create, 404, "not_found_error", "model_not_found")
    batches = lambda: anthropic_client.messages.batches.retrieve("msgbatch_1")
    failure(anthropic.NotFoundError, batches, 404, "not_found_error", "route_not_found")


def test_bad_requests(anthropic_client):
    for request, param in [
        (ask(max_tokens=66_001), "max_tokens"),
        (ask(tools=[{"type": "web_search_20250305", "name": "web_search"}]), "tools.0.type"),
        (ask(messages=[]), "messages"),
    ]:
        create = lambda: anthropic_client.messages.create(**request)
        error = failure(anthropic.BadRequestError, create, 400, "invalid_request_error", None)
        assert error.body["error"]["details"]["param"] == param


def test_requests_a_minute(account, anthropic_client):
    operator_api.set_limit(account, MODEL, rpm=1)
    anthropic_client.messages.create(**ask())
    create = lambda: anthropic_client.messages.create(**ask())
    error = failure(anthropic.RateLimitError, create, 429, "rate_limit_error", "rpm_exceeded")
    headers = error.response.headers
    assert 1 <= int(headers["retry-after"]) <= 60
    assert headers["anthropic-ratelimit-requests-limit"] == "1"
    assert headers["anthropic-ratelimit-requests-remaining"] == "0"
    # Counting has no part in the window.
    request = ask()
    del request["max_tokens"]
    assert anthropic_client.messages.count_tokens(**request).input_tokens > 0


def test_a_provider_that_fails_is_tried_again_and_one_that_refuses_is_not(counted):
    client, requests = counted
    create = lambda: client.with_options(max_retries=1).messages.create(**ask("[[sim status=529]]"))
    failure(anthropic.OverloadedError, create, 529, "overloaded_error", "upstream_error")
    assert len(requests) == 2
    requests.clear()
    create = lambda: client.messages.create(**ask("[[sim status=400]]"))
    failure(anthropic.BadRequestError, create, 400, "invalid_request_error", "upstream_error")
    assert len(requests) == 1


def test_an_interrupted_stream(counted, account):
    client, requests = counted
    received = []
    with pytest.raises(anthropic.APIStatusError) as caught:
        with client.messages.stream(**ask("[[sim drop_after=3]]")) as stream:
            received.extend(stream.text_stream)
    assert caught.value.body["error"]["type"] == "api_error"
    assert caught.value.body["error"]["details"]["error_code"] == "stream_interrupted"
    assert len(received) == 3 and len(requests) == 1
    assert operator_api.spent_nanos(account) == 0
