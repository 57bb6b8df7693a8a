"""The official Python library: every failure raises the right class with the right fields."""

import openai
import operator_api
import pytest
from openai import APIStatusError, DefaultHttpxClient, OpenAI

MODEL = "svc-native-fast"


def ask(text: str = "Hi", model: str = MODEL, **more) -> dict:
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


def failure(kind, action, status, type, code):
    """The error that `action` raises: exactly of this class, with these fields and a request ID."""
    with pytest.raises(openai.APIError) as caught:
        action()
    error = caught.value
    assert error.__class__ is kind
    assert (error.status_code, error.type, error.code) == (status, type, code)
    assert error.body["message"] and error.request_id
    return error


def chat(client, **request):
    return lambda: client.chat.completions.create(**request)


@pytest.fixture
def counted(account):
    """A client with the default retries, and the list of its requests."""
    requests = []
    http = DefaultHttpxClient(event_hooks={"request": [requests.append]})
    with OpenAI(api_key=account.key, timeout=30, http_client=http) as client:
        yield client, requests


@pytest.fixture
def free():
    with OpenAI(api_key=operator_api.create_account("personal", "free").key, max_retries=0) as client:
        yield client


@pytest.mark.parametrize("key", ["sk-wrong", "sk-svc-" + "x" * 48])
def test_invalid_key(client, key):
    wrong = client.with_options(api_key=key)
    failure(openai.AuthenticationError, chat(wrong, **ask()), 401, "authentication_error", "invalid_api_key")


def test_missing_key(client):
    action = chat(client, **ask(extra_headers={"Authorization": openai.omit}))
    failure(openai.AuthenticationError, action, 401, "authentication_error", "missing_api_key")


async def test_invalid_key_async(async_client):
    with pytest.raises(openai.AuthenticationError) as caught:
        await async_client.with_options(api_key="sk-wrong").chat.completions.create(**ask())
    assert caught.value.code == "invalid_api_key"


@pytest.mark.parametrize("model, required", [("svc-flex-beta-3.6", "flex"), ("svc-pro", "pro")])
def test_plan_lacks_the_model(free, model, required):
    action = chat(free, **ask(model=model))
    error = failure(openai.PermissionDeniedError, action, 403, "tier_upgrade_required", "forbidden")
    body = error.body
    assert (body["current_tier"], body["required_tier"], body["model"]) == ("free", required, model)
    assert body["upgrade_url"].startswith("http")


def test_models_outside_the_plan_are_invisible(free):
    listed = {model.id for model in free.models.list()}
    assert MODEL in listed and "svc-pro" not in listed and "svc-flex-beta-3.6" not in listed
    with pytest.raises(openai.NotFoundError) as caught:
        free.models.retrieve("svc-flex-beta-3.6")
    assert caught.value.code == "model_not_found"


def test_closed_account():
    account = operator_api.create_account()
    with OpenAI(api_key=account.key, max_retries=0) as client:
        client.chat.completions.create(**ask())
        operator_api.close_account(account)
        error = failure(APIStatusError, chat(client, **ask()), 402, "no_account", "payment_required")
    assert isinstance(error.body["balance"], str)
    assert error.body["billing_url"].startswith("http")


def test_unknown_model(client):
    action = chat(client, **ask(model="svc-unknown"))
    error = failure(openai.NotFoundError, action, 404, "invalid_request_error", "model_not_found")
    assert error.param == "model"


def test_routes_not_served(client):
    for action in [
        lambda: client.embeddings.create(model=MODEL, input="Hi"),
        lambda: client.moderations.create(input="Hi"),
        lambda: client.completions.create(model=MODEL, prompt="Hi"),
        lambda: client.images.generate(prompt="Hi"),
        lambda: client.audio.transcriptions.create(model=MODEL, file=("a.wav", b"RIFF")),
        lambda: client.files.create(file=("a.txt", b"Hi"), purpose="assistants"),
        lambda: client.fine_tuning.jobs.create(model=MODEL, training_file="f"),
    ]:
        failure(openai.NotFoundError, action, 404, "not_found", "route_not_found")


