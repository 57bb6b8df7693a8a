"""The official Python library: answers, streams, tools, structured output, models."""

import json
from decimal import Decimal
from typing import Literal

import openai
import pytest
from openai import OpenAI, pydantic_function_tool
from pydantic import BaseModel

MODEL = "svc-native-fast"
HELLO = {"model": MODEL, "messages": [{"role": "user", "content": "Hello from Python!"}]}


class GetWeather(BaseModel):
    city: str


class GetTime(BaseModel):
    zone: str


class Person(BaseModel):
    name: str
    age: int
    mood: Literal["glad", "sad"]
    friends: list[str]


TOOLS = [
    pydantic_function_tool(GetWeather, name="get_weather"),
    pydantic_function_tool(GetTime, name="get_time"),
]
OSLO = '[[sim tool=get_weather {"city": "Oslo"}]]'
UTC = '[[sim tool=get_time {"zone": "UTC"}]]'


def ask(text: str, **more) -> dict:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **more}


def named(calls) -> list[tuple]:
    return [(call.function.name, json.loads(call.function.arguments)) for call in calls]


# Plain answers


def test_the_settings_in_dev_env_are_all_a_client_needs():
    with OpenAI() as client:
        answer = client.chat.completions.create(**HELLO)
    assert answer.choices[0].message.content.endswith("Hello from Python!")


def check_plain(answer):
    choice = answer.choices[0]
    assert (answer.object, answer.model, len(answer.choices)) == ("chat.completion", MODEL, 1)
    assert answer.id and answer.created > 1_700_000_000
    assert (choice.index, choice.finish_reason, choice.message.role) == (0, "stop", "assistant")
    assert "simulator" in choice.message.content
    assert choice.message.content.endswith("Hello from Python!")
    assert choice.message.tool_calls is None
    usage = answer.usage
    assert usage.prompt_tokens > 0 and usage.completion_tokens > 0
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_plain(client):
    check_plain(client.chat.completions.create(**HELLO))


async def test_plain_async(async_client):
    check_plain(await async_client.chat.completions.create(**HELLO))


def test_a_conversation_with_every_common_setting(client):
    answer = client.chat.completions.create(
        model="svc-flex-beta-3.6",
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "One"}]},
            {"role": "assistant", "content": "Two"},
            {"role": "user", "content": [{"type": "text", "text": "Thr"}, {"type": "text", "text": "ee"}]},
        ],
        max_completion_tokens=200,
        temperature=0.5,
        top_p=0.9,
        seed=7,
        stop=["never said"],
        frequency_penalty=0.1,
        presence_penalty=0.1,
        metadata={"a": "b"},
        store=False,
        service_tier="auto",
        user="someone",
        extra_body={"top_k": 5, "unheard_of": True},
    )
    assert answer.choices[0].message.content.endswith("Thr\nee")


def test_several_choices(client):
    answer = client.chat.completions.create(**HELLO, n=2)
    assert [choice.index for choice in answer.choices] == [0, 1]
    one = client.chat.completions.create(**HELLO)
    assert answer.usage.completion_tokens == 2 * one.usage.completion_tokens


def test_finish_reasons_and_usage_details(client):
    cut = client.chat.completions.create(**ask("[[sim tokens=50]]", max_tokens=20))
    assert (cut.choices[0].finish_reason, cut.usage.completion_tokens) == ("length", 20)
    filtered = client.chat.completions.create(**ask("[[sim finish=content_filter]]"))
    assert filtered.choices[0].finish_reason == "content_filter"
    counted = client.chat.completions.create(**ask("a b c d e [[sim cached=5 tokens=10 reasoning=50]]"))
    assert counted.usage.prompt_tokens_details.cached_tokens == 5
    assert counted.usage.prompt_tokens_details.cache_write_tokens == 0
    assert Decimal(counted.usage.cost) > 0
    assert counted.usage.completion_tokens == 60


def test_request_ids(client):
    answer = client.chat.completions.create(**HELLO)
    assert answer._request_id
    raw = client.chat.completions.with_raw_response.create(**HELLO, extra_headers={"X-Request-ID": "mine-1"})
    assert raw.request_id == raw.headers["x-request-id"] == "mine-1"
    assert raw.parse().choices[0].finish_reason == "stop"
    assert not [name for name in raw.headers if name.lower().startswith("x-ratelimit")]


# Streams


