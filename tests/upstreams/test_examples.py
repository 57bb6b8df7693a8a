"""The gateway starts with every example of a provider in the documentation.

It is stopped as soon as it logs that it is ready, and must handle that signal too.
"""

import json
import re

import pytest
from gateway import Gateway
from upstreams import HERE

DOCS = (HERE / "../../docs").resolve()
PAGES = [page for page in (DOCS / "PROVIDERS.md", *DOCS.glob("providers/*.md")) if page.is_file()]
BLOCKS = [
    block
    for page in PAGES
    for block in re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.M | re.S)
    if "[providers." in block
]

# Of a person at Google; any text is a secret of an application.
CREDENTIALS = {"type": "authorized_user", "client_id": "id", "client_secret": "secret", "refresh_token": "token"}


def test_there_are_examples():
    assert len(BLOCKS) >= 9


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: re.search(r"providers\.(\w+)", block)[1])
def test_example(tmp_path, block):
    keys = {name: f"sk-of-{name}" for name in re.findall(r'api_key_env = "(\w+)"', block)}
    for name in re.findall(r'_file = "([\w.-]+)"', block):
        (tmp_path / name).write_text(json.dumps(CREDENTIALS))
    Gateway(tmp_path, block, keys).stop()
