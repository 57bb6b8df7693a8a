import operator_api
import pytest
from openai import AsyncOpenAI, OpenAI


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
