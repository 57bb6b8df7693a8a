"""Traces and metrics over OTLP, decoded with OpenTelemetry's own messages."""

import json
import time
import urllib.error
import urllib.request

import pytest
from collector import attributes
from openai import APIStatusError, OpenAI
from traced import MODEL, SECRET, TOOL_MODEL, ask, create, gateway, one, provided, trace_parent, until


def test_the_spans_of_a_request_join_the_trace_of_its_client(tmp_path, collector):
    with gateway(
        tmp_path,
        collector,
        OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=test,team=a%20b",
        OTEL_EXPORTER_OTLP_HEADERS="x-collector-key=hidden",
    ) as running:
        trace, span, headers = trace_parent()
        answer = ask(running, headers=headers | {"tracestate": "vendor=1"}, max_tokens=50, temperature=0.5)
        spans = collector.trace(trace)
        request = one(spans["POST /v1/chat/completions"])
        usage = json.loads(running.operator(f"/operator/accounts/{request['tollgate.account.id']}/usage"))["data"]
        ledger = next(call for call in usage if call["request_id"] == answer._request_id)
    assert (request.parent, request.kind, request.state) == (span, 2, "vendor=1")
    assert request["http.response.status_code"] == 200 and request["http.route"] == "/v1/chat/completions"
    assert request["tollgate.request.id"] == answer._request_id
    assert request["client.address"] == "127.0.0.1"
    assert request.resource["service.name"] == "tollgate" and request.resource["team"] == "a b"
    admit, chat, charge = one(spans["admit"]), one(spans[f"chat {MODEL}"]), one(spans["charge"])
    for inner in (admit, chat, charge):
        assert inner.parent == request.id and request.start <= inner.start <= inner.end, inner
    assert chat.kind == 3 and chat["gen_ai.operation.name"] == "chat" and chat["gen_ai.provider.name"] == "simulator"
    assert chat["gen_ai.request.model"] == MODEL and chat["gen_ai.response.model"]
    assert (chat["gen_ai.request.max_tokens"], chat["gen_ai.request.temperature"]) == (50, 0.5)
    assert chat["gen_ai.response.finish_reasons"] == ["stop"]
    usage = (chat["gen_ai.usage.input_tokens"], chat["gen_ai.usage.output_tokens"])
    assert usage == (answer.usage.prompt_tokens, answer.usage.completion_tokens)
    assert admit["tollgate.hold.nano_usd"] >= charge["tollgate.charge.nano_usd"] > 0
    assert charge["tollgate.charge.nano_usd"] == round(float(ledger["cost"]) * 1_000_000_000)
    assert charge["tollgate.outcome"] == "answered" and charge["tollgate.call.id"] == ledger["id"]
    assert collector.headers[0]["x-collector-key"] == "hidden" and "hidden" not in running.log()
    assert not any(SECRET.encode() in body for body in collector.bodies)
    key = running.settings["OPENAI_API_KEY"].encode()
    assert not any(key in body for body in collector.bodies)


def test_a_stream_and_a_tool_step_have_their_spans(tmp_path, collector):
    with gateway(tmp_path, collector) as running:
        trace, _, headers = trace_parent()
        text = "[[sim tokens=20 first_ms=30 delay_ms=2 cached=5]]"
        chunks = list(ask(running, text, headers, stream=True, stream_options={"include_usage": True}))
        spans = collector.trace(trace)
        chat = one(spans[f"chat {MODEL}"])
        assert chat["gen_ai.request.stream"] is True and 0.02 < chat["gen_ai.response.time_to_first_chunk"] < 10
        assert chat["gen_ai.usage.output_tokens"] == chunks[-1].usage.completion_tokens == 20
        assert chat["gen_ai.usage.cache_read.input_tokens"] == 5
        assert chat.end - chat.start > 40_000_000, "it lasts as long as the stream"

        trace, _, headers = trace_parent()
        ask(running, '[[sim tool=convert_units {"amount":"1","from":"ether","to":"gwei"}]]', headers, model=TOOL_MODEL)
        spans = collector.trace(trace)
        tool = one(spans["execute_tool convert_units"])
        assert tool["gen_ai.tool.name"] == "convert_units" and not tool.failed
        first, second = spans[f"chat {TOOL_MODEL}"]
        assert first["gen_ai.response.finish_reasons"] == ["tool_calls"] and first.end <= tool.start
        assert second["gen_ai.response.finish_reasons"] == ["stop"] and tool.end <= second.start
        whole = first["gen_ai.usage.input_tokens"] + second["gen_ai.usage.input_tokens"]
        assert one(spans["charge"])["tollgate.charge.input_tokens"] == whole


