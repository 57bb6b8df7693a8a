"""An OpenTelemetry collector: takes OTLP over HTTP and decodes it with OpenTelemetry's own messages."""

import gzip
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

MESSAGES = {
    "/v1/traces": (ExportTraceServiceRequest, ExportTraceServiceResponse),
    "/v1/metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse),
}


def plain(value):
    """An attribute's value."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    return getattr(value, kind)


def attributes(pairs) -> dict:
    found = {pair.key: plain(pair.value) for pair in pairs}
    assert len(found) == len(pairs), f"an attribute is there twice: {pairs}"
    return found


class Span:
    def __init__(self, span, resource):
        self.name, self.kind = span.name, span.kind
        self.trace, self.id = span.trace_id.hex(), span.span_id.hex()
        self.parent, self.state = span.parent_span_id.hex(), span.trace_state
        self.start, self.end = span.start_time_unix_nano, span.end_time_unix_nano
        self.failed = span.status.code == 2
        self.attributes, self.resource = attributes(span.attributes), resource

    def __getitem__(self, key):
        return self.attributes[key]

    def __repr__(self):
        return f"{self.name} {self.attributes}"


class Collector:
    """`status` is what it answers, `rejects` how many spans of each request it refuses."""

    def __init__(self):
        self.spans, self.metrics, self.headers, self.bodies = [], {}, [], []
        self.status, self.requests, self.rejects = 200, 0, 0
        self.answers = threading.Event()
        self.answers.set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                status, answer = collector.take(self.path, self.headers, body)
                self.send_response(status)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, path, headers, body):
        self.requests += 1
        self.answers.wait()
        if self.status != 200:
            return self.status, b""
        assert headers["content-type"] == "application/x-protobuf"
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        request, response = MESSAGES[path]
        message = request.FromString(body)
        # What is not in the protocol would be lost on the way to another program.
        message.DiscardUnknownFields()
        assert message.ByteSize() == len(body), "there are fields that the protocol does not have"
        self.headers.append(dict(headers.items()))
        self.bodies.append(body)
        if path == "/v1/traces":
            for resource in message.resource_spans:
                of = attributes(resource.resource.attributes)
                self.spans += [Span(span, of) for scope in resource.scope_spans for span in scope.spans]
        else:
            for resource in message.resource_metrics:
                found = [metric for scope in resource.scope_metrics for metric in scope.metrics]
                self.metrics = {metric.name: metric for metric in found}
                assert len(found) == len(self.metrics), "a metric is there twice"
        answer = response()
        if self.rejects and path == "/v1/traces":
            answer.partial_success.rejected_spans = self.rejects
        return 200, answer.SerializeToString()

    def trace(self, trace: str, name: str = "charge") -> dict[str, list[Span]]:
        """The spans of a trace by their names, once there is one with this name and the request is over."""
        deadline = time.monotonic() + 30
        while True:
            spans = [span for span in list(self.spans) if span.trace == trace]
            if any(span.name == name for span in spans) and any(span.kind == 2 for span in spans):
                break
            assert time.monotonic() < deadline, f"no {name} in {spans}"
            time.sleep(0.02)
        named = {}
        for span in sorted(spans, key=lambda span: span.start):
            named.setdefault(span.name, []).append(span)
        return named

    def hold(self):
        """Answers nothing from now on."""
        self.answers.clear()

    def close(self):
        self.answers.set()
        self.server.shutdown()
        self.server.server_close()
