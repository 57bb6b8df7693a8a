// Retries of the official Node library through a proxy that cuts connections: each request is charged once.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import net from 'node:net';
import { test } from 'node:test';
import OpenAI from 'openai';
import { charges, createAccount, setLimit } from './operator-api.mjs';

const MODEL = 'svc-native-fast';
// `make retries` sets more.
const ROUNDS = Number(process.env.TOLLGATE_RETRY_ROUNDS ?? 10);
const SLOW = '[[sim tokens=40 delay_ms=3 first_ms=20]]';

// Cuts each connection after a random number of bytes of its responses; or, with `waiting`, the first so many while the
// client waits, and the others never.
async function cuttingProxy({ longest = Infinity, waiting = 0 }) {
  const target = new URL(process.env.OPENAI_BASE_URL);
  const proxy = { connections: 0 };
  const server = net.createServer((client) => {
    proxy.connections += 1;
    const upstream = net.connect(Number(target.port), target.hostname);
    const cut = () => [client, upstream].forEach((socket) => socket.destroy());
    for (const socket of [client, upstream]) socket.on('error', cut).on('close', cut);
    client.pipe(upstream);
    if (proxy.connections <= waiting) return setTimeout(cut, 300);
    let left = longest === Infinity ? longest : Math.ceil(Math.random() * longest);
    upstream.on('data', (bytes) => {
      client.write(bytes.subarray(0, left));
      left -= bytes.length;
      if (left <= 0) client.end(cut);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return Object.assign(proxy, {
    baseURL: `http://127.0.0.1:${server.address().port}/v1`,
    close: () => server.close(),
  });
}

async function customer() {
  const account = await createAccount();
  await setLimit(account, MODEL, { rpm: 100_000, tpm: 1_000_000_000 });
  return account;
}

async function ask(client, key, stream) {
  const body = { model: MODEL, stream, messages: [{ role: 'user', content: `${key} ${SLOW}` }] };
  const answer = await client.chat.completions.create(body, { headers: { 'Idempotency-Key': key } });
  if (!stream) return answer.id + answer.choices[0].message.content;
  const chunks = [];
  for await (const chunk of answer) chunks.push(chunk);
  assert.ok(chunks.at(-1).choices[0].finish_reason, 'the stream was cut');
  return chunks[0].id + chunks.map(({ choices }) => choices[0].delta.content ?? '').join('');
}

for (const stream of [false, true]) {
  test(`with a key each ${stream ? 'stream' : 'request'} is charged once wherever it is cut`, async () => {
    const [account, proxy] = [await customer(), await cuttingProxy({ longest: stream ? 20_000 : 2_000 })];
    const client = new OpenAI({ apiKey: account.key, baseURL: proxy.baseURL, timeout: 30_000 });
    for (let round = 0; round < ROUNDS; round += 1) {
      const [key, answers] = [randomUUID(), []];
      while (answers.length < 2) {
        await ask(client, key, stream).then((answer) => answers.push(answer), () => {});
      }
      assert.equal(answers[0], answers[1]);
    }
    assert.ok(proxy.connections > ROUNDS);
    proxy.close();
    assert.equal(await charges(account), ROUNDS);
  });
}

test('without a key a retry of the library gets the response that was cut off', async () => {
  const [account, proxy] = [await customer(), await cuttingProxy({ waiting: 1 })];
  const client = new OpenAI({ apiKey: account.key, baseURL: proxy.baseURL, timeout: 30_000 });
  const messages = [{ role: 'user', content: '[[sim tokens=20 first_ms=1500]]' }];
  const answer = await client.chat.completions.create({ model: MODEL, messages });
  assert.equal(answer.choices[0].finish_reason, 'stop');
  assert.equal(proxy.connections, 2);
  proxy.close();
  assert.equal(await charges(account), 1);
});
