"""Runs coding agents as docs/AGENTS.md says, without a person, each in a home of its own."""

import os
import platform
import re
import shlex
import subprocess
from pathlib import Path

import operator_api
import pytest

HERE = Path(__file__).parent
# npm links no program of OpenCode's package for one platform.
PROGRAMS = ("node_modules/.bin", "node_modules/opencode-linux-x64/bin", ".venv-aider/bin")
PAGE = (HERE.parent.parent / "docs/AGENTS.md").read_text()
ORIGIN = os.environ["OPENAI_BASE_URL"].removesuffix("/v1")
# Nano-dollars per token: input, cached input, output.
PRICES = {"svc-light-coding": (200, 20, 760), "svc-max-coding": (2_000, 200, 10_000)}
# OpenCode and Cline are one package per platform, and these are the ones that package.json names.
needs_linux = pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="installed on Linux with x86-64 only"
)


def block(heading: str, language: str = "bash") -> str:
    """The first block of a section, with the gateway's address in it."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    text = re.search(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[1]
    return text.replace("https://gateway.example", ORIGIN).strip()


def price(prompt: int, cached: int, completion: int, model: str = "svc-light-coding") -> int:
    """What a call costs, in nano-dollars. The cached tokens are part of the prompt's."""
    return sum(price * count for price, count in zip(PRICES[model], (prompt - cached, cached, completion)))


class Agent:
    """An agent that works in an empty folder, with the key of an account."""

    def __init__(self, script: str, account: operator_api.Account, folder: Path):
        self.account = account
        self.script = self.filled(script)
        self.home, self.project = folder / "home", folder / "project"
        self.home.mkdir()
        self.project.mkdir()

    def filled(self, text: str) -> str:
        return text.replace("YOUR_API_KEY", self.account.key)

    def write(self, path: Path, text: str) -> None:
        """Writes a file of settings."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.filled(text))

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
        # Of our environment only what a program needs to run: no keys, addresses or settings.
        environment = {
            "PATH": ":".join([*(str(HERE / folder) for folder in PROGRAMS), os.environ["PATH"]]),
            "HOME": str(self.home),
            # Nobody listens at the proxy's address, so that nothing but the gateway is reached.
            "HTTPS_PROXY": "http://127.0.0.1:1",
            "NO_PROXY": "127.0.0.1",
            "NODE_USE_ENV_PROXY": "1",
            **variables,
        }
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"{self.script} {shlex.join(arguments)}"],
            cwd=self.project,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
