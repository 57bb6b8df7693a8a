"""LlamaIndex, with the program of docs/AGENTS.md."""

import json

import operator_api
from agent_program import HERE, Agent, block, price

PYTHON = str(HERE / ".venv-llamaindex/bin/python")
MORE = """
import json
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool

def report(text, response):
    print(json.dumps({"text": text, "usage": response.raw.usage.model_dump()}))

def weather(city: str) -> str:
    return f"Rain in {city}"

question = [ChatMessage(role="user", content="How is chat? [[sim cached=20]]")]
counted = {"stream_options": {"include_usage": True}}

answer = llm.complete("Hello!")
report(answer.text, answer)
*_, answer = llm.stream_complete("In pieces, please!", **counted)
report(answer.text, answer)
answer = llm.chat(question)
report(answer.message.content, answer)
*_, answer = llm.stream_chat(question, **counted)
report(answer.message.content, answer)
answer = llm.chat_with_tools([FunctionTool.from_defaults(weather)], '[[sim tool=weather {"city": "Oslo"}]]')
[call] = llm.get_tool_calls_from_response(answer)
report(weather(**call.tool_kwargs), answer)
"""


def run(account, folder, more: str = ""):
    agent = Agent(PYTHON, account, folder)
    agent.write(agent.project / "program.py", f"{block('LlamaIndex', 'python')}\n{more}")
    return agent.run("program.py")


def test_complete_and_chat(account, tmp_path):
    done = run(account, tmp_path, MORE)
    assert done.returncode == 0, done
    hello, *lines = done.stdout.splitlines()
    reports = [json.loads(line) for line in lines]
    asked = ["Hello!", "In pieces, please!", "How is chat?", "How is chat?", "Rain in Oslo"]
    assert all(text in report["text"] for text, report in zip(asked, reports, strict=True)), reports
    # The documented program has asked the first question as well.
    assert hello == reports[0]["text"]
    calls = [report["usage"] for report in [reports[0], *reports]]
    cached = [call["prompt_tokens_details"]["cached_tokens"] for call in calls]
    assert cached == [0, 0, 0, 20, 20, 0]
    prices = [price(call["prompt_tokens"], part, call["completion_tokens"]) for call, part in zip(calls, cached)]
    assert prices == [operator_api.nanos(call["cost"]) for call in calls]
    assert operator_api.spent_nanos(account) == sum(prices)


def test_no_credit(tmp_path):
    account = operator_api.create_account(credit=None)
    done = run(account, tmp_path)
    assert done.returncode == 1
    assert "402" in done.stderr and "USD of credit" in done.stderr
