// The gateway under test, as programs see it: the operator's API, and the one that is sold.

import assert from 'node:assert/strict';

export const PORTAL = process.env.TOLLGATE_PORTAL_URL;
export const ORIGIN = new URL(PORTAL).origin;
/** Whoever `tollgate dev` has ready. */
export const DEMO = {
  email: process.env.TOLLGATE_PORTAL_EMAIL,
  password: process.env.TOLLGATE_PORTAL_PASSWORD,
};

/** A call of the operator API. */
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

/** A chat completion with this key, as any program would ask for it. */
export function chat(key, content, more = {}) {
  const { model = 'svc-native-fast', signal, ...rest } = more;
  return fetch(`${ORIGIN}/v1/chat/completions`, {
    method: 'POST',
    signal,
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model, messages: [{ role: 'user', content }], ...rest }),
  });
}

/** Whether the key is taken: 200 or 401. */
export async function statusWith(key) {
  const response = await chat(key, 'Hello!');
  await response.arrayBuffer();
  return response.status;
}

/** Billionths of a dollar, of an amount as a page or the API writes it. */
export function nanos(text) {
  const written = /^([+−-]?)\$?([\d,]+)(?:\.(\d{1,9}))?$/.exec(text.trim());
  assert.ok(written, `${JSON.stringify(text)} is no amount of money`);
  const [, sign, whole, decimals = ''] = written;
  const amount = BigInt(whole.replaceAll(',', '')) * 1_000_000_000n + BigInt(decimals.padEnd(9, '0'));
  return sign === '−' || sign === '-' ? -amount : amount;
}
