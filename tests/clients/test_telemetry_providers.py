"""What spans say of providers, and what they must not repeat of them."""

import json
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from traced import SECRET, one, provided, trace_parent

NAMED = "named-by-the-provider-1"
SILENCE = 0.2
USAGE = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
# How each kind of provider calls the model, and where it is.
KINDS = {"openai": "/v1", "anthropic": "/v1", "gemini": "/v1beta"}


class Provider:
    """A provider with three APIs. Its models are `plain`, `refuses` and `breaks`; the last two quote the request."""

    def __init__(self):
        self.seen = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                provider.seen.append(body)
                request = json.loads(body)
                model = request.get("model") or self.path.split("/")[-1].split(":")[0]
                quote = {"type": "error", "error": {"message": body, "type": "invalid_request_error", "code": "bad"}}
                is_stream = request.get("stream") or ":stream" in self.path
                if model == "refuses":
                    return self.whole(400, quote)
                if not is_stream:
                    return self.whole(200, quote if model == "breaks" else whole(self.path))
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                silent, *events = stream(self.path)
                self.events([silent])
                time.sleep(SILENCE)
                self.events(events[:1] + [quote] if model == "breaks" else events)
                self.close_connection = True

            def whole(self, status, body):
                body = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def events(self, events):
                for event in events:
                    kind = f"event: {event['type']}\n" if "type" in event else ""
                    self.wfile.write(f"{kind}data: {json.dumps(event)}\n\n".encode())
                self.wfile.flush()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def config(self):
        """A provider of each kind, and a model of each behaviour at each of them: `openai-plain`."""
        text = ""
        for kind, path in KINDS.items():
            url = f"http://127.0.0.1:{self.server.server_port}{path}"
            text += f'[providers.{kind}]\nkind = "{kind}"\nbase_url = "{url}"\n'
            for model in ("plain", "refuses", "breaks"):
                text += f'[[models]]\nid = "{kind}-{model}"\nprovider = "{kind}"\nupstream_model = "{model}"\n'
                text += 'input = "20"\noutput = "80"\ncost = { input = "10", output = "40" }\n'
        return text

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def whole(path):
    if path.endswith("/messages"):
        message = {"id": "m", "type": "message", "role": "assistant", "model": NAMED, "content": [{"type": "text", "text": "Hi"}]}
        return message | {"stop_reason": "end_turn", "usage": {"input_tokens": 5, "output_tokens": 1}}
    if "generateContent" in path:
        return gemini("Hi", finishReason="STOP")
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": NAMED, "choices": [choice], "usage": USAGE}


def stream(path):
    """The events of a stream: one without a token, the first token, and the others."""
    if path.endswith("/messages"):
        message = {"id": "m", "type": "message", "role": "assistant", "model": NAMED, "content": []}
        return [
            {"type": "message_start", "message": message | {"usage": {"input_tokens": 5, "output_tokens": 1}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]
    if "GenerateContent" in path:
        return [gemini(""), gemini("Hi"), gemini("", finishReason="STOP")]
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": NAMED}
    deltas = [({"role": "assistant", "content": ""}, None), ({"content": "Hi"}, None), ({}, "stop")]
    chunks = [chunk | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]} for delta, finish in deltas]
    return [*chunks, chunk | {"choices": [], "usage": USAGE}]


def gemini(text, **more):
    candidate = {"index": 0, "content": {"role": "model", "parts": [{"text": text}]}} | more
    counts = {"promptTokenCount": 5, "candidatesTokenCount": 1, "totalTokenCount": 6}
    return {"candidates": [candidate], "usageMetadata": counts, "modelVersion": NAMED}


@pytest.fixture
def provider():
    provider = Provider()
    yield provider
    provider.close()


def send(running, path, body, headers):
    """The status and the text of a response, also of a failure."""
    key = running.settings["OPENAI_API_KEY"]
    headers = headers | {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(running.settings["OPENAI_BASE_URL"] + path, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def bodies(model, stream):
    """A request of each API."""
    messages = [{"role": "user", "content": SECRET}]
    yield "/chat/completions", {"model": model, "messages": messages, "stream": stream}
    yield "/messages", {"model": model, "messages": messages, "stream": stream, "max_tokens": 50}
    yield "/responses", {"model": model, "input": SECRET, "stream": stream}


def test_an_attempt_names_the_model_and_the_time_that_the_provider_tells(tmp_path, collector, provider):
    with provided(tmp_path / "gateway", collector, provider.config()) as running:
        for kind in KINDS:
            for is_stream in (False, True):
                for path, body in bodies(f"{kind}-plain", is_stream):
                    trace, _, headers = trace_parent()
                    status, text = send(running, path, body, headers)
                    assert status == 200, text
                    spans = collector.trace(trace)
                    chat, charge = one(spans[f"chat {kind}-plain"]), one(spans["charge"])
                    assert chat["gen_ai.response.model"] == NAMED, (path, chat)
                    first = chat.attributes.get("gen_ai.response.time_to_first_chunk")
                    assert first is None if not is_stream else SILENCE <= first < 20, (path, chat)
                    # Five tokens at 10 and one at 40 dollars per million.
                    assert charge["tollgate.provider_cost.nano_usd"] == 90_000, (path, charge)


def test_what_a_provider_quotes_of_a_prompt_is_in_no_span(tmp_path, collector, provider):
    failed = 0
    with provided(tmp_path / "gateway", collector, provider.config()) as running:
        for kind in KINDS:
            for model in ("refuses", "breaks"):
                for is_stream in (False, True):
                    for path, body in bodies(f"{kind}-{model}", is_stream):
                        trace, _, headers = trace_parent()
                        status, text = send(running, path, body, headers)
                        assert status >= 400 or (is_stream and "error" in text), (kind, model, path, status, text)
                        assert SECRET in provider.seen[-1]
                        chat = one(collector.trace(trace, "release")[f"chat {kind}-{model}"])
                        assert chat.failed and chat["error.type"], (path, chat)
                        named = chat.attributes.get("gen_ai.response.model")
                        assert named == (NAMED if model == "breaks" and is_stream else None), (path, chat)
                        failed += 1
        log = running.log()
    assert failed == len(provider.seen) == 36
    assert not any(SECRET.encode() in body for body in collector.bodies)
    assert SECRET not in log
