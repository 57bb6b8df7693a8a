// API clients of the gateway under test: the operator API and the public API.

import assert from 'node:assert/strict';

export const PORTAL = process.env.TOLLGATE_PORTAL_URL;
export const ORIGIN = new URL(PORTAL).origin;
/** The demo person of `tollgate dev`. */
export const DEMO = {
  email: process.env.TOLLGATE_PORTAL_EMAIL,
  password: process.env.TOLLGATE_PORTAL_PASSWORD,
};

/** Sends a request to the operator API and returns the JSON body. */
export async function operate(method, path, body) {
  const response = await fetch(process.env.TOLLGATE_OPERATOR_URL + path, {
    method,
    headers: { authorization: `Bearer ${process.env.TOLLGATE_OPERATOR_TOKEN}` },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${text}`);
  return JSON.parse(text);
}

/** Sends a chat completion with this key. */
export function chat(key, content, more = {}) {
  const { model = 'svc-native-fast', signal, ...rest } = more;
  return fetch(`${ORIGIN}/v1/chat/completions`, {
    method: 'POST',
    signal,
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model, messages: [{ role: 'user', content }], ...rest }),
  });
}

/** The status of a chat completion with this key: 200, or 401 if the key is refused. */
export async function statusWith(key) {
  const response = await chat(key, 'Hello!');
  await response.arrayBuffer();
  return response.status;
}

/** The nano-dollars of an amount as written by a page or the API. */
export function nanos(text) {
  const written = /^([+−-]?)\$?([\d,]+)(?:\.(\d{1,9}))?$/.exec(text.trim());
  assert.ok(written, `${JSON.stringify(text)} is no amount of money`);
  const [, sign, whole, decimals = ''] = written;
  const amount = BigInt(whole.replaceAll(',', '')) * 1_000_000_000n + BigInt(decimals.padEnd(9, '0'));
  return sign === '−' || sign === '-' ? -amount : amount;
}
