"""Codex, as docs/AGENTS.md starts it, without a person."""

import json

import operator_api
import pytest
from agent_program import Agent, block, price

DOCUMENTED = block("Codex")
# It asks for a `gpt-…`, which is an alias of `svc-max-coding`.
UNCONFIGURED = DOCUMENTED.replace('-c model="svc-light-coding" ', "")
# Its own sandbox needs a kernel that allows it, which a container may not have.
EXEC = ("exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")


def start(agent: Agent, prompt: str, *arguments: str) -> list[dict]:
    """Runs one prompt and returns the events that the program reports."""
    done = agent.run(*EXEC, *arguments, prompt)
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert events, done
    return events


def of_type(events: list[dict], kind: str) -> list[dict]:
    return [event for event in events if event["type"] == kind]


def answer(events: list[dict]) -> str:
    items = [event["item"] for event in of_type(events, "item.completed")]
    return [item["text"] for item in items if item["type"] == "agent_message"][-1]


def problem(events: list[dict]) -> str:
    [failed] = of_type(events, "turn.failed")
    return failed["error"]["message"]


def check_charge(account, events: list[dict], model: str) -> None:
    """What was charged is the price of the tokens that the program was told, and it is in its session."""
    [turn] = of_type(events, "turn.completed")
    [thread] = of_type(events, "thread.started")
    usage = turn["usage"]
    cost = price(usage["input_tokens"], usage["cached_input_tokens"], usage["output_tokens"], model)
    assert cost > 0 and operator_api.spent_nanos(account) == cost
    [session] = operator_api.sessions(account)
    assert session["client"].startswith("codex") and session["session"] == thread["thread_id"]
    assert operator_api.nanos(session["cost"]) == cost


@pytest.mark.parametrize(
    ("script", "model"),
    [(UNCONFIGURED, "svc-max-coding"), (DOCUMENTED, "svc-light-coding")],
    ids=["unconfigured", "documented"],
)
def test_answer(account, tmp_path, script, model):
    events = start(Agent(script, account, tmp_path), "Hello, agent! [[sim cached=1000]]")
    assert "Hello, agent!" in answer(events)
    check_charge(account, events, model)


def test_a_tool_that_writes_a_file(account, tmp_path):
    agent = Agent(DOCUMENTED, account, tmp_path)
    call = json.dumps({"cmd": "echo Hello from a tool > hello.txt"})
    events = start(agent, f"[[sim tool=exec_command {call}]]")
    assert (agent.project / "hello.txt").read_text() == "Hello from a tool\n"
    check_charge(account, events, "svc-light-coding")


def test_no_credit(tmp_path):
    account = operator_api.create_account(credit=None)
    agent = Agent(DOCUMENTED, account, tmp_path)
    events = start(agent, "Hello!", *once())
    assert "402" in problem(events) and "credit" in problem(events)


def test_a_rate_limit(account, tmp_path):
    operator_api.set_limit(account, "svc-light-coding", tpm=1_000)
    events = start(Agent(DOCUMENTED, account, tmp_path), "Hello!", *once())
    assert problem(events)
    assert operator_api.spent_nanos(account) == 0


def test_a_stream_that_breaks_off(account, tmp_path):
    events = start(Agent(DOCUMENTED, account, tmp_path), "[[sim drop_after=3]]", *once())
    assert "stream disconnected" in problem(events) and "broke off" in problem(events)
    assert operator_api.spent_nanos(account) == 0


def once() -> list[str]:
    """Settings by which the program does not repeat a request that failed."""
    names = ("request_max_retries", "stream_max_retries")
    return [part for name in names for part in ("-c", f"model_providers.tollgate.{name}=0")]
