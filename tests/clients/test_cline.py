"""Cline's CLI, as docs/AGENTS.md sets it up, without a person."""

import json

import operator_api
from agent_program import Agent, block, needs_linux, price

pytestmark = needs_linux


def start(agent: Agent, prompt: str) -> list[dict]:
    """Runs one prompt and returns the messages that the program reports. The last is the result."""
    # By default it sends telemetry, looks for a new release and leaves a server running.
    settings = {"telemetryOptOut": True, "autoUpdateEnabled": False}
    agent.write(agent.home / ".cline/data/settings/global-settings.json", json.dumps(settings))
    done = agent.run("--json", prompt, CLINE_SESSION_BACKEND_MODE="local")
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert messages, done
    return messages


def check_charge(account, result: dict) -> None:
    """What was charged is the price of the tokens that the program was told."""
    usage = result["usage"]
    cost = price(usage["inputTokens"], usage["cacheReadTokens"], usage["outputTokens"])
    assert cost > 0 and operator_api.spent_nanos(account) == cost


def test_answer(account, tmp_path):
    result = start(Agent(block("Cline"), account, tmp_path), "Hello, agent! [[sim cached=500]]")[-1]
    assert result["finishReason"] == "completed" and "Hello, agent!" in result["text"]
    assert result["usage"]["cacheReadTokens"] == 500
    check_charge(account, result)


def test_a_tool_that_writes_a_file(account, tmp_path):
    agent = Agent(block("Cline"), account, tmp_path)
    written = agent.project / "hello.txt"
    call = json.dumps({"path": str(written), "new_text": "Hello from a tool\n"})
    result = start(agent, f"[[sim tool=editor {call}]]")[-1]
    assert written.read_text() == "Hello from a tool\n"
    assert result["finishReason"] == "completed" and result["iterations"] == 2
    check_charge(account, result)


def test_no_credit(tmp_path):
    account = operator_api.create_account(credit=None)
    result = start(Agent(block("Cline"), account, tmp_path), "Hello, agent!")[-1]
    assert result["finishReason"] == "error" and "credit" in result["text"]
