// Renders Markdown as DOM nodes. A model's text becomes text nodes and is never parsed as HTML; links lead to http, https
// and mailto addresses, and images are shown as links.
"use strict";

const markdown = (() => {
  const MAX_DEPTH = 8;
  // How far the end of emphasis, code or a link is searched. It bounds the time for hostile texts.
  const WINDOW = 2000;
  // How often the end of emphasis is looked for in vain in a paragraph. After that its markers are text.
  const MAX_MISSES = 200;
  const SAFE = ["http:", "https:", "mailto:"];

  // `children` is a text, a node, or a list of them.
  const make = (tag, children = []) => {
    const element = document.createElement(tag);
    for (const child of [children].flat()) element.append(child);
    return element;
  };

  const safeUrl = (text) => {
    try {
      const url = new URL(text);
      return SAFE.includes(url.protocol) ? url.href : null;
    } catch {
      return null;
    }
  };

  const link = (href, children) => {
    const element = make("a", children);
    element.href = href;
    element.rel = "noopener noreferrer";
    element.target = "_blank";
    return element;
  };

  // The position of the closing marker, or -1. Emphasis does not end after a space, and `*` is not a part of `**`.
  const closing = (text, marker, from) => {
    const near = text.slice(from, from + WINDOW);
    let at = near.indexOf(marker, 1);
    while (at !== -1) {
      let run = at;
      while (near[run] === marker[0]) run += 1;
      const isWord = marker[0] === "_" && /\w/.test(text[from + run] ?? "");
      if (!/\s/.test(near[at - 1]) && !isWord) {
        if (marker.length === run - at) return from + at;
        if (marker.length < run - at && marker.length === 2) return from + run - 2;
      }
      at = near.indexOf(marker, run);
    }
    return -1;
  };

  const EMPHASIS = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];

  const emphasis = (text, at, depth) => {
    for (const [marker, tag] of EMPHASIS) {
      if (!text.startsWith(marker, at)) continue;
      const inside = at + marker.length;
      if (/\s/.test(text[inside] ?? " ")) continue;
      if (marker[0] === "_" && /\w/.test(text[at - 1] ?? "")) continue;
      const end = closing(text, marker, inside);
      if (end === -1) continue;
      return [make(tag, inline(text.slice(inside, end), depth + 1)), end + marker.length];
    }
    return null;
  };

  const codeSpan = (text, at) => {
    let ticks = at;
    while (text[ticks] === "`") ticks += 1;
    const marker = text.slice(at, ticks);
    const end = text.slice(ticks, ticks + WINDOW).indexOf(marker);
    if (end === -1) return [document.createTextNode(marker), ticks];
    const inside = text.slice(ticks, ticks + end);
    return [make("code", inside.length > 2 ? inside.replace(/^ (.*) $/s, "$1") : inside), ticks + end + marker.length];
  };

  // `[text](address)`, and `![text](address)`, which is shown as a link too.
  const linkAt = (text, at, depth) => {
    const from = text[at] === "!" ? at + 2 : at + 1;
    const near = text.slice(from, from + WINDOW / 2);
    const middle = near.indexOf("](");
    if (middle === -1 || near.slice(0, middle).includes("\n\n")) return null;
    let end = middle + 2;
    for (let open = 1; end < near.length; end += 1) {
      if (near[end] === "(") open += 1;
      if (near[end] === ")") open -= 1;
      if (open === 0) break;
    }
    if (near[end] !== ")") return null;
    const [address = ""] = near.slice(middle + 2, end).trim().split(/\s/, 1);
    const url = safeUrl(address.replace(/^<|>$/g, ""));
    if (!url) return null;
    const label = near.slice(0, middle) || address;
    return [link(url, inline(label, MAX_DEPTH > depth ? depth + 1 : depth, true)), from + end + 1];
  };

  const bareUrl = (text, at) => {
    const [found] = /^(?:https?:\/\/)[^\s<>"`]+/.exec(text.slice(at, at + WINDOW)) ?? [];
    if (!found) return null;
    let end = found.length;
    // A full stop or a bracket after an address is not part of it, unless the bracket was opened in it.
    while (".,;:!?)*_'".includes(found[end - 1]) && !(found[end - 1] === ")" && found.includes("("))) end -= 1;
    const url = safeUrl(found.slice(0, end));
    return url && [link(url, found.slice(0, end)), at + end];
  };

  const SPECIAL = /[\\`*_~![<h\n]/g;

  function inline(text, depth = 0, inLink = false) {
    if (depth > MAX_DEPTH) return [text];
    const nodes = [];
    let plain = "";
    let at = 0;
    let misses = 0;
    const take = (found) => {
      if (plain) nodes.push(plain);
      plain = "";
      nodes.push(found[0]);
      at = found[1];
    };
    while (at < text.length) {
      SPECIAL.lastIndex = at;
      const next = SPECIAL.exec(text)?.index ?? text.length;
      plain += text.slice(at, next);
      at = next;
      if (at === text.length) break;
      const one = text[at];
      let found = null;
      if (one === "\\" && /[!-/:-@[-`{-~]/.test(text[at + 1] ?? "")) {
        plain += text[at + 1];
        at += 2;
        continue;
      }
      if (one === "\n") {
        plain = plain.trimEnd();
        found = [make("br"), at + 1];
      } else if (one === "`") {
        found = codeSpan(text, at);
      } else if ("*_~".includes(one)) {
        if (misses < MAX_MISSES) found = emphasis(text, at, depth);
        // A run of markers that opens nothing is text as a whole.
        if (!found) {
          misses += 1;
          const from = at;
          while (text[at] === one) at += 1;
          plain += text.slice(from, at);
          continue;
        }
      } else if (!inLink && (one === "[" || (one === "!" && text[at + 1] === "["))) {
        found = linkAt(text, at, depth);
      } else if (!inLink && one === "<") {
        const inside = /^<((?:https?|mailto):[^\s<>]{1,1000})>/.exec(text.slice(at, at + 1010))?.[1];
        const url = inside && safeUrl(inside);
        if (url) found = [link(url, inside), at + inside.length + 2];
      } else if (!inLink && one === "h" && !/\w/.test(text[at - 1] ?? "")) {
        found = bareUrl(text, at);
      }
      if (found) {
        take(found);
      } else {
        plain += one;
        at += 1;
      }
    }
    if (plain) nodes.push(plain);
    return nodes;
  }

  const FENCE = /^ {0,3}(`{3,}|~{3,}) *([\w+#.-]*)/;
  const HEADING = /^ {0,3}(#{1,6})(?: +|$)/;
  const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?: {1,4}|$)/;
  const isRule = (line) => line.length < 200 && /^ {0,3}(?:(?:- *){3,}|(?:\* *){3,}|(?:_ *){3,})$/.test(line);
  const isTable = (lines, at) => lines[at].includes("|") && lines[at].length < 20_000
    && /^[ |:-]{3,2000}$/.test(lines[at + 1] ?? "") && lines[at + 1].includes("-") && lines[at + 1].includes("|");
  const isBlank = (line) => line.trim() === "";
  const begins = (lines, at) => FENCE.test(lines[at]) || HEADING.test(lines[at]) || ITEM.test(lines[at])
    || /^ {0,3}>/.test(lines[at]) || isRule(lines[at]) || isTable(lines, at);

  const codeBlock = (text, language) => {
    const pre = make("pre", make("code", text));
    pre.tabIndex = 0;
    pre.setAttribute("aria-label", language ? `Code, ${language}` : "Code");
    const label = make("span", "Copy");
    label.dataset.copyLabel = "";
    const unseen = make("span", " the code");
    unseen.className = "unseen";
    const button = make("button", [label, unseen]);
    button.type = "button";
    button.className = "quiet";
    button.dataset.copy = "";
    enableCopy(button);
    const block = make("div", [pre, button]);
    block.className = "copyable";
    return block;
  };

  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").slice(0, 50).map((cell) => cell.trim());

  const table = (lines) => {
    const row = (line, tag) => make("tr", cells(line).map((text) => {
      const cell = make(tag, inline(text, 1));
      if (tag === "th") cell.scope = "col";
      return cell;
    }));
    const [head, , ...body] = lines;
    const rows = body.map((line) => row(line, "td"));
    const scroll = make("div", make("table", [make("thead", row(head, "th")), make("tbody", rows)]));
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", "Table");
    return scroll;
  };

  // A list, and the line after it.
  const list = (lines, from, context) => {
    const kind = (line) => ITEM.exec(line)?.[2].at(-1);
    const first = kind(lines[from]);
    const ordered = /[.)]/.test(first);
    const element = make(ordered ? "ol" : "ul");
    if (ordered) element.start = Number.parseInt(lines[from].trim(), 10);
    let at = from;
    while (at < lines.length && kind(lines[at]) === first && !isRule(lines[at])) {
      const [marker, lead] = ITEM.exec(lines[at]);
      const indented = new RegExp(`^(?: {${lead.length + 2}}|\\t)`);
      const stripped = new RegExp(`^ {1,${Math.min(marker.length, 8)}}|^\\t`);
      const inside = [lines[at].slice(marker.length)];
      for (at += 1; at < lines.length; at += 1) {
        const line = lines[at];
        const goesOn = indented.test(line) || (isBlank(line) && indented.test(lines[at + 1] ?? ""))
          || (!isBlank(line) && !isBlank(lines[at - 1]) && !begins(lines, at));
        if (!goesOn) break;
        inside.push(line.replace(stripped, ""));
      }
      const children = blocks(inside, context.depth + 1, context.outline);
      const isTight = children.length > 0 && children[0].tagName === "P";
      if (isTight) children.splice(0, 1, ...children[0].childNodes);
      element.append(make("li", children));
      if (at + 1 < lines.length && isBlank(lines[at]) && kind(lines[at + 1]) === first) at += 1;
    }
    return [element, at];
  };

  // The level in the page: answers are below an h2, and no level is skipped.
  const headingTag = (level, outline) => {
    while (outline.length > 0 && outline.at(-1) >= level) outline.pop();
    outline.push(level);
    return `h${Math.min(2 + outline.length, 6)}`;
  };

  function blocks(lines, depth, outline) {
    if (depth > MAX_DEPTH) return [make("p", lines.join("\n"))];
    const nodes = [];
    let at = 0;
    const taken = (holds) => {
      const from = at;
      while (at < lines.length && holds(lines[at], at)) at += 1;
      return lines.slice(from, at);
    };
    while (at < lines.length) {
      const line = lines[at];
      const fence = FENCE.exec(line);
      const heading = HEADING.exec(line);
      if (isBlank(line)) {
        at += 1;
      } else if (fence) {
        at += 1;
        const text = taken((next) => !(next.trim().startsWith(fence[1]) && next.trim().length === fence[1].length));
        at += 1;
        nodes.push(codeBlock(text.join("\n"), fence[2]));
      } else if (heading) {
        at += 1;
        nodes.push(make(headingTag(heading[1].length, outline), inline(line.slice(heading[0].length).trim())));
      } else if (isRule(line)) {
        at += 1;
        nodes.push(make("hr"));
      } else if (/^ {0,3}>/.test(line)) {
        const quoted = taken((next) => /^ {0,3}>/.test(next)).map((next) => next.replace(/^ {0,3}> ?/, ""));
        nodes.push(make("blockquote", blocks(quoted, depth + 1, outline)));
      } else if (ITEM.test(line)) {
        const [element, after] = list(lines, at, { depth, outline });
        nodes.push(element);
        at = after;
      } else if (isTable(lines, at)) {
        nodes.push(table(taken((next) => next.includes("|"))));
      } else {
        const from = at;
        const text = taken((next, number) => !isBlank(next) && (number === from || !begins(lines, number)));
        nodes.push(make("p", inline(text.join("\n"))));
      }
    }
    return nodes;
  }

  return (text) => blocks(text.replaceAll("\r\n", "\n").split("\n"), 0, []);
})();
