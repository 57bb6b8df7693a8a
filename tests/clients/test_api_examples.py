"""Every example of docs/API.md, and those of the README that need no model server, run as written."""

import contextlib
import io
import json
import re
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Fields that differ every time.
VARIES = {"id", "created", "created_at", "completed_at", "request_url"}


def blocks(name: str) -> list[tuple[str, str, str]]:
    """The fenced code blocks of a page: their position, language and text."""
    page = (ROOT / name).read_text()
    places = ((match, page.count("\n", 0, match.start()) + 1) for match in FENCE.finditer(page))
    return [(f"{name}:{line}", match[1], match[2]) for match, line in places]


def pairs(name: str) -> list:
    """Each example with the output block after it."""
    all_blocks = blocks(name)
    found = []
    for (place, language, code), (_, answer_language, answer) in zip(all_blocks, all_blocks[1:]):
        if language in ("bash", "python", "console") and answer_language in ("json", "text"):
            found.append(pytest.param(language, code, answer_language, answer, id=place))
    return found


RUNNERS = {
    "bash": ["bash", "-euo", "pipefail"],
    "js": [str(HERE / "node_modules/.bin/node"), "--input-type=module", "-"],
}


@pytest.fixture
def run(account, monkeypatch):
    """Runs an example with its own key and returns its output."""
    monkeypatch.setenv("OPENAI_API_KEY", account.key)

    def run(language: str, code: str) -> str:
        if language == "python":
            # In this process, because loading the library in a new one takes a second.
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(code, {"__name__": "__main__"})
            return printed.getvalue()
        command = RUNNERS[language]
        done = subprocess.run(command, input=code, cwd=HERE, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run


def check_text(written: str, got: str) -> None:
    """Whether the text matches; `…` matches anything."""
    parts = (re.escape(part) for part in written.strip().split("…"))
    assert re.fullmatch(".*?".join(parts), got.strip(), re.DOTALL), got


def check_json(written, got, path: str = "$") -> None:
    """Asserts equal keys, types and values, except for fields that differ every time."""
    assert type(written) is type(got), path
    match written:
        case dict():
            assert list(written) == list(got), path
            for key, value in written.items():
                if key in VARIES:
                    assert type(value) is type(got[key]), f"{path}.{key}"
                else:
                    check_json(value, got[key], f"{path}.{key}")
        case list():
            assert len(written) == len(got), path
            for at, (value, other) in enumerate(zip(written, got)):
                check_json(value, other, f"{path}[{at}]")
        case _:
            assert written == got, path


def check_answer(language: str, written: str, got: str) -> None:
    if language == "json":
        check_json(json.loads(written), json.loads(got))
    else:
        check_text(written, got)


def test_every_block_of_the_api_page_is_an_example_or_its_answer():
    languages = [language for _, language, _ in blocks("docs/API.md")]
    examples, answers = languages[::2], languages[1::2]
    assert set(examples) == {"bash", "python"} and set(answers) == {"json", "text"}
    assert len(examples) == len(answers) == len(pairs("docs/API.md")) > 10


@pytest.mark.parametrize(("language", "code", "answer_language", "answer"), pairs("docs/API.md"))
def test_api(run, language, code, answer_language, answer):
    check_answer(answer_language, answer, run(language, code))


def shell(console: str) -> str:
    """The commands at the prompts, without those that load settings, which are already set."""
    lines = (line.removeprefix("$ ") for line in console.splitlines())
    return "\n".join(line for line in lines if not line.startswith("set -a"))


README = [pair for pair in pairs("README.md") if "data-local" not in pair.values[1]]


@pytest.mark.parametrize(("language", "code", "answer_language", "answer"), README)
def test_readme(run, language, code, answer_language, answer):
    check_answer(answer_language, answer, run("bash", shell(code).replace("curl ", "curl -s ")))


@pytest.mark.parametrize("language", ["python", "js"])
def test_the_programs_of_the_readme(run, language):
    [program] = [code for _, written, code in blocks("README.md") if written == language]
    assert "Tell me a story." in run(language, program)


CLIENTS = [pytest.param(language, code, id=place) for place, language, code in blocks("docs/CLIENTS.md") if language != "console"]


@pytest.mark.parametrize(("language", "code"), CLIENTS)
def test_the_programs_for_clients(run, language, code):
    assert "Tell me a story." in run(language, code)
