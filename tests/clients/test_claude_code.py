"""Claude Code, as docs/AGENTS.md starts it, without a person."""

import json

import operator_api
import pytest
from agent_program import ORIGIN, Agent, block, price

# By default it asks for a `claude-…`, which is an alias of `svc-max-coding`.
UNCONFIGURED = f'export ANTHROPIC_BASE_URL="{ORIGIN}" ANTHROPIC_AUTH_TOKEN="YOUR_API_KEY"\nclaude'


def start(agent: Agent, prompt: str, *arguments: str, **variables: str) -> dict:
    """Runs one prompt and returns what the program reports about it."""
    done = agent.run("-p", prompt, "--output-format", "json", *arguments, **variables)
    assert done.stdout.startswith("{"), done
    return json.loads(done.stdout)


def check_charge(account, reported: dict, model: str) -> None:
    """What was charged is the price of the tokens that the program was told, and it is in its session."""
    usage = reported["usage"]
    cached = usage["cache_read_input_tokens"]
    cost = price(usage["input_tokens"] + cached, cached, usage["output_tokens"], model)
    assert cost > 0 and usage["cache_creation_input_tokens"] == 0
    assert operator_api.spent_nanos(account) == cost
    [session] = operator_api.sessions(account)
    assert (session["client"], session["session"]) == ("claude-code", reported["session_id"])
    assert operator_api.nanos(session["cost"]) == cost
    assert session["completion_tokens"] == usage["output_tokens"]


@pytest.mark.parametrize(
    ("script", "model"),
    [(UNCONFIGURED, "svc-max-coding"), (block("Claude Code"), "svc-light-coding")],
    ids=["unconfigured", "documented"],
)
def test_answer(account, tmp_path, script, model):
    reported = start(Agent(script, account, tmp_path), "Hello, agent! [[sim cached=1000]]")
    assert not reported["is_error"] and "Hello, agent!" in reported["result"]
    assert reported["usage"]["cache_read_input_tokens"] == 1_000
    check_charge(account, reported, model)


def test_a_tool_that_writes_a_file(account, tmp_path):
    agent = Agent(UNCONFIGURED, account, tmp_path)
    written = agent.project / "hello.txt"
    call = json.dumps({"file_path": str(written), "content": "Hello from a tool\n"})
    reported = start(agent, f"[[sim tool=Write {call}]]", "--permission-mode", "acceptEdits")
    assert written.read_text() == "Hello from a tool\n"
    assert not reported["is_error"] and reported["num_turns"] == 2
    check_charge(account, reported, "svc-max-coding")


def test_no_credit(tmp_path):
    account = operator_api.create_account(credit=None)
    reported = start(Agent(UNCONFIGURED, account, tmp_path), "Hello!")
    assert reported["is_error"] and "402" in reported["result"]
    # The message has the address of the page where credit can be bought.
    assert f"{ORIGIN}/portal" in reported["result"]


def test_a_rate_limit(account, tmp_path):
    operator_api.set_limit(account, "svc-max-coding", tpm=1_000)
    reported = start(Agent(UNCONFIGURED, account, tmp_path), "Hello!")
    # Such a request never fits, so the program is told not to wait.
    assert reported["is_error"] and "429" in reported["result"]
    assert operator_api.spent_nanos(account) == 0


def test_a_stream_that_breaks_off(account, tmp_path):
    agent = Agent(UNCONFIGURED, account, tmp_path)
    # It repeats the request unstreamed, which fails too; further repetitions would only take time.
    reported = start(agent, "[[sim drop_after=3]]", CLAUDE_CODE_MAX_RETRIES="0")
    assert reported["is_error"]
    assert operator_api.spent_nanos(account) == 0
