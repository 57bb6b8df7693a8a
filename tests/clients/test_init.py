"""`tollgate init` at a terminal: what it asks, and what it writes."""

import os
import pty
import select
import stat
import subprocess
import time
import tomllib

import pytest

BIN = os.environ["TOLLGATE_BIN"]
KEY = "sk-a-secret-of-the-provider"


class Terminal:
    """`tollgate init` with a terminal for its input and its questions."""

    def __init__(self, folder):
        self.folder, self.shown = folder, ""
        self.terminal, other = pty.openpty()
        plain = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        self.process = subprocess.Popen(
            [BIN, "init", "--folder", folder], env=plain, stdin=other, stdout=subprocess.PIPE, stderr=other, text=True
        )
        os.close(other)

    def until(self, words):
        """What is shown up to these words."""
        deadline = time.monotonic() + 30
        while words not in self.shown:
            assert time.monotonic() < deadline, f"no {words!r} in {self.shown!r}"
            if select.select([self.terminal], [], [], 0.2)[0]:
                self.shown += os.read(self.terminal, 4096).decode()
        before, self.shown = self.shown.split(words, 1)
        return before + words

    def answer(self, question, answer):
        said = self.until(question)
        os.write(self.terminal, answer.encode() + b"\n")
        return said

    def end(self):
        """What is shown after the last answer, and what is printed."""
        printed, _ = self.process.communicate(timeout=30)
        shown = self.shown
        while select.select([self.terminal], [], [], 0)[0]:
            try:
                shown += os.read(self.terminal, 4096).decode()
            except OSError:  # the other end is closed
                break
        os.close(self.terminal)
        return shown, printed


@pytest.fixture
def terminal(tmp_path):
    return Terminal(tmp_path / "new")


def written(terminal):
    return tomllib.loads((terminal.folder / "tollgate.toml").read_text())


def test_it_asks_for_what_it_needs_and_hides_the_key(terminal):
    providers = terminal.answer("Provider, by number or name [openai]: ", "nobody")
    assert "anthropic" in providers and "compatible" in providers
    assert "There is no such provider." in terminal.answer("[openai]: ", "compatible")
    terminal.answer("The URL of its API", "http://127.0.0.1:9/v1")
    terminal.answer("Its API key", KEY)
    terminal.answer("Its models", "qwen3, llama3.2")
    # It has a key, so what it asks is not guessed.
    terminal.answer("Input: ", "a lot")
    assert "e.g. 0.40" in terminal.answer("Input: ", "0.5")
    terminal.answer("Output: ", "2")
    shown, printed = terminal.end()
    assert terminal.process.returncode == 0, shown
    assert KEY not in shown + printed + terminal.shown
    config = written(terminal)
    assert [model["id"] for model in config["models"]] == ["qwen3", "llama3.2"]
    assert {(model["input"], model["output"]) for model in config["models"]} == {("0.5", "2")}
    key = terminal.folder / "compatible.key"
    assert key.read_text().strip() == KEY and stat.S_IMODE(key.stat().st_mode) == 0o600
    check = subprocess.run([BIN, "check", "--offline", "--config", terminal.folder / "tollgate.toml"], capture_output=True, text=True)
    assert check.returncode == 0, check.stdout + check.stderr


def test_defaults_are_taken_by_return(terminal):
    terminal.answer("Provider, by number or name [openai]: ", "")
    terminal.answer("Its API key", "")
    terminal.answer("Models, separated by commas [", "")
    shown, printed = terminal.end()
    assert terminal.process.returncode == 0, shown
    assert "openai" in written(terminal)["providers"] and "gpt-4o" in printed + shown + str(written(terminal))
    assert (terminal.folder / "openai.key").read_text().strip() == ""


def test_nothing_is_written_by_one_that_is_stopped(terminal):
    terminal.until("Provider, by number or name [openai]: ")
    os.write(terminal.terminal, b"\x04")  # the end of the input
    shown, _ = terminal.end()
    assert terminal.process.returncode != 0 and "nothing was written" in shown
    assert not (terminal.folder / "tollgate.toml").exists()
