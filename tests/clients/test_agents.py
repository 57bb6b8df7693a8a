"""Agent frameworks: the OpenAI Agents SDK and Pydantic AI, over both endpoints."""

import openai
import pydantic_ai
import pytest
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from pydantic import BaseModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.openai import OpenAIResponsesModel as PydanticResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

MODEL = "svc-native-fast"
OSLO = 'The weather in Oslo? [[sim tool=weather {"city": "Oslo"}]]'
WEI = '[[sim tool=convert_units {"amount": "1.5", "from": "ether", "to": "wei"}]]'
RESULT = '"result":"1500000000000000000"'

set_tracing_disabled(True)  # traces go to another service


class Person(BaseModel):
    name: str
    age: int


@function_tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"Rain in {city}"


@pytest.fixture(params=[OpenAIResponsesModel, OpenAIChatCompletionsModel])
def model(request, async_client):
    return lambda name=MODEL: request.param(name, async_client)


@pytest.fixture
def agent(model):
    return Agent(name="Forecaster", instructions="Be brief.", model=model(), tools=[weather])


def check_tool_run(result):
    kinds = [item.type for item in result.new_items]
    assert kinds == ["tool_call_item", "tool_call_output_item", "message_output_item"]
    assert "Rain in Oslo" in result.final_output


async def test_two_turns_with_a_tool(agent):
    first = await Runner.run(agent, OSLO)
    check_tool_run(first)
    second = await Runner.run(agent, [*first.to_input_list(), {"role": "user", "content": "And tomorrow?"}])
    assert second.final_output.endswith("And tomorrow?")
    usage = [result.context_wrapper.usage for result in (first, second)]
    assert [turn.requests for turn in usage] == [2, 1]
    # The second turn's input includes all of the first.
    assert usage[1].input_tokens > usage[0].request_usage_entries[-1].input_tokens


async def test_two_streamed_turns_with_a_tool(agent):
    first = Runner.run_streamed(agent, OSLO)
    deltas = []
    async for event in first.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            deltas.append(event.data.delta)
    check_tool_run(first)
    assert len(deltas) > 4 and "".join(deltas) == first.final_output
    second = Runner.run_streamed(agent, [*first.to_input_list(), {"role": "user", "content": "And tomorrow?"}])
    async for _ in second.stream_events():
        pass
    assert second.final_output.endswith("And tomorrow?")


@pytest.mark.parametrize("streamed", [False, True])
async def test_turns_by_response_id(async_client, streamed):
    agent = Agent(name="Forecaster", model=OpenAIResponsesModel(MODEL, async_client), tools=[weather])

    async def run(text: str, **more):
        if not streamed:
            return await Runner.run(agent, text, **more)
        result = Runner.run_streamed(agent, text, **more)
        async for _ in result.stream_events():
            pass
        return result

    first = await run(OSLO, auto_previous_response_id=True)
    check_tool_run(first)
    second = await run("And tomorrow?", previous_response_id=first.last_response_id)
    assert second.final_output.endswith("And tomorrow?")
    stored = await async_client.responses.retrieve(second.last_response_id)
    assert stored.previous_response_id == first.last_response_id
    assert stored.usage.input_tokens > first.raw_responses[-1].usage.input_tokens


async def test_structured_output(model):
    agent = Agent(name="Namer", model=model(), output_type=Person)
    assert isinstance((await Runner.run(agent, "Who?")).final_output, Person)


async def test_built_in_tools_are_not_seen(model):
    agent = Agent(name="Converter", model=model("svc-basic"))
    plain = await Runner.run(agent, WEI)
    streamed = Runner.run_streamed(agent, WEI)
    async for _ in streamed.stream_events():
        pass
    for result in (plain, streamed):
        assert [item.type for item in result.new_items] == ["message_output_item"]
        assert RESULT in result.final_output


async def test_failures(model):
    agent = Agent(name="Unlucky", model=model())
    with pytest.raises(openai.InternalServerError) as caught:
        await Runner.run(agent, "[[sim status=529]]")
    assert caught.value.code == "529"
    with pytest.raises(openai.APIError) as caught:
        async for _ in Runner.run_streamed(agent, "[[sim drop_after=3]]").stream_events():
            pass
    assert caught.value.code == "stream_interrupted"


@pytest.mark.parametrize("model_class", [PydanticResponsesModel, OpenAIChatModel])
async def test_pydantic_ai(async_client, model_class):
    provider = OpenAIProvider(openai_client=async_client)
    agent = pydantic_ai.Agent(model_class(MODEL, provider=provider), instructions="Be brief.")

    @agent.tool_plain
    def weather(city: str) -> str:
        return f"Rain in {city}"

    first = await agent.run(OSLO)
    assert "Rain in Oslo" in first.output
    async with agent.run_stream("And tomorrow?", message_history=first.all_messages()) as second:
        pieces = [piece async for piece in second.stream_text(delta=True)]
    assert "".join(pieces).endswith("And tomorrow?")
    named = await agent.run("Who?", output_type=pydantic_ai.NativeOutput(Person))
    assert isinstance(named.output, Person)
    with pytest.raises(pydantic_ai.exceptions.ModelAPIError, match="broke off"):
        async with agent.run_stream("[[sim drop_after=3]]") as broken:
            [piece async for piece in broken.stream_text(delta=True)]
    with pytest.raises(pydantic_ai.exceptions.ModelHTTPError) as caught:
        await agent.run("[[sim status=529]]")
    assert caught.value.status_code == 502
