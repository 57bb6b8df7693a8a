"""The official Python library: responses, their streams, stored conversations, tools."""

import json
from typing import Literal, get_args

import openai
import operator_api
import pytest
from openai import OpenAI, pydantic_function_tool
from openai.types.responses import ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

MODEL = "svc-native-fast"
HELLO = {"model": MODEL, "input": "Hello from Python!"}
OSLO = '[[sim tool=get_weather {"city": "Oslo"}]]'
UTC = '[[sim tool=get_time {"zone": "UTC"}]]'
BOTH = [("get_weather", {"city": "Oslo"}), ("get_time", {"zone": "UTC"})]
WEI = '[[sim tool=convert_units {"amount": "1.5", "from": "ether", "to": "wei"}]]'


class Person(BaseModel):
    name: str
    age: int
    mood: Literal["glad", "sad"]
    friends: list[str]


def function(name: str, field: str) -> dict:
    properties = {field: {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": [field], "additionalProperties": False}
    return {"type": "function", "name": name, "description": None, "parameters": schema, "strict": True}


TOOLS = [function("get_weather", "city"), function("get_time", "zone")]


def ask(question: str, **more) -> dict:
    return {"model": MODEL, "input": question, **more}


# Plain answers


def test_the_settings_in_dev_env_are_all_a_client_needs():
    with OpenAI() as client:
        assert client.responses.create(**HELLO).output_text.endswith("Hello from Python!")


def check_plain(response):
    assert (response.object, response.model, response.status) == ("response", MODEL, "completed")
    assert response.id.startswith("resp_") and response.completed_at >= response.created_at > 1_700_000_000
    [message] = response.output
    assert (message.type, message.role, message.status) == ("message", "assistant", "completed")
    assert response.output_text.endswith("Hello from Python!")
    assert response.error is None and response.incomplete_details is None
    usage = response.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens > 0


def test_plain(client):
    check_plain(client.responses.create(**HELLO))


async def test_plain_async(async_client):
    check_plain(await async_client.responses.create(**HELLO))


def test_what_the_types_of_the_library_want_is_there(client):
    """Validates a response against the library's models, which accept anything by themselves."""
    response = client.responses.create(**ask("Hi", tools=TOOLS, text={"verbosity": "low"}))
    type(response).model_validate(response.to_dict(), strict=True)


def test_every_common_setting_is_taken_and_repeated(client):
    settings = {
        "instructions": "Be brief.",
        "max_output_tokens": 200,
        "temperature": 0.5,
        "top_p": 0.9,
        "metadata": {"a": "b"},
        "parallel_tool_calls": False,
        "truncation": "auto",
        "user": "someone",
    }
    dropped = {"include": [], "service_tier": "auto", "stream_options": None, "extra_body": {"unheard_of": True}}
    items = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "input_text", "text": "One"}]},
        {"type": "message", "role": "assistant", "content": "Two"},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Thr"},
                {"type": "input_image", "image_url": "https://example.com/x.png", "detail": "auto"},
                {"type": "input_text", "text": "ee"},
            ],
        },
    ]
    reasoning = {"effort": "low", "summary": None}
    response = client.responses.create(
        model="svc-flex-beta-3.6", input=items, reasoning=reasoning, **settings, **dropped
    )
    assert response.output_text.endswith("Thr\nee")
    repeated = response.to_dict()
    assert {name: repeated[name] for name in settings} == settings
    assert repeated["reasoning"] == reasoning


def test_answers_cut_short(client):
    cut = client.responses.create(**ask("[[sim tokens=50]]", max_output_tokens=20))
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (cut.usage.output_tokens, cut.output[0].status) == (20, "incomplete")
    cut = client.responses.create(**ask("[[sim finish=length]]"))
    assert cut.incomplete_details.reason == "max_output_tokens" and cut.output_text
    filtered = client.responses.create(**ask("[[sim finish=content_filter]]"))
    assert (filtered.status, filtered.incomplete_details.reason) == ("incomplete", "content_filter")


def test_usage_details(client):
    usage = client.responses.create(**ask("a b c d e [[sim cached=5 tokens=10 reasoning=50]]")).usage
    assert usage.input_tokens_details.cached_tokens == 5
    assert (usage.output_tokens, usage.output_tokens_details.reasoning_tokens) == (60, 50)


def test_request_ids(client):
    assert client.responses.create(**HELLO)._request_id
    raw = client.responses.with_raw_response.create(**HELLO, extra_headers={"X-Request-ID": "mine-2"})
    assert raw.request_id == "mine-2"


# Streams

