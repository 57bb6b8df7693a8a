"""Traces and metrics on their way through a collector of another project, rotel."""

import importlib.util
import os
import socket
import subprocess
import sysconfig
from pathlib import Path

from collector import attributes
from traced import TOOL_MODEL, ask, gateway, one, trace_parent, until


class Rotel:
    """A collector that passes on what it gets to another one."""

    def __init__(self, folder, collector):
        program = Path(importlib.util.find_spec("rotel").origin).with_name("rotel-agent")
        ports = free_ports(2)
        self.url = f"http://127.0.0.1:{ports[1]}"
        self.log = folder / "rotel.log"
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "ROTEL_"))}
        # Its program needs the library of the Python that it was built for.
        libraries = [sysconfig.get_config_var("LIBDIR"), plain.get("LD_LIBRARY_PATH")]
        plain["LD_LIBRARY_PATH"] = ":".join(filter(None, libraries))
        command = [program, "start"]
        for name, value in {
            "otlp-grpc-endpoint": f"127.0.0.1:{ports[0]}",
            "otlp-http-endpoint": f"127.0.0.1:{ports[1]}",
            "batch-timeout": "50ms",
            "exporter": "otlp",
            "otlp-exporter-protocol": "http",
            "otlp-exporter-endpoint": collector.url,
            "pid-file": folder / "rotel.pid",
            "log-file": self.log,
        }.items():
            command += [f"--{name}", value]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, env=plain, stdout=log, stderr=log)
        until(lambda: self.process.poll() is None and listens(ports[1]), self.log.read_text)

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_request_with_a_tool_step_goes_through_a_real_collector(tmp_path, collector):
    rotel = Rotel(tmp_path, collector)
    try:
        with gateway(tmp_path, rotel) as running:
            trace, parent, headers = trace_parent()
            text = '[[sim tool=convert_units {"amount": "1.5", "from": "ether", "to": "wei"}]]'
            answer = ask(running, text, headers, model=TOOL_MODEL)
            until(lambda: sum(map(len, collector.trace(trace).values())) == 6, lambda: collector.spans)
            spans = collector.trace(trace)
            until(lambda: "gen_ai.client.token.usage" in collector.metrics, rotel.log.read_text)
    finally:
        rotel.stop()
    chats = f"chat {TOOL_MODEL}"
    assert {name: len(found) for name, found in spans.items()} == {
        "POST /v1/chat/completions": 1,
        "admit": 1,
        chats: 2,
        "execute_tool convert_units": 1,
        "charge": 1,
    }
    request = one(spans.pop("POST /v1/chat/completions"))
    assert (request.parent, request.kind) == (parent, 2)
    assert request.resource["service.name"] == "tollgate" and request["tollgate.request.id"] == answer._request_id
    for span in (span for found in spans.values() for span in found):
        assert span.parent == request.id and request.start <= span.start <= span.end <= request.end, span
    first, second = sorted(spans[chats], key=lambda span: span.start)
    for chat in (first, second):
        assert (chat.kind, chat["gen_ai.operation.name"], chat["gen_ai.provider.name"]) == (3, "chat", "simulator")
        assert chat["gen_ai.request.model"] == chat["gen_ai.response.model"] == TOOL_MODEL
    assert (first["gen_ai.response.finish_reasons"], second["gen_ai.response.finish_reasons"]) == (["tool_calls"], ["stop"])
    tokens = [sum(chat[f"gen_ai.usage.{kind}_tokens"] for chat in (first, second)) for kind in ("input", "output")]
    assert tokens == [answer.usage.prompt_tokens, answer.usage.completion_tokens]
    charge = one(spans["charge"])
    assert charge["tollgate.charge.nano_usd"] == round(float(answer.usage.cost) * 1_000_000_000)
    assert one(spans["admit"])["tollgate.hold.nano_usd"] >= charge["tollgate.charge.nano_usd"]
    assert one(spans["execute_tool convert_units"])["gen_ai.tool.name"] == "convert_units"

    usage = collector.metrics["gen_ai.client.token.usage"].histogram
    by_type = {attributes(point.attributes)["gen_ai.token.type"]: point.sum for point in usage.data_points}
    assert by_type == {"input": tokens[0], "output": tokens[1]}
    [duration] = collector.metrics["gen_ai.server.request.duration"].histogram.data_points
    assert duration.count == 1 and attributes(duration.attributes)["gen_ai.request.model"] == TOOL_MODEL
