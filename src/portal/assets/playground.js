// The playground: sends the conversation to one model or to several side by side, and shows the answers as they stream.
"use strict";

(() => {
  const { turnView, parts, isOver, problem } = conversationView;
  const LOST = "The connection was lost.";
  const MOST_MODELS = 4;
  const STORE = "playground";

  const form = document.getElementById("playground");
  const { requestOf, newRequestId, stream, chargeOf } = playgroundRequests(form);
  const one = (selector) => form.querySelector(selector);
  const conversation = document.getElementById("conversation");
  const status = document.getElementById("playground-status");
  const spoken = document.getElementById("playground-spoken");
  const message = form.elements.message;
  const [send, stop, cancel, clear, undo, add, code] = ["[type=submit]", "[data-stop]", "[data-cancel]", "[data-clear]",
    "[data-undo]", "[data-add]", "[data-code]"].map(one);
  const selects = () => [...form.querySelectorAll(".models select")];
  const chosenOptions = () => selects().map((select) => select.selectedOptions[0]).filter(Boolean);

  let turns = [];
  let cleared = null;
  let isEditing = false;
  let isLeaving = false;
  const views = new Map();
  const running = new Map();

  // ── Running ──

  // Redraws an answer while it streams, less often the longer that takes.
  const redrawing = (view) => {
    let timer = null;
    let pause = 50;
    const draw = () => {
      timer = null;
      const from = performance.now();
      following(view.update);
      pause = Math.max(50, 4 * (performance.now() - from));
    };
    return {
      soon: () => { timer ??= setTimeout(draw, pause); },
      now: () => {
        clearTimeout(timer);
        draw();
      },
    };
  };

  const run = async (answer, body, view) => {
    const controller = new AbortController();
    running.set(answer, controller);
    const drawn = redrawing(view);
    let mayRun = false;
    try {
      await stream(answer, body, controller.signal, drawn.soon);
      answer.state = "done";
    } catch (error) {
      const isStopped = error.name === "AbortError" || isLeaving;
      mayRun = isStopped || error instanceof TypeError;
      answer.state = isStopped ? "stopped" : answer.text ? "broken" : "failed";
      if (answer.state !== "stopped") answer.error = error instanceof TypeError ? LOST : error.message;
      if (answer.state !== "stopped" && error.path) answer.errorPath = error.path;
      if (answer.state === "failed" && mayRun) answer.error += " If the model answered, you pay for it: see Requests.";
    }
    running.delete(answer);
    drawn.now();
    settle(answer, view, mayRun);
  };

  // Shows what an answer was charged once that is known.
  const settle = async (answer, view, mayRun) => {
    answer.mayRun = mayRun;
    const charge = await chargeOf(answer, mayRun);
    answer.charge = charge;
    answer.isUnknown = !charge;
    following(view.showMeta);
    if (charge && answer.state === "stopped") status.textContent = `The stopped answer of ${answer.model} cost ${charge.cost}.`;
    save();
  };

  const submit = async () => {
    const text = message.value.trim();
    if (running.size > 0 || !text) return message.focus();
    const replaced = isEditing ? turns.pop() : null;
    views.get(replaced)?.element.remove();
    const before = [...turns];
    const answers = selects().map((select) => ({ model: select.value, text: "", state: "waiting", request: newRequestId() }));
    const requests = answers.map(({ model }, column) => requestOf(column, model, before, text));
    const turn = { text, answers };
    turns.push(turn);
    isEditing = false;
    cleared = null;
    message.value = "";
    status.textContent = "Waiting for the answer…";
    const view = show(turn);
    const runs = answers.map((answer, column) => run(answer, requests[column], view.answers[column]));
    refresh();
    save();
    message.focus();
    scrollTo(0, document.documentElement.scrollHeight);
    await Promise.all(runs);
    ended(turn, replaced);
  };

  // `replaced` is the turn that was edited and sent again, if it was.
  const ended = (turn, replaced) => {
    const { answers } = turn;
    const named = (words) => answers.map((answer) => `${answers.length > 1 ? `${answer.model}: ` : ""}${words(answer)}`).join(" ");
    if (answers.every(({ state }) => state === "failed")) {
      // Nothing came of it, so it can be changed and sent again.
      turns = turns.filter((other) => other !== turn);
      views.get(turn)?.element.remove();
      if (replaced) {
        turns.push(replaced);
        conversation.append(views.get(replaced).element);
      }
      if (!message.value) {
        message.value = turn.text;
        isEditing = Boolean(replaced);
      }
      const words = answers.map((answer) => [answers.length > 1 ? `${answer.model}: ` : "", ...problem(answer), " "]);
      status.replaceChildren(...words.flat());
    } else if (answers.some(({ state }) => state === "stopped")) {
      status.textContent = "Stopped. The model still writes its answer, and you pay for all of it: the cost follows.";
    } else {
      status.textContent = "";
      spoken.textContent = named(({ model, text, error }) => `${model} answered: ${parts(text).content.slice(0, 1000)} ${error ?? ""}`);
    }
    refresh();
    save();
  };

  // ── The page ──

  // Makes a change and keeps the end of the page in sight if it was.
  const following = (change) => {
    const { documentElement: root } = document;
    const isAtEnd = innerHeight + scrollY >= root.scrollHeight - 60;
    change();
    if (isAtEnd) scrollTo(0, root.scrollHeight);
  };

  const show = (turn) => {
    const view = turnView(turn);
    views.set(turn, view);
    conversation.append(view.element);
    return view;
  };

  const edit = (turn) => {
    isEditing = true;
    message.value = turn.text;
    refresh();
    message.focus();
  };

  // Shows the buttons and notes that fit the state.
  const refresh = () => {
    const isRunning = running.size > 0;
    send.disabled = isRunning;
    stop.hidden = !isRunning;
    cancel.hidden = !isEditing;
    clear.hidden = isRunning || turns.length === 0;
    undo.hidden = !cleared;
    add.hidden = selects().length >= MOST_MODELS;
    // The columns stay as they are while their answers arrive.
    for (const button of form.querySelectorAll(".another button")) button.hidden = isRunning;
    for (const button of conversation.querySelectorAll("[data-edit]")) button.remove();
    const last = turns.at(-1);
    const view = views.get(last);
    view?.element.classList.toggle("edited", isEditing);
    if (view && !isRunning && !isEditing) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "quiet";
      button.dataset.edit = "";
      button.textContent = "Edit and send again";
      button.addEventListener("click", () => edit(last));
      view.asked.append(button);
    }
    refreshSettings();
  };

  const refreshSettings = () => {
    const options = chosenOptions();
    const without = options.map((option) => option.dataset.without.split(" "));
    for (const name of ["temperature", "top_p", "max_tokens", "seed", "stop", "reasoning_effort", "json"]) {
      form.elements[name].disabled = without.every((fields) => fields.includes(name));
    }
    const notes = new Set(options.map((option) => option.dataset.note).filter(Boolean));
    one("[data-notes]").textContent = ["Empty settings are not sent.", ...notes].join(" ");
    refreshCode();
  };

  const refreshCode = () => {
    if (!code.open || !selects()[0].value) return;
    const draft = message.value.trim();
    const text = draft || turns.at(-1)?.text || "Hello!";
    const before = isEditing || !draft ? turns.slice(0, -1) : turns;
    const body = requestOf(0, selects()[0].value, before, text);
    for (const language of code.querySelectorAll("[data-language]")) {
      language.querySelector("code").textContent = requestCode[language.dataset.language](form.dataset.url, body);
    }
  };

  // Answers belong to models by their position, so a removed model's answers go with it.
  const removeColumn = (column) => {
    for (const turn of [...turns, ...(cleared ?? [])]) {
      turn.answers.splice(column, 1);
      views.get(turn).remove(column);
    }
  };

  const addModel = (chosen) => {
    const first = selects()[0];
    const label = document.createElement("label");
    const select = first.cloneNode(true);
    select.removeAttribute("name");
    const taken = selects().map(({ value }) => value);
    const free = [...first.options].find(({ value }) => !taken.includes(value));
    select.value = chosen ?? free?.value ?? first.value;
    label.append(`Model ${selects().length + 1}`, select);
    const remove = document.createElement("button");
    remove.type = "button";
    remove.className = "quiet";
    remove.textContent = "Remove";
    const group = document.createElement("div");
    group.className = "another";
    group.append(label, remove);
    remove.addEventListener("click", () => {
      removeColumn(selects().indexOf(select));
      group.remove();
      for (const [at, other] of form.querySelectorAll(".another label").entries()) other.firstChild.data = `Model ${at + 2}`;
      add.hidden = false;
      add.focus();
      refresh();
      save();
    });
    add.before(group);
    return select;
  };

  // ── The tab's memory: until it is closed, the conversation is cleared or the person signs out ──

  const FIELDS = ["system", "temperature", "top_p", "max_tokens", "seed", "stop", "reasoning_effort", "message"];

  const save = () => {
    const fields = Object.fromEntries(FIELDS.map((name) => [name, form.elements[name].value]));
    const models = selects().map(({ value }) => value);
    const state = { owner: form.dataset.owner, turns, fields, json: form.elements.json.checked, models };
    try {
      sessionStorage.setItem(STORE, JSON.stringify(state));
    } catch {
      // It does not fit. The conversation goes on without it.
      sessionStorage.removeItem(STORE);
    }
  };

  // What the page of a submitted form shows, in the script's form.
  const fromPage = () => {
    const written = form.elements.conversation.value;
    if (!written) return null;
    const turns = [];
    for (const { role, content, model } of JSON.parse(written)) {
      if (role === "user") turns.push({ text: content, answers: [] });
      else turns.at(-1).answers.push({ model: model ?? "Answer", text: content, state: "done" });
    }
    return turns.filter(({ answers }) => answers.length > 0);
  };

  const restore = () => {
    const given = fromPage();
    if (given) {
      conversation.replaceChildren();
      turns = given;
      turns.forEach(show);
      const [first, ...others] = turns.reduce((most, { answers }) => (answers.length > most.length ? answers : most), []);
      if (others.length > 0) selects()[0].value = first.model;
      for (const { model } of others) addModel(model);
      return;
    }
    const stored = JSON.parse(sessionStorage.getItem(STORE) ?? "null");
    if (stored?.owner !== form.dataset.owner) return;
    const offered = [...selects()[0].options].map(({ value }) => value);
    for (const [name, value] of Object.entries(stored.fields)) form.elements[name].value = value;
    form.elements.json.checked = stored.json;
    const [first, ...others] = stored.models;
    // A model that is no longer on offer goes with its answers; the first column stays and has another model.
    const isKept = (model) => offered.includes(model);
    if (isKept(first)) selects()[0].value = first;
    for (const model of others.filter(isKept)) addModel(model);
    turns = stored.turns;
    for (const turn of turns) {
      turn.answers = turn.answers.filter((_, column) => column === 0 || isKept(stored.models[column]));
      for (const answer of turn.answers) if (!isOver(answer)) answer.state = "stopped";
      const view = show(turn);
      for (const [at, answer] of turn.answers.entries()) {
        if (answer.request && !answer.charge) settle(answer, view.answers[at], answer.mayRun ?? true);
      }
    }
  };

  // ── Events ──

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing) return;
    const isSend = event.ctrlKey || event.metaKey;
    // Enter in a setting would send the message too.
    if (isSend || event.target.tagName === "INPUT") event.preventDefault();
    if (isSend) form.requestSubmit();
  });
  // A field in a closed group cannot show what is wrong with it.
  form.addEventListener("invalid", (event) => event.target.closest("details")?.setAttribute("open", ""), true);
  form.addEventListener("input", () => refreshSettings());
  form.addEventListener("change", () => save());
  code.addEventListener("toggle", refreshCode);
  stop.addEventListener("click", () => {
    for (const controller of running.values()) controller.abort();
    message.focus();
  });
  cancel.addEventListener("click", () => {
    isEditing = false;
    message.value = "";
    refresh();
    message.focus();
  });
  clear.addEventListener("click", () => {
    cleared = turns;
    turns = [];
    isEditing = false;
    conversation.replaceChildren();
    status.textContent = "Conversation cleared.";
    refresh();
    save();
    message.focus();
  });
  undo.addEventListener("click", () => {
    turns = cleared;
    cleared = null;
    conversation.append(...turns.map((turn) => views.get(turn).element));
    status.textContent = "";
    refresh();
    save();
    message.focus();
  });
  add.addEventListener("click", () => {
    addModel().focus();
    refresh();
    save();
  });
  addEventListener("beforeunload", () => { isLeaving = true; });
  addEventListener("pagehide", () => {
    // Signing out has removed it.
    if (sessionStorage.getItem(STORE) !== null) save();
  });

  for (const element of document.querySelectorAll("main [data-scripted]")) element.hidden = false;
  for (const element of form.querySelectorAll("[data-plain]")) element.hidden = true;
  code.hidden = false;
  try {
    restore();
  } catch {
    sessionStorage.removeItem(STORE);
  }
  refresh();
  scrollTo(0, turns.length > 0 ? document.documentElement.scrollHeight : 0);
})();
