"""aider, as docs/AGENTS.md starts it, without a person. It is large, so nothing but `run aider` installs it."""

import operator_api
import pytest
from agent_program import HERE, Agent, block, price

pytestmark = pytest.mark.skipif(not (HERE / ".venv-aider").exists(), reason="`run aider` installs it")
QUIET = "--no-git --yes-always --no-pretty --no-show-model-warnings --analytics-disable --no-check-update"
# Its instructions are in a system message, so that the end of the user's message is ours.
SETTINGS = "[{name: openai/svc-light-coding, edit_format: whole, reminder: sys}]"


def start(account, folder, prompt: str):
    agent = Agent(block("aider"), account, folder)
    agent.write(agent.project / ".aider.model.settings.yml", SETTINGS)
    return agent, agent.run("--message", prompt, *QUIET.split())


def test_an_answer_that_writes_a_file(account, tmp_path):
    agent, done = start(account, tmp_path, "Hello, agent! [[sim cached=100]]\n\nhello.txt\n```\nHello!\n```\n")
    assert done.returncode == 0 and "Hello, agent!" in done.stdout, done
    assert (agent.project / "hello.txt").read_text() == "Hello!\n", done
    [call] = operator_api.usage(account)
    # It shows counts of its own.
    cost = price(call["prompt_tokens"], call["cached_tokens"], call["completion_tokens"])
    assert call["cached_tokens"] == 100 and cost == operator_api.nanos(call["cost"])
    assert operator_api.spent_nanos(account) == cost


def test_no_credit(tmp_path):
    """It repeats the request for a minute."""
    account = operator_api.create_account(credit=None)
    _, done = start(account, tmp_path, "Hello!")
    assert "USD of credit" in done.stdout and "Retrying in 32.0 seconds" in done.stdout, done
