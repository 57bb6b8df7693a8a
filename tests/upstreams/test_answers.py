"""Checks for every upstream: shapes, finish reasons, token counts and charges, but not the text."""

import json

import pytest
from ledger import MODEL, check_ledger, check_usage
from gateway import KEY
from upstreams import ROWS


def rows(chosen):
    return pytest.mark.parametrize("row", chosen, ids=lambda row: row.name)


TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


def ask(text: str = "Hello!", **more) -> dict:
    settings = {"max_tokens": 24, "temperature": 0, "seed": 1, **more}
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **settings}


def check_answer(answer) -> None:
    choice = answer.choices[0]
    assert (answer.object, answer.model, len(answer.choices)) == ("chat.completion", MODEL, 1)
    assert (choice.index, choice.message.role) == (0, "assistant")


@rows(ROWS)
def test_plain(at, row):
    setup = at(row)
    answer = setup.client.chat.completions.create(**ask())
    check_answer(answer)
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    [exchange] = setup.exchanges()
    assert exchange.path.startswith(f"{row.path}/")
    assert [header for header in exchange.headers if KEY in header] == [row.kind.key + KEY]
    assert setup.first_request().model == row.model
    check_usage(setup, answer.usage)
    check_ledger(setup, charged=1)


def check_frames(chunks) -> None:
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({(chunk.id, chunk.created) for chunk in chunks}) == 1
    assert {chunk.model for chunk in chunks} == {MODEL}
    assert {chunk.usage for chunk in chunks} == {None}
    assert {len(chunk.choices) for chunk in chunks} == {1}
    roles = [chunk.choices[0].delta.role for chunk in chunks]
    assert roles == ["assistant"] + [None] * (len(chunks) - 1)
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons[:-1] == [None] * (len(chunks) - 1) and reasons[-1]


@rows(ROWS)
def test_stream(at, row):
    setup = at(row)
    chunks = list(setup.client.chat.completions.create(**ask(), stream=True))
    check_frames(chunks)
    words = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content]
    assert len(words) > 1
    # The caller did not request usage; the gateway did.
    assert setup.first_request().usage
    check_ledger(setup, charged=1)


@rows(ROWS)
def test_stream_with_usage(at, row):
    setup = at(row)
    options = {"include_usage": True}
    *chunks, last = setup.client.chat.completions.create(**ask(), stream=True, stream_options=options)
    check_frames(chunks)
    assert last.choices == []
    check_usage(setup, last.usage)
    check_ledger(setup, charged=1)


@rows(ROWS)
def test_stop(at, row):
    setup = at(row)
    stop = ["a", "e", "o", " "]  # no long text lacks them
    answer = setup.client.chat.completions.create(**ask(stop=stop))
    assert answer.choices[0].finish_reason == "stop"
    told = [word for word in stop if row.kind.blank_stops or word.strip()]
    assert setup.first_request().stop == told
    if row.real:
        assert not any(word in answer.choices[0].message.content for word in told)
    check_ledger(setup, charged=1)


@rows(ROWS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_max_tokens(at, row, stream):
    setup = at(row)
    if row.to_length:
        row.server.order(row.to_length)
    answer = setup.client.chat.completions.create(**ask("Say much.", max_tokens=1, stream=stream))
    *_, last = answer if stream else [answer]
    assert last.choices[0].finish_reason == "length"
    assert setup.first_request().max_tokens == 1
    if row.real:
        assert setup.gateway.charges()[0]["completion_tokens"] == 1
    check_ledger(setup, charged=1)


def check_call(call) -> None:
    assert call.id and (call.type, call.function.name) == ("function", "get_weather")
    assert set(json.loads(call.function.arguments)) == {"city"}


@rows(ROWS)
def test_tools(at, row):
    setup = at(row)
    question = ask("Use the tool.", tools=[TOOL], max_tokens=16)
    called = setup.client.chat.completions.create(**question)
    check_answer(called)
    choice = called.choices[0]
    assert setup.first_request().tools == ["get_weather"]
    assert bool(choice.message.tool_calls) == (choice.finish_reason == "tool_calls")
    if not row.real:
        [call] = choice.message.tool_calls
        check_call(call)
        result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
        question["messages"] += [choice.message, result]
        answer = setup.client.chat.completions.create(**question)
        assert answer.choices[0].finish_reason == "stop" and answer.choices[0].message.content
    check_ledger(setup, charged=1 if row.real else 2)


@rows([row for row in ROWS if not row.real])
def test_streamed_tools(at, row):
    setup = at(row)
    with setup.client.chat.completions.stream(**ask("Use the tool.", tools=[TOOL])) as stream:
        choice = stream.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls"
    [call] = choice.message.tool_calls
    check_call(call)
    check_ledger(setup, charged=1)


@rows([row for row in ROWS if row.details])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_cached_and_reasoning_tokens(at, row, stream):
    setup = at(row)
    list(setup.client.chat.completions.create(**ask(row.details, stream=stream)))
    [charge] = setup.gateway.charges()
    assert charge["cached_tokens"] > 0 and charge["reasoning_tokens"] > 0
    check_ledger(setup, charged=1)


@rows([row for row in ROWS if row.real])
def test_cached_tokens(at, row):
    setup = at(row)
    for _ in range(2):
        check_answer(setup.client.chat.completions.create(**ask(max_tokens=1)))
    again = setup.gateway.charges()[1]
    assert 0 < again["cached_tokens"] < again["prompt_tokens"]
    check_ledger(setup, charged=2)


@rows(ROWS)
def test_several_calls(at, row):
    setup = at(row)
    for text in ("One", "Two", "Three"):
        check_answer(setup.client.chat.completions.create(**ask(text, max_tokens=4)))
    check_ledger(setup, charged=3)