def test_what_fails_says_why(tmp_path, collector):
    with gateway(tmp_path, collector) as running:
        trace, _, headers = trace_parent()
        with pytest.raises(APIStatusError):
            ask(running, "[[sim status=503]]", headers)
        spans = collector.trace(trace, "release")
        chat = spans[f"chat {MODEL}"][0]
        assert chat.failed and chat["error.type"] == "status" and chat["http.response.status_code"] == 503
        assert one(spans["release"])["tollgate.outcome"] == "provider_failed"
        request = one(spans["POST /v1/chat/completions"])
        assert request.failed and request["http.response.status_code"] == 502

        trace, _, headers = trace_parent()
        with pytest.raises(APIStatusError):
            ask(running, model="no-such-model", headers=headers)
        spans = collector.trace(trace, "POST /v1/chat/completions")
        request = one(spans["POST /v1/chat/completions"])
        assert request["tollgate.error.code"] == "model_not_found" and not request.failed
        assert list(spans) == ["POST /v1/chat/completions"], "nothing was admitted"


def test_reasoning_caches_sessions_and_routes_are_told(tmp_path, collector):
    with gateway(tmp_path, collector) as running:
        trace, _, headers = trace_parent()
        ask(running, "[[sim reasoning=7 cache_write=3]]", headers | {"x-claude-code-session-id": "session-1"})
        chat = one(collector.trace(trace)[f"chat {MODEL}"])
        assert chat["gen_ai.usage.reasoning.output_tokens"] == 7 < chat["gen_ai.usage.output_tokens"]
        assert chat["gen_ai.usage.cache_creation.input_tokens"] == 3
        assert chat["gen_ai.conversation.id"] == "session-1"
        assert "tollgate.route.reason" not in chat.attributes

        trace, _, headers = trace_parent()
        routed = ask(running, headers=headers, model="svc-hybrid-cost")
        chat = one(collector.trace(trace)["chat svc-hybrid-cost"])
        decision = json.loads(running.operator(f"/operator/requests/{routed._request_id}"))["decision"]
        assert chat["tollgate.route.hybrid"] == decision["hybrid"] == "svc-hybrid-cost"
        assert chat["tollgate.route.reason"] == decision["reason"]
        assert chat["gen_ai.request.model"] == "svc-hybrid-cost" != chat["tollgate.model"]


def test_a_refusal_names_its_budget(tmp_path, collector):
    with gateway(tmp_path, collector) as running:
        trace, _, headers = trace_parent()
        ask(running, headers=headers)
        account = one(collector.trace(trace)["POST /v1/chat/completions"])["tollgate.account.id"]
        key = create(running, f"/operator/accounts/{account}/keys", name="small")
        budget = {"account": account, "scope": "key", "id": key["id"], "amount": "0.000001", "period": "day"}
        running.operator("/operator/budgets", "PUT", budget)
        running.client = OpenAI(api_key=key["key"], base_url=running.settings["OPENAI_BASE_URL"], max_retries=0, timeout=30)
        trace, _, headers = trace_parent()
        with pytest.raises(APIStatusError) as refused:
            ask(running, headers=headers)
        spans = collector.trace(trace, "admit")
    admit = one(spans["admit"])
    assert (admit["tollgate.budget.scope"], admit["tollgate.budget.scope_id"]) == ("key", key["id"])
    assert admit["tollgate.budget.id"] == refused.value.body["budget"]["id"]
    assert admit.failed and admit["error.type"] == refused.value.code
    assert sorted(spans) == ["POST /v1/chat/completions", "admit"], "no provider was asked"


def test_prompts_are_there_only_if_the_operator_wants_them(tmp_path, collector):
    with gateway(tmp_path, collector, OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="true") as running:
        for stream in (False, True):
            trace, _, headers = trace_parent()
            answer = ask(running, headers=headers, stream=stream)
            said = "".join(chunk.choices[0].delta.content or "" for chunk in answer) if stream else answer.choices[0].message.content
            chat = one(collector.trace(trace)[f"chat {MODEL}"])
            messages = json.loads(chat["gen_ai.input.messages"])
            assert messages[-1] == {"role": "user", "parts": [{"type": "text", "content": SECRET}]}
            [output] = json.loads(chat["gen_ai.output.messages"])
            assert output == {"role": "assistant", "parts": [{"type": "text", "content": said}], "finish_reason": "stop"}


