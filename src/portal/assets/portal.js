// What a script adds to pages that can be read without one: copying, the theme, the playground.
"use strict";

function copying() {
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.hidden = false;
    const said = button.querySelector("[data-said]");
    const verb = said.textContent;
    button.addEventListener("click", async () => {
      const text = button.closest(".copyable").querySelector("code").textContent;
      try {
        await navigator.clipboard.writeText(text);
        said.textContent = "Copied";
      } catch {
        said.textContent = "Select and copy it yourself";
      }
      setTimeout(() => { said.textContent = verb; }, 2000);
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

// Where the navigation has no room for all, the present page is in sight.
function navigation() {
  document.querySelector(".top nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
}

// Server-sent events, one after the other, as JSON.
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
  const told = document.getElementById("told");
  const stop = form.querySelector("[data-stop]");
  const clear = form.querySelector("[data-clear]");
  const send = form.querySelector("[type=submit]");
  let messages = [];
  let running = null;

  const say = (who, text) => {
    const said = document.createElement("article");
    said.className = `said ${who}`;
    const heading = document.createElement("h2");
    heading.textContent = who === "user" ? "You" : "Answer";
    const body = document.createElement("p");
    body.textContent = text;
    said.append(heading, body);
    conversation.append(said);
    return body;
  };

  const ask = async (model, sent, body) => {
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

  // What it came to, once it is in the books.
  const price = async (request, words) => {
    const response = await fetch(`/portal/playground/charge?request=${encodeURIComponent(request)}`);
    if (!response.ok) return;
    const { cost, path } = await response.json();
    // The next one may have been asked for meanwhile.
    if (told.textContent !== words) return;
    const story = document.createElement("a");
    story.href = path;
    story.textContent = cost;
    told.append(words ? " · " : "", story);
  };

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (running) return;
    const fields = new FormData(form);
    const text = fields.get("message").trim();
    if (!text) return;
    const system = fields.get("system").trim();
    const asked = [...messages, { role: "user", content: text }];
    say("user", text);
    const body = say("assistant", "");
    body.setAttribute("aria-busy", "true");
    told.textContent = "Waiting for the answer…";
    send.disabled = true;
    stop.hidden = false;
    try {
      const before = system ? [{ role: "system", content: system }] : [];
      const { usage, routed, request } = await ask(fields.get("model"), [...before, ...asked], body);
      messages = [...asked, { role: "assistant", content: body.textContent }];
      form.elements.message.value = "";
      const tokens = usage ? `${usage.prompt_tokens} tokens in, ${usage.completion_tokens} out` : "";
      const words = [tokens, routed ? `answered by ${routed}` : ""].filter(Boolean).join(" · ");
      told.textContent = words;
      price(request, words).catch(() => {});
    } catch (error) {
      told.textContent = error.name === "AbortError" ? "Stopped. What was written is charged." : error.message;
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
    told.textContent = "";
    clear.hidden = true;
  });
}

copying();
theme();
navigation();
playground();
