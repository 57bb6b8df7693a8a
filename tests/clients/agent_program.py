"""Runs coding agents as docs/AGENTS.md says, without a person, each in a home of its own."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import operator_api

HERE = Path(__file__).parent
PAGE = (HERE.parent.parent / "docs/AGENTS.md").read_text()
ORIGIN = os.environ["OPENAI_BASE_URL"].removesuffix("/v1")


def block(heading: str, language: str = "bash") -> str:
    """The first block of a section, with the gateway's address in it."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    text = re.search(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[1]
    return text.replace("https://gateway.example", ORIGIN).strip()


class Agent:
    """An agent that works in an empty folder, with the key of an account."""

    def __init__(self, script: str, account: operator_api.Account, folder: Path):
        self.script = script.replace("YOUR_API_KEY", account.key)
        self.home, self.project = folder / "home", folder / "project"
        self.home.mkdir()
        self.project.mkdir()

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
        # Of our environment only what a program needs to run: no keys, addresses or settings.
        environment = {
            "PATH": f"{HERE / 'node_modules/.bin'}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "NO_PROXY": "127.0.0.1",
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
