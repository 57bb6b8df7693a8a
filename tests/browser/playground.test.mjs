// The playground: a response is shown as it streams, can be stopped, and is charged.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DEMO, nanos } from './support/gateway.mjs';
import { eventually, fill, go, named, rowWith, signIn, textOf, until, visitor } from './support/visitor.mjs';

const MODEL = 'svc-native-light';
const TOKENS = 20;
const DELAY_MS = 60;

async function open(page) {
  await signIn(page, DEMO);
  await go(page, '/portal/playground');
  await page.select('[name="model"]', MODEL);
}

async function sendMessage(page, message) {
  await page.$eval('[name="message"]', (field) => { field.value = ''; });
  await fill(page, 'message', message);
  await send(page);
}

const send = async (page) => (await named(page, 'button', 'Send')).click();
const stop = async (page) => (await named(page, 'button', 'Stop')).click();

/** Waits for a response of more than `length` characters. */
const answered = (page, length) => until(page, (length) => {
  return document.querySelector('.message.assistant p')?.textContent.length > length;
}, length);
/** Waits until the status line contains the text. */
const statusHas = (page, text) => until(page, (text) => {
  return document.querySelector('#playground-status').textContent.includes(text);
}, text);

const isDisabled = (page) => page.$eval('#playground [type="submit"]', ({ disabled }) => disabled);

/** Records each change of the response, with its time and length. */
const watchAnswer = (page) => page.evaluate(() => {
  window.growth = [];
  new MutationObserver(() => {
    const length = document.querySelector('.message.assistant p')?.textContent.length ?? 0;
    if (length !== (window.growth.at(-1)?.length ?? 0)) window.growth.push({ at: performance.now(), length });
  }).observe(document.querySelector('#conversation'), { subtree: true, childList: true, characterData: true });
});

test('a response streams in steps, and its cost is shown', async (t) => {
  const page = await visitor(t);
  await open(page);
  await watchAnswer(page);
  await sendMessage(page, `[[sim tokens=${TOKENS} delay_ms=${DELAY_MS}]]`);
  await answered(page, 0);
  assert.equal(await isDisabled(page), true);
  await statusHas(page, 'tokens in');
  assert.equal(await isDisabled(page), false);

  const growth = await page.evaluate(() => window.growth);
  const lengths = growth.map(({ length }) => length);
  assert.ok(lengths.length >= TOKENS / 2, `it came in ${lengths.length} steps`);
  assert.deepEqual(lengths, lengths.toSorted((a, b) => a - b));
  // The pauses are between the steps; a response that was buffered and shown at once would have none.
  const took = growth.at(-1).at - growth[0].at;
  assert.ok(took > (TOKENS / 2) * DELAY_MS, `it came within ${took} ms`);
  await statusHas(page, '$');
  assert.match(await textOf(page, '#playground-status'), new RegExp(`${TOKENS} out`));
  const price = await textOf(page, '#playground-status a');

  await go(page, `/portal/requests?model=${MODEL}`);
  const [, key, , input, output, cost, , ending] = await rowWith(page, MODEL);
  assert.match(key, /^Playground/);
  assert.ok(Number(input) > 0);
  assert.equal(Number(output), TOKENS);
  assert.ok(nanos(cost) > 0n);
  assert.equal(nanos(price), nanos(cost));
  assert.equal(ending, 'Answered');
});

test('a response is stopped, its text stays, and another request can be sent', async (t) => {
  const page = await visitor(t);
  await open(page);
  await sendMessage(page, '[[sim tokens=120 delay_ms=50]]');
  await answered(page, 20);
  await stop(page);
  await statusHas(page, 'Stopped');
  const text = await textOf(page, '.message.assistant p');
  const words = text.split(' ').length;
  assert.ok(words > 2 && words < 120, text);
  assert.equal(await page.$eval('[data-stop]', ({ hidden }) => hidden), true);
  assert.equal(await isDisabled(page), false);

  await (await named(page, 'button', 'New conversation')).click();
  assert.equal((await textOf(page, '#conversation')).trim(), '');
  await send(page);
  await answered(page, 0);
  await stop(page);
  await statusHas(page, 'Stopped');
  const left = async () => (await page.$$eval('main tbody tr', (rows) => rows.length)) === 2;
  await eventually(page, `/portal/requests?model=${MODEL}&outcome=client_left`, left);
});

test('an error is shown, and the conversation goes on', async (t) => {
  const page = await visitor(t);
  page.expected.push('502');
  await open(page);
  await sendMessage(page, '[[sim status=500]]');
  await statusHas(page, 'provider');
  assert.equal(await page.$eval('[name="message"]', ({ value }) => value), '[[sim status=500]]', 'it is kept');
  await sendMessage(page, 'Are you there?');
  await statusHas(page, 'tokens in');
  assert.match(await textOf(page, '#conversation article:last-child'), /You said: Are you there\?/);
});
