"""Continue's CLI, with the settings of docs/AGENTS.md, without a person."""

import json
import subprocess

import operator_api
from agent_program import Agent, block, price


def program(account, folder) -> Agent:
    agent = Agent("cn", account, folder)
    agent.write(agent.home / ".continue/config.yaml", block("Continue", "yaml"))
    return agent


def start(agent: Agent, prompt: str, *arguments: str) -> subprocess.CompletedProcess:
    return agent.run("-p", *arguments, prompt)


def usage(agent: Agent) -> list[dict]:
    """What the program was told about each call, from the one session that it has stored."""
    [stored] = (agent.home / ".continue/sessions").glob("*-*.json")
    messages = [item["message"] for item in json.loads(stored.read_text())["history"]]
    return [message["usage"] for message in messages if message["role"] == "assistant"]


def check_charge(agent: Agent) -> None:
    """What was charged is the cost, and the price of the tokens, that the program was told."""
    calls = usage(agent)
    cached = [call["prompt_tokens_details"]["cached_tokens"] for call in calls]
    prices = [price(call["prompt_tokens"], part, call["completion_tokens"]) for call, part in zip(calls, cached)]
    assert prices == [operator_api.nanos(call["cost"]) for call in calls]
    assert sum(prices) > 0 and operator_api.spent_nanos(agent.account) == sum(prices)


def test_answer(account, tmp_path):
    agent = program(account, tmp_path)
    done = start(agent, "Hello, agent! [[sim cached=100]]")
    assert done.returncode == 0 and "Hello, agent!" in done.stdout, done
    [call] = usage(agent)
    assert call["prompt_tokens_details"]["cached_tokens"] == 100
    check_charge(agent)


def test_a_tool_that_writes_a_file(account, tmp_path):
    agent = program(account, tmp_path)
    written = agent.project / "hello.txt"
    call = json.dumps({"filepath": str(written), "content": "Hello from a tool\n"})
    done = start(agent, f"[[sim tool=Write {call}]]", "--auto")
    assert done.returncode == 0 and written.read_text() == "Hello from a tool\n", done
    assert len(usage(agent)) == 2
    check_charge(agent)


def test_no_credit(tmp_path):
    account = operator_api.create_account(credit=None)
    done = start(program(account, tmp_path), "Hello!")
    assert done.returncode == 1
    assert "402" in done.stderr and "credit" in done.stderr
