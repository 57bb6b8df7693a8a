"""Faults of upstreams: the caller gets an error and pays for no failure."""

import openai
import pytest
from ledger import MODEL, check_ledger
from upstreams import ROWS

CASES = [(row, fault) for row in ROWS if row.faults for fault in row.server.faults(row.unworded)]


def names(value) -> str:
    return value.name


@pytest.mark.parametrize(("row", "fault"), CASES, ids=names)
def test_fault(at, row, fault):
    setup = at(row, timeout=2)
    if fault.order:
        row.server.order(fault.order)
    question = {"model": MODEL, "messages": [{"role": "user", "content": fault.prompt}]}
    received = []

    def call():
        answer = setup.client.chat.completions.create(**question, stream=fault.stream)
        received.extend(answer if fault.stream else [answer])

    if fault.ends == "answered":
        call()
        assert received[-1].choices[0].finish_reason == "stop"
    elif fault.ends == "refused":
        with pytest.raises(openai.InternalServerError) as caught:
            call()
        error = caught.value
        assert (error.status_code, error.type, error.code) == (502, "upstream_error", fault.code)
        assert row.model not in error.message and row.kind.name not in error.message.lower()
        assert received == []
    else:
        with pytest.raises(openai.APIError) as caught:
            call()
        assert (caught.value.code, caught.value.type) == ("stream_interrupted", "upstream_stream_error")
        assert any(chunk.choices[0].delta.content for chunk in received)
        assert {chunk.choices[0].finish_reason for chunk in received} == {None}
    assert setup.exchanges(), "the upstream got a request"
    check_ledger(setup, charged=int(fault.ends == "answered"))


@pytest.mark.parametrize("row", [row for row in ROWS if row.faults], ids=names)
def test_after_a_fault_the_next_call_is_answered(at, row):
    setup = at(row)
    question = {"model": MODEL, "messages": [{"role": "user", "content": "Hello!"}]}
    row.server.order(row.server.faults(row.unworded)[0].order)
    with pytest.raises(openai.InternalServerError):
        setup.client.chat.completions.create(**question)
    row.server.reset()
    assert setup.client.chat.completions.create(**question).choices[0].finish_reason == "stop"
    check_ledger(setup, charged=1)
