"""The Anthropic classes of LangChain and Pydantic AI."""

import anthropic
import pydantic_ai
import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from pydantic import BaseModel
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider

MODEL = "svc-native-fast"


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


@pytest.fixture
def connect(account):
    def connect(model=MODEL, **more):
        return ChatAnthropic(model=model, **{"api_key": account.key, "max_retries": 0, "timeout": 30, **more})

    return connect


@pytest.fixture
def chat(connect):
    return connect()


def collect(stream):
    whole, *rest = stream
    for chunk in rest:
        whole += chunk
    return whole


def test_langchain(chat):
    answer = chat.invoke([SystemMessage("Be brief."), HumanMessage("Hello, chain!")])
    assert answer.text.endswith("Hello, chain!")
    assert answer.response_metadata["stop_reason"] == "end_turn"
    streamed = collect(chat.stream([SystemMessage("Be brief."), HumanMessage("Hello, chain!")]))
    assert streamed.text == answer.text
    assert streamed.usage_metadata == answer.usage_metadata
    assert answer.usage_metadata["input_tokens"] > 0 and answer.usage_metadata["output_tokens"] > 0


@pytest.mark.parametrize("streamed", [False, True])
def test_langchain_tools(chat, streamed):
    with_tools = chat.bind_tools([multiply])
    question = HumanMessage('What is 6 x 7? [[sim tool=multiply {"a": 6, "b": 7}]]')
    called = collect(with_tools.stream([question])) if streamed else with_tools.invoke([question])
    [call] = called.tool_calls
    assert (call["name"], call["args"]) == ("multiply", {"a": 6, "b": 7})
    answer = with_tools.invoke([question, called, multiply.invoke(call)])
    assert "42" in answer.text and answer.tool_calls == []


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchain_structured_output(chat, method):
    person = chat.with_structured_output(Person, method=method).invoke("Who?")
    assert isinstance(person, Person)


def test_langchain_failures(chat, connect):
    with pytest.raises(anthropic.NotFoundError):
        connect("svc-unknown").invoke("Hi")
    with pytest.raises(anthropic.AuthenticationError):
        connect(api_key="sk-wrong").invoke("Hi")
    with pytest.raises(anthropic.InternalServerError):
        chat.invoke("[[sim status=529]]")
    with pytest.raises(anthropic.APIStatusError, match="stream_interrupted"):
        list(chat.stream("[[sim drop_after=3]]"))


async def test_pydantic_ai(async_anthropic_client):
    provider = AnthropicProvider(anthropic_client=async_anthropic_client)
    model = AnthropicModel(MODEL, provider=provider)
    agent = pydantic_ai.Agent(model, instructions="Be brief.")

    @agent.tool_plain
    def weather(city: str) -> str:
        return f"Rain in {city}"

    first = await agent.run('The weather in Oslo? [[sim tool=weather {"city": "Oslo"}]]')
    assert "Rain in Oslo" in first.output
    async with agent.run_stream("And tomorrow?", message_history=first.all_messages()) as second:
        pieces = [piece async for piece in second.stream_text(delta=True)]
    assert "".join(pieces).endswith("And tomorrow?")
    named = await pydantic_ai.Agent(model, output_type=Person).run("Who?")
    assert isinstance(named.output, Person)
    with pytest.raises(pydantic_ai.exceptions.ModelHTTPError) as caught:
        await agent.run("[[sim status=529]]")
    assert caught.value.status_code == 529
    with pytest.raises(pydantic_ai.exceptions.ModelAPIError):
        async with agent.run_stream("[[sim drop_after=3]]") as broken:
            [piece async for piece in broken.stream_text(delta=True)]