def check_stream(chunks, plain):
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    assert chunks[0].model == MODEL
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert [delta.role for delta in deltas] == ["assistant"] + [None] * (len(deltas) - 1)
    assert "".join(delta.content or "" for delta in deltas) == plain.choices[0].message.content
    assert len(deltas) > 4
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["stop"]


def test_stream(client):
    plain = client.chat.completions.create(**HELLO)
    with client.chat.completions.create(**HELLO, stream=True) as stream:
        assert stream.response.headers["content-type"].startswith("text/event-stream")
        check_stream(list(stream), plain)


async def test_stream_async(async_client):
    plain = await async_client.chat.completions.create(**HELLO)
    stream = await async_client.chat.completions.create(**HELLO, stream=True)
    check_stream([chunk async for chunk in stream], plain)


def test_stream_with_usage(client):
    plain = client.chat.completions.create(**HELLO)
    stream = client.chat.completions.create(**HELLO, stream=True, stream_options={"include_usage": True})
    *chunks, last = stream
    check_stream(chunks, plain)
    assert last.choices == [] and last.usage == plain.usage
    assert {chunk.usage for chunk in chunks} == {None}


def test_a_stream_left_early_leaves_the_client_usable(client):
    with client.chat.completions.create(**ask("[[sim tokens=100 delay_ms=20]]"), stream=True) as stream:
        next(stream)
    assert client.chat.completions.create(**HELLO).choices[0].finish_reason == "stop"


def check_helper(events, final, plain):
    assert final.choices[0].message.content == plain.choices[0].message.content
    assert final.choices[0].message.role == "assistant"
    assert final.usage == plain.usage
    assert [event.type for event in events].count("content.done") == 1
    deltas = [event.delta for event in events if event.type == "content.delta"]
    assert "".join(deltas) == plain.choices[0].message.content


def test_stream_helper(client):
    plain = client.chat.completions.create(**HELLO)
    with client.chat.completions.stream(**HELLO, stream_options={"include_usage": True}) as stream:
        check_helper(list(stream), stream.get_final_completion(), plain)


async def test_stream_helper_async(async_client):
    plain = await async_client.chat.completions.create(**HELLO)
    async with async_client.chat.completions.stream(**HELLO, stream_options={"include_usage": True}) as stream:
        events = [event async for event in stream]
        check_helper(events, await stream.get_final_completion(), plain)


def test_stream_helper_with_several_choices(client):
    with client.chat.completions.stream(**HELLO, n=2) as stream:
        first, second = stream.get_final_completion().choices
    assert first.message.content == second.message.content != ""


# Tools


def check_tool_answer(answer, expected):
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls" and not choice.message.content
    assert {call.type for call in choice.message.tool_calls} == {"function"}
    assert named(choice.message.tool_calls) == expected
    ids = [call.id for call in choice.message.tool_calls]
    assert len(set(ids)) == len(expected) and all(ids)


def history_with_results(question, answer):
    """The assistant's message as the library returns it, and a result for each call."""
    message = answer.choices[0].message
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": f"{call.function.name} worked"}
        for call in message.tool_calls
    ]
    return {**question, "messages": [*question["messages"], message, *results]}


def check_tool_result(answer, *names):
    assert answer.choices[0].finish_reason == "stop"
    for name in names:
        assert f"{name} worked" in answer.choices[0].message.content


def test_tool_round_trip(client):
    question = ask(f"Weather? {OSLO}", tools=TOOLS)
    called = client.chat.completions.create(**question)
    check_tool_answer(called, [("get_weather", {"city": "Oslo"})])
    assert called.choices[0].message.content is None
    answer = client.chat.completions.create(**history_with_results(question, called))
    check_tool_result(answer, "get_weather")


async def test_parallel_tool_calls_async(async_client):
    question = ask(f"{OSLO} {UTC}", tools=TOOLS, parallel_tool_calls=True)
    called = await async_client.chat.completions.create(**question)
    check_tool_answer(called, [("get_weather", {"city": "Oslo"}), ("get_time", {"zone": "UTC"})])
    answer = await async_client.chat.completions.create(**history_with_results(question, called))
    check_tool_result(answer, "get_weather", "get_time")