EVENTS = get_args(get_args(ResponseStreamEvent)[0])  # an annotated union
EVENT = TypeAdapter(ResponseStreamEvent)

MESSAGE = [
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]
CALL = [
    "response.output_item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
]


def check_events(events, *items, end="response.completed"):
    """Asserts that each event has a known type and is valid for it, and that numbers and order are right."""
    for event in events:
        assert isinstance(event, EVENTS), event
        assert type(EVENT.validate_python(event.to_dict(), strict=True)) is type(event)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    in_turn = [kind for at, kind in enumerate(kinds) if at == 0 or kinds[at - 1] != kind]
    expected = ["response.created", "response.in_progress", *[kind for item in items for kind in item], end]
    assert in_turn == expected


def check_stream(events, plain):
    check_events(events, MESSAGE)
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert len(deltas) > 4 and "".join(deltas) == plain.output_text
    first, last = events[0].response, events[-1].response
    assert (first.status, first.output, first.usage) == ("in_progress", [], None)
    assert first.id == last.id
    assert last.output_text == plain.output_text and last.usage == plain.usage
    assert events[-2].item == last.output[0]


def test_stream(client):
    plain = client.responses.create(**HELLO)
    with client.responses.create(**HELLO, stream=True) as stream:
        assert stream.response.headers["content-type"].startswith("text/event-stream")
        events = list(stream)
    check_stream(events, plain)
    assert client.responses.retrieve(events[-1].response.id) == events[-1].response


async def test_stream_async(async_client):
    plain = await async_client.responses.create(**HELLO)
    check_stream([event async for event in await async_client.responses.create(**HELLO, stream=True)], plain)


def without_parsed(value):
    """The response as on the wire, without the fields that the helpers add."""
    match value:
        case dict():
            own = {"parsed", "parsed_arguments"}
            return {key: without_parsed(inner) for key, inner in value.items() if key not in own}
        case list():
            return [without_parsed(inner) for inner in value]
    return value


def check_final(final, stored):
    assert without_parsed(final.to_dict()) == stored.to_dict()


def test_stream_helper(client):
    with client.responses.stream(**HELLO) as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    check_plain(final)
    assert snapshots[-1] == final.output_text
    check_final(final, client.responses.retrieve(final.id))


async def test_stream_helper_async(async_client):
    async with async_client.responses.stream(**HELLO) as stream:
        final = await stream.get_final_response()
    check_plain(final)
    check_final(final, await async_client.responses.retrieve(final.id))


def test_a_stream_that_is_cut_short(client):
    events = list(client.responses.create(**ask("[[sim finish=length]]"), stream=True))
    check_events(events, MESSAGE, end="response.incomplete")
    assert events[-1].response.incomplete_details.reason == "max_output_tokens"
    assert client.responses.retrieve(events[-1].response.id) == events[-1].response


# Structured output


def check_person(response):
    assert isinstance(response.output_parsed, Person)
    assert Person.model_validate_json(response.output_text) == response.output_parsed


def test_parse(client):
    check_person(client.responses.parse(**ask("Who?", text_format=Person)))


async def test_parse_async(async_client):
    check_person(await async_client.responses.parse(**ask("Who?", text_format=Person)))


def test_parse_in_a_stream(client):
    with client.responses.stream(**ask("Who?", text_format=Person)) as stream:
        final = stream.get_final_response()
    check_person(final)
    check_final(final, client.responses.retrieve(final.id))


def test_json_mode(client):
    response = client.responses.create(**ask("Hi", text={"format": {"type": "json_object"}}))
    assert isinstance(json.loads(response.output_text), dict)


# Conversations


def test_a_chain(client):
    first = client.responses.create(**ask("one", instructions="Be brief."))
    second = client.responses.create(**ask("two", previous_response_id=first.id))
    third = client.responses.create(**ask("three", previous_response_id=second.id, store=False))
    assert second.previous_response_id == first.id
    counts = [response.usage.input_tokens for response in (first, second, third)]
    assert counts == sorted(set(counts))
    assert second.instructions is None
    # The same messages sent in full are the same input; so are the library's output items sent back
    # unchanged.
    in_full = [
        {"role": "user", "content": "one"},
        *first.output,
        {"role": "user", "content": "two"},
        *second.output,
        {"role": "user", "content": "three"},
    ]
    again = client.responses.create(model=MODEL, input=in_full)
    assert again.usage == third.usage and again.output_text == third.output_text


def test_a_streamed_chain(client):
    with client.responses.stream(**ask("one")) as stream:
        first = stream.get_final_response()
    with client.responses.stream(**ask("two", previous_response_id=first.id)) as stream:
        second = stream.get_final_response()
    assert second.previous_response_id == first.id
    assert second.usage.input_tokens > first.usage.input_tokens