@pytest.mark.parametrize(
    "request_, param",
    [
        (ask(model="svc-flex-beta-3.6", max_tokens=127), "max_tokens"),
        (ask(model="svc-flex-beta-3.6", max_completion_tokens=127), "max_completion_tokens"),
        (ask(max_tokens=66_001), "max_tokens"),
        (ask(temperature=3), "temperature"),
        (ask(web_search_options={}), "web_search_options"),
        ({"model": MODEL, "messages": []}, "messages"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_request(client, request_, param):
    error = failure(openai.BadRequestError, chat(client, **request_), 400, "invalid_request_error", None)
    assert error.param == param


@pytest.mark.parametrize("stream", [False, True])
def test_upstream_failure(client, stream):
    action = chat(client, **ask("[[sim status=529]]"), stream=stream)
    failure(openai.InternalServerError, action, 502, "upstream_error", "529")


def test_upstream_failure_is_retried(counted):
    client, requests = counted
    action = chat(client.with_options(max_retries=1), **ask("[[sim status=503]]"))
    failure(openai.InternalServerError, action, 502, "upstream_error", "503")
    assert len(requests) == 2


def test_upstream_refusal_is_not_retried(counted):
    client, requests = counted
    error = failure(openai.InternalServerError, chat(client, **ask("[[sim status=400]]")), 502, "upstream_error", "400")
    assert client.max_retries == 2
    assert error.response.headers["x-should-retry"] == "false"
    assert len(requests) == 1


def check_interrupted(error, received):
    assert error.__class__ is openai.APIError
    assert (error.code, error.type) == ("stream_interrupted", "upstream_stream_error")
    assert received[0].choices[0].delta.role == "assistant"
    pieces = [chunk.choices[0].delta.content for chunk in received]
    assert len([piece for piece in pieces if piece]) == 3
    assert {chunk.choices[0].finish_reason for chunk in received} == {None}


def test_interrupted_stream(counted):
    client, requests = counted
    received = []
    with pytest.raises(openai.APIError) as caught:
        for chunk in client.chat.completions.create(**ask("[[sim drop_after=3]]"), stream=True):
            received.append(chunk)
    check_interrupted(caught.value, received)
    assert len(requests) == 1


async def test_interrupted_stream_async(async_client):
    received = []
    with pytest.raises(openai.APIError) as caught:
        async for chunk in await async_client.chat.completions.create(**ask("[[sim drop_after=3]]"), stream=True):
            received.append(chunk)
    check_interrupted(caught.value, received)


def test_interrupted_stream_through_the_helper(client):
    with pytest.raises(openai.APIError) as caught:
        with client.chat.completions.stream(**ask("[[sim drop_after=3]]")) as stream:
            stream.get_final_completion()
    assert caught.value.code == "stream_interrupted"


def test_requests_a_minute(account):
    operator_api.set_limit(account, MODEL, rpm=1)
    with OpenAI(api_key=account.key, max_retries=0) as client:
        client.chat.completions.create(**ask())
        error = failure(
            openai.RateLimitError, chat(client, **ask()), 429, "rate_limit_exceeded", "rpm_exceeded"
        )
    headers = error.response.headers
    assert 1 <= int(headers["retry-after"]) <= 60
    assert (headers["x-ratelimit-limit"], headers["x-ratelimit-remaining"]) == ("1", "0")


def test_tokens_a_minute(account):
    operator_api.set_limit(account, MODEL, tpm=5_000)
    with OpenAI(api_key=account.key, max_retries=0) as client:
        client.chat.completions.create(**ask(max_tokens=4_000))
        failure(
            openai.RateLimitError,
            chat(client, **ask(max_tokens=5_000)),
            429,
            "rate_limit_exceeded",
            "tpm_exceeded",
        )
