// The turns of a conversation on the page: messages, answers in columns, and what each answer cost.
"use strict";

const conversationView = (() => {
  const make = (tag, className, text = "") => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    element.textContent = text;
    return element;
  };

  const seconds = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`);
  const count = (number) => number.toLocaleString("en-US");

  // Some models write their reasoning before the answer, between these tags.
  const parts = (text) => {
    const found = /^\s*<think(?:ing)?>/.exec(text);
    if (!found) return { reasoning: "", content: text };
    const rest = text.slice(found[0].length);
    const end = /<\/think(?:ing)?>/.exec(rest);
    if (!end) return { reasoning: rest, content: "" };
    return { reasoning: rest.slice(0, end.index), content: rest.slice(end.index + end[0].length).trimStart() };
  };

  const STATES = {
    waiting: "Waiting for the answer…",
    streaming: "Answering…",
    stopped: "Stopped.",
    broken: "Interrupted.",
  };
  const FINISHES = {
    length: "Ended at the token limit.",
    content_filter: "Ended by a content filter.",
  };

  const tokens = ({ input, output, reasoning }) => {
    const hidden = reasoning > 0 ? ` (${count(reasoning)} reasoning)` : "";
    return `${count(input)} tokens in, ${count(output)} out${hidden}`;
  };

  // What is known of the charge, as words. The amount is a link to the request.
  const charged = ({ state, charge, isUnknown }) => {
    if (!charge && state !== "stopped") return [];
    if (!charge && isUnknown) return ["Its cost is listed under Requests."];
    if (!charge) return ["The model is still writing, and you pay for all of it. The cost follows."];
    const amount = document.createElement("a");
    amount.href = charge.path;
    amount.textContent = charge.cost;
    if (!charge.charged) return [amount, " (nothing was charged)"];
    return state === "stopped" ? [amount, " for the whole answer: ", tokens(charge)] : [amount, ` · ${tokens(charge)}`];
  };

  // What went wrong, with a link to the page that says what to do.
  const problem = ({ error, errorPath }) => {
    if (!errorPath) return [error];
    const link = document.createElement("a");
    link.href = errorPath;
    link.textContent = "See the request";
    return [error, " ", link];
  };

  // The line below an answer.
  const meta = (answer) => {
    const line = make("p", "meta");
    const words = [];
    const said = STATES[answer.state] ?? FINISHES[answer.finish];
    if (said) words.push([said]);
    if (answer.error) words.push(problem(answer));
    words.push(charged(answer));
    if (answer.firstMs !== undefined) words.push([`first token after ${seconds(answer.firstMs)}`]);
    if (answer.totalMs !== undefined && answer.state === "done") words.push([`${seconds(answer.totalMs)} in total`]);
    if (answer.routed && answer.routed !== answer.model) words.push([`answered by ${answer.routed}`]);
    if (isOver(answer) && !parts(answer.text).content) words.push(["Not part of the next question."]);
    for (const [number, group] of words.filter((group) => group.length > 0).entries()) {
      if (number > 0) line.append(" · ");
      line.append(...group);
    }
    return line;
  };

  const isOver = ({ state }) => state !== "waiting" && state !== "streaming";

  // One answer. `update` shows its present state.
  const answerView = (answer) => {
    const element = make("article", "message assistant");
    const body = make("div", "answer");
    const folded = make("details", "reasoning");
    const thoughts = make("p", "text");
    folded.append(make("summary", "", "Reasoning"), thoughts);
    folded.hidden = true;
    let last = make("p", "meta");
    element.append(make("h2", "", answer.model), folded, body, last);
    const update = () => {
      const { reasoning, content } = parts(answer.text);
      folded.hidden = !reasoning;
      thoughts.textContent = reasoning.trim();
      body.replaceChildren(...markdown(content));
      element.setAttribute("aria-busy", String(!isOver(answer)));
      showMeta();
    };
    const showMeta = () => {
      const next = meta(answer);
      last.replaceWith(next);
      last = next;
    };
    update();
    return { element, update, showMeta };
  };

  const turnView = (turn) => {
    const element = make("div", "turn");
    const asked = make("article", "message question");
    asked.append(make("h2", "", "You"), make("p", "text", turn.text));
    const columns = make("div", "columns");
    columns.dataset.columns = turn.answers.length;
    const answers = turn.answers.map(answerView);
    columns.append(...answers.map((one) => one.element));
    element.append(asked, columns);
    const remove = (column) => {
      for (const { element: removed } of answers.splice(column, 1)) removed.remove();
      columns.dataset.columns = answers.length;
    };
    return { element, asked, answers, remove };
  };

  return { turnView, parts, isOver, problem };
})();