def test_a_reference_to_an_earlier_item(client):
    first = client.responses.create(**ask("one"))
    reference = {"type": "item_reference", "id": first.output[0].id}
    user = [{"role": "user", "content": text} for text in ("one", "two")]
    referring = client.responses.create(model=MODEL, input=[user[0], reference, user[1]])
    chained = client.responses.create(**ask("two", previous_response_id=first.id))
    assert referring.usage == chained.usage


def missing(action):
    with pytest.raises(openai.NotFoundError) as caught:
        action()
    assert (caught.value.type, caught.value.code) == ("invalid_request_error", "previous_response_not_found")


def test_retrieve_and_delete(client):
    response = client.responses.create(**ask("Hi", metadata={"a": "b"}, tools=TOOLS))
    assert client.responses.retrieve(response.id) == response
    client.responses.delete(response.id)
    missing(lambda: client.responses.retrieve(response.id))
    missing(lambda: client.responses.delete(response.id))
    missing(lambda: client.responses.create(**ask("Hi", previous_response_id=response.id)))


def test_what_is_not_stored_or_is_anothers_is_not_found(client):
    unstored = client.responses.create(**HELLO, store=False)
    assert unstored.store is False
    missing(lambda: client.responses.retrieve(unstored.id))
    with OpenAI(api_key=operator_api.create_account().key, max_retries=0) as other:
        theirs = other.responses.create(**HELLO)
    missing(lambda: client.responses.retrieve(theirs.id))
    missing(lambda: client.responses.delete(theirs.id))
    missing(lambda: client.responses.create(**ask("Hi", previous_response_id=theirs.id)))


@pytest.mark.parametrize("streamed", [False, True])
def test_what_is_too_large_is_answered_and_not_stored(client, streamed):
    response = client.responses.create(**ask("word " * 54_000), stream=streamed)
    if streamed:
        *_, last = response
        response = last.response
    assert response.status == "completed" and response.store is False
    missing(lambda: client.responses.retrieve(response.id))


# Functions


def check_calls(response, expected=BOTH):
    assert response.status == "completed" and response.output_text == ""
    assert [(item.name, json.loads(item.arguments)) for item in response.output] == expected
    assert {(item.type, item.status) for item in response.output} == {("function_call", "completed")}
    ids = [item.call_id for item in response.output]
    assert len(set(ids)) == len(expected) and not set(ids) & {item.id for item in response.output}


def results(response) -> list[dict]:
    return [
        {"type": "function_call_output", "call_id": item.call_id, "output": f"{item.name} worked"}
        for item in response.output
    ]


def check_results(response):
    assert response.output_text.endswith("get_weather worked; get_time worked")


def test_function_round_trip(client):
    question = ask(f"{OSLO} {UTC}", tools=TOOLS)
    called = client.responses.create(**question)
    check_calls(called)
    chained = client.responses.create(
        model=MODEL, input=results(called), tools=TOOLS, previous_response_id=called.id
    )
    check_results(chained)
    user = {"role": "user", "content": question["input"]}
    in_full = client.responses.create(model=MODEL, input=[user, *called.output, *results(called)], tools=TOOLS)
    check_results(in_full)
    assert in_full.usage == chained.usage


def test_streamed_function_round_trip(client):
    events = list(client.responses.create(**ask(f"{OSLO} {UTC}", tools=TOOLS), stream=True))
    check_events(events, CALL, CALL)
    called = events[-1].response
    check_calls(called)
    for item in called.output:
        deltas = [event.delta for event in events if event.type == CALL[1] and event.item_id == item.id]
        [done] = [event for event in events if event.type == CALL[2] and event.item_id == item.id]
        assert "".join(deltas) == done.arguments == item.arguments
    assert client.responses.retrieve(called.id) == called
    follow_up = {"model": MODEL, "input": results(called), "tools": TOOLS, "previous_response_id": called.id}
    with client.responses.stream(**follow_up) as stream:
        check_results(stream.get_final_response())


def test_parsed_arguments(client):
    class GetWeather(BaseModel):
        city: str

    tool = pydantic_function_tool(GetWeather, name="get_weather")["function"]
    question = ask(OSLO, tools=[{"type": "function", **tool}])
    assert client.responses.parse(**question).output[0].parsed_arguments == {"city": "Oslo"}
    with client.responses.stream(**question) as stream:
        final = stream.get_final_response()
    check_calls(final, BOTH[:1])
    assert final.output[0].parsed_arguments == {"city": "Oslo"}


