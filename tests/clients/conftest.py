import os

import operator_api
import pytest
from anthropic import Anthropic, AsyncAnthropic
from collector import Collector
from openai import AsyncOpenAI, OpenAI

# Anthropic's clients append `/v1` themselves.
os.environ["ANTHROPIC_BASE_URL"] = os.environ["OPENAI_BASE_URL"].removesuffix("/v1")


@pytest.fixture
def account():
    return operator_api.create_account()


@pytest.fixture
def client(account):
    with OpenAI(api_key=account.key, max_retries=0, timeout=30) as client:
        yield client


@pytest.fixture
async def async_client(account):
    async with AsyncOpenAI(api_key=account.key, max_retries=0, timeout=30) as client:
        yield client


@pytest.fixture
def anthropic_client(account):
    with Anthropic(api_key=account.key, max_retries=0, timeout=30) as client:
        yield client


@pytest.fixture
async def async_anthropic_client(account):
    async with AsyncAnthropic(api_key=account.key, max_retries=0, timeout=30) as client:
        yield client


@pytest.fixture
def collector():
    collector = Collector()
    yield collector
    collector.close()