def test_a_streamed_call_of_a_tool_is_recorded_like_one_that_is_not_streamed(tmp_path, collector):
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    text = '[[sim tool=look {"at":"it"}]]'
    with gateway(tmp_path, collector, OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="true") as running:
        said = []
        for stream in (False, True):
            trace, _, headers = trace_parent()
            answer = ask(running, text, headers, tools=[tool], stream=stream)
            if stream:
                list(answer)
            [output] = json.loads(one(collector.trace(trace)[f"chat {MODEL}"])["gen_ai.output.messages"])
            [call] = [part for part in output["parts"] if part["type"] == "tool_call"]
            assert call.pop("id")
            said.append(call)
            assert output["finish_reason"] == "tool_calls"
    assert said == [{"type": "tool_call", "name": "look", "arguments": '{"at":"it"}'}] * 2


def test_a_tool_that_fails_does_not_give_its_arguments_away(tmp_path, collector):
    with gateway(tmp_path, collector) as running:
        trace, _, headers = trace_parent()
        arguments = json.dumps({"amount": SECRET, "from": "ether", "to": "gwei"})
        ask(running, f"[[sim tool=convert_units {arguments}]]", headers, model=TOOL_MODEL)
        tool = one(collector.trace(trace)["execute_tool convert_units"])
    assert tool.failed and tool["error.type"] == "bad_arguments"
    assert not any(SECRET.encode() in body for body in collector.bodies)


def test_a_client_that_leaves_is_no_error_of_the_server(tmp_path, collector):
    with gateway(tmp_path, collector) as running:
        trace, _, headers = trace_parent()
        stream = ask(running, "[[sim tokens=600 delay_ms=5]]", headers, stream=True)
        next(iter(stream))
        stream.close()
        request = one(collector.trace(trace)["POST /v1/chat/completions"])
    assert request["tollgate.client_left"] is True and not request.failed


def test_a_method_that_nobody_knows_makes_no_name(tmp_path, collector):
    with gateway(tmp_path, collector) as running:
        trace, _, headers = trace_parent()
        url = running.settings["OPENAI_BASE_URL"] + "/models"
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(urllib.request.Request(url, headers=headers, method="SURPRISE"), timeout=10)
        [[request]] = collector.trace(trace, "HTTP /v1/models").values()
    assert request["http.request.method"] == "_OTHER"


def test_a_collector_that_never_answers_does_not_hold_up_the_stop(tmp_path, collector):
    with gateway(tmp_path, collector) as running:

        def seconds(flags):
            began = time.monotonic()
            for _ in range(20):
                ask(running, headers=trace_parent(flags)[2])
            return time.monotonic() - began

        ask(running)
        unrecorded = seconds("00")
        collector.hold()
        waits = collector.requests
        until(lambda: collector.requests > waits, running.log)
        # One request that waited for the collector would take ten seconds.
        assert seconds("01") < 3 * unrecorded + 3
        began = time.monotonic()
    # The last ones may take five seconds.
    assert time.monotonic() - began < 15
    assert "cut off" not in running.log()


def test_what_is_not_sampled_is_passed_on_and_not_recorded(tmp_path, collector):
    with gateway(tmp_path, collector) as running:
        _, _, unsampled = trace_parent("00")
        ask(running, headers=unsampled)
        trace, _, sampled = trace_parent()
        ask(running, headers=sampled)
        collector.trace(trace)
    assert {span.trace for span in collector.spans} == {trace}


def test_no_trace_is_recorded_but_those_of_clients(tmp_path, collector):
    with gateway(tmp_path, collector, OTEL_TRACES_SAMPLER="parentbased_traceidratio", OTEL_TRACES_SAMPLER_ARG="0") as running:
        ask(running)
        trace, _, sampled = trace_parent()
        ask(running, headers=sampled)
        collector.trace(trace)
    assert {span.trace for span in collector.spans} == {trace}


