"""Traces and metrics over OTLP, decoded with OpenTelemetry's own messages."""

import contextlib
import json
import os
import secrets
import subprocess
import time
import urllib.error
import urllib.request

import pytest
from collector import Collector, attributes
from openai import APIStatusError, OpenAI

BIN = os.environ["TOLLGATE_BIN"]
MODEL = "svc-native-fast"
# It is offered the built-in tools.
TOOL_MODEL = "svc-basic"
SECRET = "a prompt that nobody else must read"
FAST = {"OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_METRIC_EXPORT_INTERVAL": "200"}


@pytest.fixture
def collector():
    collector = Collector()
    yield collector
    collector.close()


class Gateway:
    """A gateway of its own with these variables."""

    def __init__(self, folder, variables, config=None):
        folder.mkdir(exist_ok=True)
        self.log_file = folder / "log"
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "TOLLGATE_"))}
        command = ["serve", "--config", config] if config else ["dev", "--port", "0", "--operator-port", "0", "--data", folder]
        with open(self.log_file, "wb") as log:
            self.process = subprocess.Popen(
                [BIN, *command], env=plain | FAST | variables, stdout=subprocess.DEVNULL, stderr=log
            )
        if config:
            return
        env_file = folder / "dev.env"
        deadline = time.monotonic() + 30
        while not env_file.exists():
            assert self.process.poll() is None and time.monotonic() < deadline, self.log()
            time.sleep(0.02)
        self.settings = dict(line.split("=", 1) for line in env_file.read_text().splitlines() if "=" in line)
        self.client = OpenAI(
            api_key=self.settings["OPENAI_API_KEY"], base_url=self.settings["OPENAI_BASE_URL"], max_retries=0, timeout=30
        )

    def log(self):
        return self.log_file.read_text(errors="replace")

    def operator(self, path):
        url = self.settings["TOLLGATE_OPERATOR_URL"] + path
        headers = {"Authorization": f"Bearer {self.settings['TOLLGATE_OPERATOR_TOKEN']}"}
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as response:
            return response.read().decode()

    def stop(self):
        self.process.terminate()
        return self.process.wait(30)


@contextlib.contextmanager
def gateway(tmp_path, collector, **variables):
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
    running = Gateway(tmp_path / "gateway", endpoint | variables)
    try:
        yield running
    finally:
        status = running.stop()
    assert status == 0, running.log()


def trace_parent(flags="01"):
    trace, span = secrets.token_hex(16), secrets.token_hex(8)
    return trace, span, {"traceparent": f"00-{trace}-{span}-{flags}"}


def ask(running, text=SECRET, headers=None, **more):
    more = {"model": MODEL, **more}
    return running.client.chat.completions.create(
        messages=[{"role": "user", "content": text}], extra_headers=headers or {}, **more
    )


def one(spans):
    assert len(spans) == 1, spans
    return spans[0]


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
        stream = ask(running, "[[sim tokens=200 delay_ms=5]]", headers, stream=True)
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
        ask(running)
        collector.hold()
        waits = collector.requests
        while collector.requests == waits:
            time.sleep(0.02)
        began = time.monotonic()
    # The last ones may take five seconds; one attempt may take ten.
    assert time.monotonic() - began < 9
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
        ours = running.operator("/metrics")
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
    counted = {attributes(point.attributes)["route"]: point.as_double for point in requests.data_points}
    assert counted["/v1/chat/completions"] == 3
    assert 'tollgate_requests_total{route="/v1/chat/completions",status="200"} 3' in ours
    assert collector.metrics["tollgate_request_duration"].unit == "s"
    assert collector.metrics["process_resident_memory_bytes"].gauge.data_points[0].as_double > 1_000_000


