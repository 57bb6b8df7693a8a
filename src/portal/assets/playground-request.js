// The requests of the playground: to the models, and for what their answers were charged.
"use strict";

// Yields the data of server-sent events as parsed JSON, until [DONE] or the end of the stream.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const data = line.startsWith("data:") ? line.slice(5).trim() : "";
      if (data === "[DONE]") return;
      if (data) yield JSON.parse(data);
    }
  }
}

const playgroundRequests = (form) => {
  const { parts } = conversationView;
  // Pauses between the questions for the charge of a call that may still run: 15 minutes in all.
  const WHILE_RUNNING = [0, 300, 600, 1200, 2400, ...new Array(180).fill(5000)];
  const AFTERWARDS = [0, 500, 2000];

  const withoutOf = (model) => {
    const option = [...form.elements.model.options].find((option) => option.value === model);
    return (option?.dataset.without ?? "").split(" ");
  };

  // The settings that are filled in, each with its field in the API.
  const settings = () => {
    const found = [];
    const { elements } = form;
    for (const name of ["temperature", "top_p", "max_tokens", "seed"]) {
      const { value, disabled } = elements[name];
      if (value !== "" && !disabled) found.push([name, name, Number(value)]);
    }
    const stops = elements.stop.value.split("\n").filter(Boolean);
    if (stops.length > 0 && !elements.stop.disabled) found.push(["stop", "stop", stops]);
    const effort = elements.reasoning_effort;
    if (effort.value && !effort.disabled) found.push(["reasoning_effort", "reasoning_effort", effort.value]);
    if (elements.json.checked && !elements.json.disabled) {
      found.push(["json", "response_format", { type: "json_object" }]);
    }
    return found;
  };

  // The request of a column: its own answers, or those of the first column where it has none. A turn without an answer is
  // left out; a stopped answer is part of it as far as it was shown.
  const requestOf = (column, model, before, text) => {
    const system = form.elements.system.value.trim();
    const messages = system ? [{ role: "system", content: system }] : [];
    for (const turn of before) {
      const { content } = parts((turn.answers[column] ?? turn.answers[0]).text);
      if (!content) continue;
      messages.push({ role: "user", content: turn.text }, { role: "assistant", content });
    }
    messages.push({ role: "user", content: text });
    const without = withoutOf(model);
    const taken = settings().filter(([field]) => !without.includes(field));
    return { model, messages, ...Object.fromEntries(taken.map(([, name, value]) => [name, value])) };
  };

  // An ID by which the charge is found even if no byte of the response arrived.
  const newRequestId = () => {
    const random = crypto.getRandomValues(new Uint8Array(16));
    return `play_${[...random].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
  };

  // An error, with the path of the page that shows the request.
  const failure = (error, message) => {
    const path = error?.request_url && new URL(error.request_url, location.href).pathname;
    return Object.assign(new Error(error?.message ?? message), { path });
  };

  // Asks a model, and adds to the answer what arrives of it.
  const stream = async (answer, body, signal, onText) => {
    const started = performance.now();
    const response = await fetch("/portal/playground/run", {
      method: "POST",
      signal,
      headers: { "content-type": "application/json", "x-form-token": form.dataset.token, "x-request-id": answer.request },
      body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    });
    if (!response.headers.get("content-type")?.startsWith("text/event-stream")) {
      const failed = await response.json().catch(() => null);
      throw failure(failed?.error, `The server responded with status ${response.status}. Reload the page.`);
    }
    answer.routed = response.headers.get("x-routed-model");
    for await (const event of events(response)) {
      if (event.error) throw failure(event.error);
      const [choice] = event.choices ?? [];
      const text = choice?.delta?.content ?? "";
      answer.finish = choice?.finish_reason ?? answer.finish;
      if (!text) continue;
      answer.firstMs ??= performance.now() - started;
      answer.state = "streaming";
      answer.text += text;
      onText();
    }
    if (!answer.finish) throw new TypeError("The stream ended early.");
    answer.totalMs = performance.now() - started;
  };

  // What an answer was charged. Asks until that is known; undefined if it does not become known.
  const chargeOf = async (answer, mayRun) => {
    for (const pause of mayRun ? WHILE_RUNNING : AFTERWARDS) {
      await new Promise((done) => { setTimeout(done, pause); });
      const response = await fetch(`/portal/playground/charge?request=${encodeURIComponent(answer.request)}`).catch(() => null);
      if (!response) continue;
      if (!response.ok || response.redirected) return undefined;
      const charge = await response.json();
      if (!charge.pending) return charge;
    }
    return undefined;
  };

  return { requestOf, newRequestId, stream, chargeOf };
};
