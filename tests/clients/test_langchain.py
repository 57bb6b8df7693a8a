"""LangChain's ChatOpenAI, as its own documentation uses it, over both endpoints."""

import openai
import pytest
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import OpenAI
from pydantic import BaseModel

MODEL = "svc-native-fast"


class Joke(BaseModel):
    """A joke to tell."""

    setup: str
    punchline: str
    rating: int


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


@pytest.fixture(params=[False, True], ids=["chat", "responses"])
def connect(account, request):
    def connect(model=MODEL, **more):
        more = {"api_key": account.key, "max_retries": 0, "timeout": 30, **more}
        return ChatOpenAI(model=model, use_responses_api=request.param, **more)

    return connect


@pytest.fixture
def chat(connect):
    return connect()


def finish_reason(message):
    """The finish reason of a chat completion, or the reason of an incomplete response."""
    metadata = message.response_metadata
    if "finish_reason" in metadata:
        return metadata["finish_reason"]
    return metadata.get("incomplete_details", {"reason": "stop"})["reason"]


def test_the_settings_in_dev_env_are_all_langchain_needs():
    assert ChatOpenAI(model=MODEL).invoke("Hello, chain!").text.endswith("Hello, chain!")


def test_invoke(chat):
    answer = chat.invoke([SystemMessage("Be brief."), HumanMessage("Hello, chain!")])
    assert answer.text.endswith("Hello, chain!")
    assert finish_reason(answer) == "stop"
    assert answer.response_metadata["model_name"] == MODEL
    usage = answer.usage_metadata
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] > 0


async def test_ainvoke_and_astream(account):
    # One test, because LangChain keeps its connections, and each test has its own event loop.
    for use_responses_api in (False, True):
        chat = ChatOpenAI(model=MODEL, api_key=account.key, use_responses_api=use_responses_api)
        answer = await chat.ainvoke("Hello, chain!")
        chunks = [chunk async for chunk in chat.astream("Hello, chain!")]
        assert "".join(chunk.text for chunk in chunks) == answer.text


def test_stream(connect):
    chat = connect(stream_usage=True)
    answer = chat.invoke("Hello, chain!")
    whole = None
    for chunk in chat.stream("Hello, chain!"):
        whole = chunk if whole is None else whole + chunk
    assert whole.text == answer.text
    assert whole.usage_metadata["total_tokens"] == answer.usage_metadata["total_tokens"]
    assert finish_reason(whole) == "stop"


def test_an_output_budget_is_kept(connect):
    answer = connect("svc-flex-beta-3.6", max_tokens=128).invoke("[[sim tokens=200]]")
    assert finish_reason(answer) in ("length", "max_output_tokens")
    assert answer.usage_metadata["output_tokens"] == 128


@pytest.mark.parametrize("streamed", [False, True])
def test_tools(chat, streamed):
    with_tools = chat.bind_tools([multiply])
    question = HumanMessage('What is 6 x 7? [[sim tool=multiply {"a": 6, "b": 7}]]')
    if streamed:
        called, *rest = with_tools.stream([question])
        for chunk in rest:
            called += chunk
    else:
        called = with_tools.invoke([question])
    [call] = called.tool_calls
    assert (call["name"], call["args"]) == ("multiply", {"a": 6, "b": 7})
    result = multiply.invoke(call)
    assert isinstance(result, ToolMessage) and result.content == "42"
    answer = with_tools.invoke([question, called, result])
    assert "42" in answer.text and answer.tool_calls == []


def test_forced_tool(chat):
    [call] = chat.bind_tools([multiply], tool_choice="multiply").invoke("Hi").tool_calls
    assert call["name"] == "multiply"
    assert isinstance(multiply.invoke(call["args"]), int)


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(chat, method):
    joke = chat.with_structured_output(Joke, method=method).invoke("Tell me a joke about cats")
    assert isinstance(joke, Joke)


def test_structured_output_in_json_mode(chat):
    assert isinstance(chat.with_structured_output(None, method="json_mode").invoke("JSON, please"), dict)


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # raised inside LangChain
def test_structured_output_in_a_stream(chat):
    *_, last = chat.with_structured_output(Joke).stream("Tell me a joke about cats")
    assert isinstance(last, Joke)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_conversation_by_response_id(account, streamed):
    chat = ChatOpenAI(model=MODEL, api_key=account.key, use_previous_response_id=True)
    history = []
    for text in ("one", "two"):
        history.append(HumanMessage(text))
        if streamed:
            answer, *rest = chat.stream(history)
            for chunk in rest:
                answer += chunk
        else:
            answer = chat.invoke(history)
        assert answer.text.endswith(text)
        history.append(answer)
    first, second = history[1].response_metadata["id"], answer.response_metadata["id"]
    with OpenAI(api_key=account.key) as client:
        assert client.responses.retrieve(second).previous_response_id == first


def test_built_in_tools_are_not_seen(connect):
    chat = connect("svc-basic")
    question = '[[sim tool=convert_units {"amount": "1.5", "from": "ether", "to": "wei"}]]'
    whole, *rest = chat.stream(question)
    for chunk in rest:
        whole += chunk
    for answer in (chat.invoke(question), whole):
        assert "1500000000000000000" in answer.text and answer.tool_calls == []


def test_failures(chat, connect):
    with pytest.raises(openai.InternalServerError) as caught:
        chat.invoke("[[sim status=529]]")
    assert caught.value.code == "529"
    with pytest.raises(openai.NotFoundError) as caught:
        connect("svc-unknown").invoke("Hi")
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.AuthenticationError):
        connect(api_key="sk-wrong").invoke("Hi")
    with pytest.raises(openai.APIError) as caught:
        list(chat.stream("[[sim drop_after=3]]"))
    assert caught.value.code == "stream_interrupted"
