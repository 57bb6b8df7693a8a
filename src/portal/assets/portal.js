// Enhancements of pages that work without scripts: copy buttons, the theme switch, the playground.
"use strict";

function copyButtons() {
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.hidden = false;
    const label = button.querySelector("[data-copy-label]");
    const verb = label.textContent;
    button.addEventListener("click", async () => {
      const text = button.closest(".copyable").querySelector("code").textContent;
      try {
        await navigator.clipboard.writeText(text);
        label.textContent = "Copied";
      } catch {
        label.textContent = "Select and copy it yourself";
      }
      setTimeout(() => { label.textContent = verb; }, 2000);
    });
  }
}

function theme() {
  const button = document.querySelector("[data-theme-switch]");
  if (!button) return;
  button.hidden = false;
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const now = () => root.dataset.theme ?? (dark.matches ? "dark" : "light");
  const show = () => { button.textContent = now() === "dark" ? "Light" : "Dark"; };
  show();
  dark.addEventListener("change", show);
  button.addEventListener("click", () => {
    root.dataset.theme = now() === "dark" ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
    show();
  });
}

// Scrolls the navigation to the current page, in case it is too wide for the screen.
function navigation() {
  document.querySelector(".top nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
}

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

function playground() {
  const form = document.getElementById("playground");
  if (!form) return;
  const conversation = document.getElementById("conversation");
  const status = document.getElementById("playground-status");
  const stop = form.querySelector("[data-stop]");
  const clear = form.querySelector("[data-clear]");
  const send = form.querySelector("[type=submit]");
  let messages = [];
  let running = null;

  const addMessage = (role, text) => {
    const message = document.createElement("article");
    message.className = `message ${role}`;
    const heading = document.createElement("h2");
    heading.textContent = role === "user" ? "You" : "Answer";
    const body = document.createElement("p");
    body.textContent = text;
    message.append(heading, body);
    conversation.append(message);
    return body;
  };

  const complete = async (model, sent, body) => {
    running = new AbortController();
    const response = await fetch("/portal/playground/run", {
      method: "POST",
      signal: running.signal,
      headers: { "content-type": "application/json", "x-form-token": form.dataset.token },
      body: JSON.stringify({
        model, messages: sent, stream: true, stream_options: { include_usage: true },
      }),
    });
    if (!response.headers.get("content-type")?.startsWith("text/event-stream")) {
      const failed = await response.json().catch(() => null);
      throw new Error(failed?.error?.message ?? `The answer was ${response.status}.`);
    }
    let usage = null;
    for await (const event of events(response)) {
      if (event.error) throw new Error(event.error.message);
      body.textContent += event.choices?.[0]?.delta?.content ?? "";
      usage = event.usage ?? usage;
    }
    const routed = response.headers.get("x-routed-model");
    return { usage, routed, request: response.headers.get("x-request-id") };
  };

  // Appends the cost of a call to its summary, with a link to the request details, if it is charged already.
  const showCost = async (request, summary) => {
    const response = await fetch(`/portal/playground/charge?request=${encodeURIComponent(request)}`);
    if (!response.ok) return;
    const { cost, path } = await response.json();
    // Another request may have replaced the summary meanwhile.
    if (status.textContent !== summary) return;
    const details = document.createElement("a");
    details.href = path;
    details.textContent = cost;
    status.append(summary ? " · " : "", details);
  };

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (running) return;
    const fields = new FormData(form);
    const text = fields.get("message").trim();
    if (!text) return;
    const system = fields.get("system").trim();
    const turns = [...messages, { role: "user", content: text }];
    addMessage("user", text);
    const body = addMessage("assistant", "");
    body.setAttribute("aria-busy", "true");
    status.textContent = "Waiting for the answer…";
    send.disabled = true;
    stop.hidden = false;
    try {
      const before = system ? [{ role: "system", content: system }] : [];
      const { usage, routed, request } = await complete(fields.get("model"), [...before, ...turns], body);
      messages = [...turns, { role: "assistant", content: body.textContent }];
      form.elements.message.value = "";
      const tokens = usage ? `${usage.prompt_tokens} tokens in, ${usage.completion_tokens} out` : "";
      const summary = [tokens, routed ? `answered by ${routed}` : ""].filter(Boolean).join(" · ");
      status.textContent = summary;
      showCost(request, summary).catch(() => {});
    } catch (error) {
      status.textContent = error.name === "AbortError" ? "Stopped. What was written is charged." : error.message;
      if (!body.textContent) body.parentElement.classList.add("failed");
    } finally {
      body.removeAttribute("aria-busy");
      running = null;
      send.disabled = false;
      stop.hidden = true;
      clear.hidden = false;
    }
  });
  stop.addEventListener("click", () => running?.abort());
  clear.addEventListener("click", () => {
    messages = [];
    conversation.replaceChildren();
    status.textContent = "";
    clear.hidden = true;
  });
}

function printing() {
  for (const button of document.querySelectorAll("[data-print]")) {
    button.hidden = false;
    button.addEventListener("click", () => print());
  }
}

copyButtons();
printing();
theme();
navigation();
playground();