def test_tool_choice(client):
    def choose(choice):
        return client.chat.completions.create(**ask("Hi", tools=TOOLS, tool_choice=choice))

    for choice, name in [
        ("required", "get_weather"),
        ({"type": "function", "function": {"name": "get_time"}}, "get_time"),
    ]:
        answer = choose(choice)
        assert answer.choices[0].finish_reason == "tool_calls"
        [(called, arguments)] = named(answer.choices[0].message.tool_calls)
        assert called == name
        {"get_weather": GetWeather, "get_time": GetTime}[name].model_validate(arguments)
    assert choose("auto").choices[0].finish_reason == "stop"
    answer = client.chat.completions.create(**ask(OSLO, tools=TOOLS, tool_choice="none"))
    assert answer.choices[0].finish_reason == "stop" and answer.choices[0].message.tool_calls is None


def test_streamed_tool_call_fragments(client):
    calls = {}
    for chunk in client.chat.completions.create(**ask(f"{OSLO} {UTC}", tools=TOOLS), stream=True):
        for fragment in chunk.choices[0].delta.tool_calls or []:
            call = calls.setdefault(fragment.index, {"ids": [], "names": [], "arguments": ""})
            call["ids"] += [fragment.id] if fragment.id else []
            call["names"] += [fragment.function.name] if fragment.function.name else []
            call["arguments"] += fragment.function.arguments or ""
    assert list(calls) == [0, 1]
    assert [call["names"] for call in calls.values()] == [["get_weather"], ["get_time"]]
    assert [len(call["ids"]) for call in calls.values()] == [1, 1]
    assert [json.loads(call["arguments"]) for call in calls.values()] == [{"city": "Oslo"}, {"zone": "UTC"}]


def test_streamed_tool_calls_through_the_helper(client):
    question = ask(f"{OSLO} {UTC}", tools=TOOLS)
    with client.chat.completions.stream(**question) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion()
    assert [event.parsed_arguments for event in done] == [GetWeather(city="Oslo"), GetTime(zone="UTC")]
    check_tool_answer(final, [("get_weather", {"city": "Oslo"}), ("get_time", {"zone": "UTC"})])
    answer = client.chat.completions.create(**history_with_results(question, final))
    check_tool_result(answer, "get_weather", "get_time")


def test_parsed_tool_arguments(client):
    answer = client.chat.completions.parse(**ask(OSLO, tools=TOOLS))
    [call] = answer.choices[0].message.tool_calls
    assert call.function.parsed_arguments == GetWeather(city="Oslo")


# Structured output


def check_person(answer):
    message = answer.choices[0].message
    assert isinstance(message.parsed, Person)
    assert Person.model_validate_json(message.content) == message.parsed


def test_parse(client):
    check_person(client.chat.completions.parse(**ask("Who?", response_format=Person)))


async def test_parse_async(async_client):
    check_person(await async_client.chat.completions.parse(**ask("Who?", response_format=Person)))


def test_parse_in_a_stream(client):
    with client.chat.completions.stream(**ask("Who?", response_format=Person)) as stream:
        check_person(stream.get_final_completion())


def test_json_mode(client):
    answer = client.chat.completions.create(**ask("Hi", response_format={"type": "json_object"}))
    assert isinstance(json.loads(answer.choices[0].message.content), dict)


@pytest.mark.parametrize("more", [{"max_tokens": 2}, {"text": "[[sim finish=length]]"}])
def test_parse_of_an_answer_cut_short(client, more):
    request = {"text": "Who?", "response_format": Person, **more}
    with pytest.raises(openai.LengthFinishReasonError) as caught:
        client.chat.completions.parse(**ask(**request))
    assert caught.value.completion.usage.completion_tokens > 0


def test_parse_of_a_filtered_answer(client):
    with pytest.raises(openai.ContentFilterFinishReasonError):
        client.chat.completions.parse(**ask("[[sim finish=content_filter]]", response_format=Person))


# Models


def check_model(model):
    assert model.object == "model" and model.id.startswith("svc-") and model.created > 0
    assert float(model.pricing["prompt"]) > 0
    assert {"tools", "structured_outputs", "streaming"} <= set(model.supported_features)


def test_models(client):
    models = list(client.models.list())
    assert len({model.id for model in models}) == 17
    for model in models:
        check_model(model)
    flex = client.models.retrieve("svc-flex-beta-3.6")
    assert flex.id == "svc-flex-beta-3.6" and flex.context_length == 1_050_000


async def test_models_async(async_client):
    assert len([model async for model in async_client.models.list()]) == 17
    check_model(await async_client.models.retrieve(MODEL))


def test_every_listed_model_answers(client):
    for model in client.models.list():
        answer = client.chat.completions.create(**{**HELLO, "model": model.id})
        assert answer.model == model.id
        assert answer.choices[0].message.content.endswith("Hello from Python!")
