// A chat request as code: for curl, Python and Node.js. The key comes from the environment.
"use strict";

const requestCode = (() => {
  const python = (value, indent = "") => {
    const deeper = `${indent}    `;
    const lines = (open, parts, close) => `${open}\n${parts.map((part) => `${deeper}${part},\n`).join("")}${indent}${close}`;
    if (value === true) return "True";
    if (value === false) return "False";
    if (Array.isArray(value)) return lines("[", value.map((one) => python(one, deeper)), "]");
    if (value && typeof value === "object") {
      return lines("{", Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${python(one, deeper)}`), "}");
    }
    // A string or number of JSON is one of Python.
    return JSON.stringify(value);
  };

  return {
    curl: (url, body) => {
      const data = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
      return [
        `curl ${url}/v1/chat/completions \\`,
        '  -H "Authorization: Bearer $OPENAI_API_KEY" \\',
        '  -H "Content-Type: application/json" \\',
        `  -d '${data}'`,
      ].join("\n");
    },
    python: (url, body) => {
      const fields = Object.entries(body).map(([name, value]) => `    ${name}=${python(value, "    ")},`);
      return [
        "# pip install openai",
        "import os",
        "from openai import OpenAI",
        "",
        `client = OpenAI(base_url="${url}/v1", api_key=os.environ["OPENAI_API_KEY"])`,
        "answer = client.chat.completions.create(",
        ...fields,
        ")",
        "print(answer.choices[0].message.content)",
      ].join("\n");
    },
    node: (url, body) => [
      "// npm install openai",
      'import OpenAI from "openai";',
      "",
      `const client = new OpenAI({ baseURL: "${url}/v1", apiKey: process.env.OPENAI_API_KEY });`,
      `const answer = await client.chat.completions.create(${JSON.stringify(body, null, 2)});`,
      "console.log(answer.choices[0].message.content);",
    ].join("\n"),
  };
})();