def test_tool_choice(client):
    def choose(choice) -> list[str]:
        response = client.responses.create(**ask("Hi", tools=TOOLS, tool_choice=choice))
        return [item.name for item in response.output if item.type == "function_call"]

    assert choose("required") == ["get_weather"]
    assert choose({"type": "function", "name": "get_time"}) == ["get_time"]
    time_only = [{"type": "function", "name": "get_time"}]
    assert choose({"type": "allowed_tools", "mode": "required", "tools": time_only}) == ["get_time"]
    assert choose("auto") == choose("none") == []


# Built-in tools


RESULT = '"result":"1500000000000000000"'


@pytest.mark.parametrize("streamed", [False, True])
def test_built_in_tools_are_not_seen_in_responses(client, streamed):
    question = {"model": "svc-basic", "input": WEI}
    if streamed:
        events = list(client.responses.create(**question, stream=True))
        check_events(events, MESSAGE)
        response = events[-1].response
    else:
        response = client.responses.create(**question)
    assert [item.type for item in response.output] == ["message"]
    assert RESULT in response.output_text and response.tools == []
    assert client.responses.retrieve(response.id) == response
    onward = client.responses.create(model="svc-basic", input="And?", previous_response_id=response.id)
    assert onward.output_text.endswith("And?")


@pytest.mark.parametrize("streamed", [False, True])
def test_built_in_tools_are_not_seen_in_chat(client, streamed):
    question = {"model": "svc-basic", "messages": [{"role": "user", "content": WEI}]}
    if streamed:
        with client.chat.completions.stream(**question) as stream:
            kinds = {event.type for event in stream}
            answer = stream.get_final_completion()
        assert kinds == {"chunk", "content.delta", "content.done"}
    else:
        answer = client.chat.completions.create(**question)
    [choice] = answer.choices
    assert RESULT in choice.message.content
    assert (choice.finish_reason, choice.message.tool_calls) == ("stop", None)


def test_built_in_tools_can_be_declined(client):
    declined = client.responses.create(model="svc-basic", input=WEI, extra_body={"tool_execution": "passthrough"})
    assert RESULT not in declined.output_text
    own = client.responses.create(model="svc-basic", input=f"{WEI} {OSLO}", tools=TOOLS)
    check_calls(own, BOTH[:1])


# Failures


@pytest.mark.parametrize(
    ("param", "more"),
    [
        ("background", {"background": True}),
        ("conversation", {"conversation": "conv_1"}),
        ("input", {"input": []}),
        ("input[0].type", {"input": [{"type": "image_generation_call", "id": "ig_1", "status": "completed"}]}),
        ("max_output_tokens", {"model": "svc-flex-beta-3.6", "max_output_tokens": 127}),
        ("temperature", {"temperature": 3}),
        ("tools[0].type", {"tools": [{"type": "code_interpreter"}]}),
    ],
)
def test_refusals_name_the_field(client, param, more):
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**{**HELLO, **more})
    error = caught.value
    assert (error.type, error.code, error.param) == ("invalid_request_error", None, param)
    assert error.request_id


def test_statuses(client):
    with pytest.raises(openai.AuthenticationError) as caught:
        OpenAI(api_key="sk-wrong").responses.create(**HELLO)
    assert caught.value.code == "invalid_api_key"
    with pytest.raises(openai.NotFoundError) as caught:
        client.responses.create(**{**HELLO, "model": "svc-unknown"})
    assert caught.value.code == "model_not_found"
    for stream in (False, True):
        with pytest.raises(openai.InternalServerError) as caught:
            client.responses.create(**ask("[[sim status=529]]", stream=stream))
        assert (caught.value.status_code, caught.value.code) == (502, "529")
    with pytest.raises(openai.NotFoundError) as caught:
        client.responses.input_items.list("resp_1")
    assert caught.value.code == "route_not_found"


def interrupted(action):
    with pytest.raises(openai.APIError) as caught:
        action()
    error = caught.value
    assert type(error) is openai.APIError
    assert (error.code, error.type) == ("stream_interrupted", "upstream_stream_error")


def test_an_interrupted_stream(client):
    seen = []

    def read():
        for event in client.responses.create(**ask("[[sim drop_after=3]]"), stream=True):
            seen.append(event)

    interrupted(read)
    assert [event.type for event in seen].count("response.output_text.delta") == 3
    assert seen[-1].type == "response.output_text.delta"
    missing(lambda: client.responses.retrieve(seen[0].response.id))


def test_an_interrupted_stream_in_the_helper(client):
    def read():
        with client.responses.stream(**ask("[[sim drop_after=3]]")) as stream:
            stream.get_final_response()

    interrupted(read)