def test_a_collector_that_is_away_costs_spans_and_nothing_else(tmp_path, collector):
    collector.status = 503
    with gateway(tmp_path, collector) as running:
        for _ in range(20):
            ask(running)
        deadline = time.monotonic() + 10
        while "sending spans to the OpenTelemetry collector failed" not in running.log():
            assert time.monotonic() < deadline, running.log()
            time.sleep(0.05)
        while "tollgate_dropped_spans_total 0\n" in running.operator("/metrics"):
            assert time.monotonic() < deadline, running.operator("/metrics")
            time.sleep(0.05)
        collector.status = 200
        trace, _, headers = trace_parent()
        ask(running, headers=headers)
        collector.trace(trace)
        began = time.monotonic()
    assert time.monotonic() - began < 10
    log = running.log()
    assert log.count("sending spans to the OpenTelemetry collector failed") == 1, log
    assert "sending spans to the OpenTelemetry collector works again" in log


def test_the_last_spans_are_sent_before_the_process_ends(tmp_path, collector):
    with gateway(tmp_path, collector, OTEL_BSP_SCHEDULE_DELAY="60000") as running:
        trace, _, headers = trace_parent()
        ask(running, headers=headers)
        assert collector.spans == []
    assert one(collector.trace(trace)["charge"])


def test_the_provider_continues_the_trace(tmp_path, collector):
    """The provider is another gateway, whose spans are below those of the first."""
    with gateway(tmp_path, collector) as provider:
        folder = tmp_path / "front"
        folder.mkdir()
        (folder / "provider.key").write_text(provider.settings["OPENAI_API_KEY"])
        (folder / "tollgate.toml").write_text(f"""
[server]
listen = "127.0.0.1:0"
[operator]
listen = "127.0.0.1:0"
token_file = "operator.token"
[store]
url = "sqlite:data/tollgate.db"
[providers.behind]
kind = "openai"
base_url = "{provider.settings["OPENAI_BASE_URL"]}"
api_key_file = "provider.key"
[[models]]
id = "front"
upstream_model = "{MODEL}"
provider = "behind"
input = "1"
output = "2"
""")
        (folder / "operator.token").write_text(secrets.token_hex(20))
        front = Gateway(folder, {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "front"}, folder / "tollgate.toml")
        try:
            public, operator = listening(front)
            token = (folder / "operator.token").read_text()

            def call(path, body):
                request = urllib.request.Request(
                    operator + path, json.dumps(body).encode(), {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
                )
                with urllib.request.urlopen(request, timeout=10) as response:
                    return json.load(response)

            account = call("/operator/accounts", {"email": "ada@example.com", "track": "business", "tier": "flex"})["id"]
            call(f"/operator/accounts/{account}/grants", {"amount": "1", "reason": "test"})
            key = call(f"/operator/accounts/{account}/keys", {"name": "test"})["key"]
            trace, _, headers = trace_parent()
            for stream in (False, True):
                trace, _, headers = trace_parent()
                client = OpenAI(api_key=key, base_url=f"{public}/v1", max_retries=0, timeout=30)
                answer = client.chat.completions.create(
                    model="front", messages=[{"role": "user", "content": "Hi"}], extra_headers=headers, stream=stream
                )
                if stream:
                    list(answer)
                deadline = time.monotonic() + 10
                while sum(len(collector.trace(trace).get(name, [])) for name in ("charge", "POST /v1/chat/completions")) < 4:
                    assert time.monotonic() < deadline, collector.trace(trace)
                    time.sleep(0.05)
                spans = collector.trace(trace)
                asking = one(spans["chat front"])
                assert asking.resource["service.name"] == "front"
                inner = [span for span in spans["POST /v1/chat/completions"] if span.resource["service.name"] == "tollgate"]
                assert one(inner).parent == asking.id
        finally:
            assert front.stop() == 0, front.log()


def listening(running):
    """The URLs that a gateway with free ports says in its log."""
    deadline = time.monotonic() + 30
    while True:
        addresses = [word.strip('",') for word in running.log().replace("=", " ").replace('"', " ").split() if word.startswith("127.0.0.1:")]
        if len(addresses) >= 2:
            return f"http://{addresses[0]}", f"http://{addresses[1]}"
        assert running.process.poll() is None and time.monotonic() < deadline, running.log()
        time.sleep(0.05)