def test_metrics_have_the_names_of_the_conventions_and_ours(tmp_path, collector):
    with gateway(tmp_path, collector, OTEL_TRACES_EXPORTER="none") as running:
        usage = [ask(running).usage for _ in range(2)]
        streamed = list(ask(running, stream=True, stream_options={"include_usage": True}))
        usage.append(streamed[-1].usage)
        # A request counts as one once its last byte is sent, which a client may have by then.
        counted = 'tollgate_requests_total{route="/v1/chat/completions",status="200"} 3'
        until(lambda: counted in running.operator("/metrics"), lambda: running.operator("/metrics"))

        def in_collector():
            points = collector.metrics["tollgate_requests"].sum.data_points if "tollgate_requests" in collector.metrics else []
            return {attributes(point.attributes)["route"]: point.as_double for point in points}

        until(lambda: in_collector().get("/v1/chat/completions") == 3, in_collector)
    assert collector.spans == []
    tokens = collector.metrics["gen_ai.client.token.usage"].histogram
    by_type = {attributes(point.attributes)["gen_ai.token.type"]: point for point in tokens.data_points}
    assert by_type["input"].count == by_type["output"].count == 3
    assert by_type["input"].sum == sum(each.prompt_tokens for each in usage)
    assert collector.metrics["gen_ai.client.token.usage"].unit == "{token}"
    # There is a first token of a stream alone.
    for name, calls in (("gen_ai.server.request.duration", 3), ("gen_ai.server.time_to_first_token", 1)):
        metric = collector.metrics[name]
        [point] = metric.histogram.data_points
        assert (metric.unit, point.count, sum(point.bucket_counts)) == ("s", calls, calls)
        assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
        assert attributes(point.attributes) == {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "simulator",
            "gen_ai.request.model": MODEL,
            "gen_ai.response.model": MODEL,
        }
    requests = collector.metrics["tollgate_requests"].sum
    assert requests.is_monotonic and requests.aggregation_temporality == 2
    assert collector.metrics["tollgate_request_duration"].unit == "s"
    assert collector.metrics["process_resident_memory_bytes"].gauge.data_points[0].as_double > 1_000_000


def test_a_collector_that_is_away_costs_spans_and_nothing_else(tmp_path, collector):
    collector.status = 503
    with gateway(tmp_path, collector) as running:
        for _ in range(20):
            ask(running)
        # Five attempts, with pauses of 7.5 seconds between them.
        until(lambda: "sending spans to the OpenTelemetry collector failed" in running.log(), running.log)
        until(running.has_dropped_spans, running.log)
        collector.status = 200
        trace, _, headers = trace_parent()
        ask(running, headers=headers)
        collector.trace(trace)
        began = time.monotonic()
    assert time.monotonic() - began < 15
    log = running.log()
    assert log.count("sending spans to the OpenTelemetry collector failed") == 1, log
    assert "sending spans to the OpenTelemetry collector works again" in log


def test_spans_that_a_collector_refuses_are_counted(tmp_path, collector):
    collector.rejects = 2
    with gateway(tmp_path, collector) as running:
        ask(running)
        until(running.has_dropped_spans, running.log)
    assert "refuses a part of what it gets" in running.log()


def test_the_last_spans_are_sent_before_the_process_ends(tmp_path, collector):
    with gateway(tmp_path, collector, OTEL_BSP_SCHEDULE_DELAY="60000") as running:
        trace, _, headers = trace_parent()
        ask(running, headers=headers)
        assert collector.spans == []
    assert one(collector.trace(trace)["charge"])


def test_the_provider_continues_the_trace(tmp_path, collector):
    """The provider is another gateway, whose spans are below those of the first."""
    with gateway(tmp_path, collector) as provider:
        (tmp_path / "provider.key").write_text(provider.settings["OPENAI_API_KEY"])
        config = f"""
[providers.behind]
kind = "openai"
base_url = "{provider.settings["OPENAI_BASE_URL"]}"
api_key_file = "../provider.key"
[[models]]
id = "front"
upstream_model = "{MODEL}"
provider = "behind"
input = "1"
output = "2"
"""
        with provided(tmp_path / "front", collector, config, OTEL_SERVICE_NAME="front") as front:
            for stream in (False, True):
                trace, _, headers = trace_parent()
                answer = ask(front, headers=headers, model="front", stream=stream)
                if stream:
                    list(answer)

                def of_both():
                    spans = collector.trace(trace)
                    return all(len(spans.get(name, [])) == 2 for name in ("charge", "POST /v1/chat/completions"))

                until(of_both, lambda: collector.trace(trace))
                spans = collector.trace(trace)
                asking = one(spans["chat front"])
                assert asking.resource["service.name"] == "front"
                inner = [span for span in spans["POST /v1/chat/completions"] if span.resource["service.name"] == "tollgate"]
                assert one(inner).parent == asking.id
