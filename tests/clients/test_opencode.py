"""OpenCode, as docs/AGENTS.md sets it up, without a person."""

import json

import operator_api
from agent_program import Agent, block, needs_linux, price

pytestmark = needs_linux
# It would look for a new release, a list of models and a package for plugins.
OFFLINE = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "npm_config_offline": "true"}


def opencode(account, folder) -> Agent:
    agent = Agent(block("OpenCode"), account, folder)
    agent.write(agent.project / "opencode.json", block("OpenCode", "json"))
    return agent


def start(agent: Agent, prompt: str) -> list[dict]:
    """Runs one prompt and returns the events that the program reports."""
    # It puts arguments with spaces into quotes. Without a title it asks the model for one.
    done = agent.run("run", "--format", "json", "--title", "Test", *prompt.split(" "), **OFFLINE)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events, done
    return events


def parts(events: list[dict], kind: str) -> list[dict]:
    return [event["part"] for event in events if event["type"] == kind]


def check_charge(account, events: list[dict]) -> None:
    """What was charged is the price of the tokens that the program was told."""
    steps = [step["tokens"] for step in parts(events, "step_finish")]
    cost = sum(price(step["input"] + step["cache"]["read"], step["cache"]["read"], step["output"]) for step in steps)
    assert cost > 0 and operator_api.spent_nanos(account) == cost


def test_answer(account, tmp_path):
    events = start(opencode(account, tmp_path), "Hello, agent! [[sim cached=1000]]")
    assert "Hello, agent!" in "".join(part["text"] for part in parts(events, "text")), events
    [step] = parts(events, "step_finish")
    assert step["tokens"]["cache"]["read"] == 1_000
    check_charge(account, events)


def test_a_tool_that_writes_a_file(account, tmp_path):
    agent = opencode(account, tmp_path)
    written = agent.project / "hello.txt"
    call = json.dumps({"filePath": str(written), "content": "Hello from a tool\n"})
    events = start(agent, f"[[sim tool=write {call}]]")
    assert written.read_text() == "Hello from a tool\n"
    assert len(parts(events, "step_finish")) == 2
    check_charge(account, events)


def test_no_credit(tmp_path):
    account = operator_api.create_account(credit=None)
    [event] = start(opencode(account, tmp_path), "Hello!")
    assert event["error"]["data"]["statusCode"] == 402
    assert "credit" in event["error"]["data"]["message"]
