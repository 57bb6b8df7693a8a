// The playground: an answer grows while it is written, can be stopped, and is paid for.

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

async function ask(page, message) {
  await page.$eval('[name="message"]', (field) => { field.value = ''; });
  await fill(page, 'message', message);
  await send(page);
}

const send = async (page) => (await named(page, 'button', 'Send')).click();
const stop = async (page) => (await named(page, 'button', 'Stop')).click();

/** Waits for an answer of more than so many letters. */
const answered = (page, letters) => until(page, (letters) => {
  return document.querySelector('.said.assistant p')?.textContent.length > letters;
}, letters);
const told = (page, words) => until(page, (words) => {
  return document.querySelector('#told').textContent.includes(words);
}, words);

const isDisabled = (page) => page.$eval('#playground [type="submit"]', ({ disabled }) => disabled);

/** Writes down when the answer changed, and how long it was then. */
const watchAnswer = (page) => page.evaluate(() => {
  window.growth = [];
  new MutationObserver(() => {
    const length = document.querySelector('.said.assistant p')?.textContent.length ?? 0;
    if (length !== (window.growth.at(-1)?.length ?? 0)) window.growth.push({ at: performance.now(), length });
  }).observe(document.querySelector('#conversation'), { subtree: true, childList: true, characterData: true });
});

test('an answer grows in steps, and its cost is written down', async (t) => {
  const page = await visitor(t);
  await open(page);
  await watchAnswer(page);
  await ask(page, `[[sim tokens=${TOKENS} delay_ms=${DELAY_MS}]]`);
  await answered(page, 0);
  assert.equal(await isDisabled(page), true);
  await told(page, 'tokens in');
  assert.equal(await isDisabled(page), false);

  const growth = await page.evaluate(() => window.growth);
  const lengths = growth.map(({ length }) => length);
  assert.ok(lengths.length >= TOKENS / 2, `it came in ${lengths.length} steps`);
  assert.deepEqual(lengths, lengths.toSorted((a, b) => a - b));
  // The pauses lie between the steps: an answer that was held back and shown at once has none.
  const took = growth.at(-1).at - growth[0].at;
  assert.ok(took > (TOKENS / 2) * DELAY_MS, `it came within ${took} ms`);
  await told(page, '$');
  assert.match(await textOf(page, '#told'), new RegExp(`${TOKENS} out`));
  const price = await textOf(page, '#told a');

  await go(page, `/portal/requests?model=${MODEL}`);
  const [, key, , input, output, cost, , ending] = await rowWith(page, MODEL);
  assert.match(key, /^Playground/);
  assert.ok(Number(input) > 0);
  assert.equal(Number(output), TOKENS);
  assert.ok(nanos(cost) > 0n);
  assert.equal(nanos(price), nanos(cost));
  assert.equal(ending, 'Answered');
});

test('an answer is stopped, what came of it stays, and the next one can be asked for', async (t) => {
  const page = await visitor(t);
  await open(page);
  await ask(page, '[[sim tokens=120 delay_ms=50]]');
  await answered(page, 20);
  await stop(page);
  await told(page, 'Stopped');
  const said = await textOf(page, '.said.assistant p');
  const words = said.split(' ').length;
  assert.ok(words > 2 && words < 120, said);
  assert.equal(await page.$eval('[data-stop]', ({ hidden }) => hidden), true);
  assert.equal(await isDisabled(page), false);

  await (await named(page, 'button', 'New conversation')).click();
  assert.equal((await textOf(page, '#conversation')).trim(), '');
  await send(page);
  await answered(page, 0);
  await stop(page);
  await told(page, 'Stopped');
  const left = async () => (await page.$$eval('main tbody tr', (rows) => rows.length)) === 2;
  await eventually(page, `/portal/requests?model=${MODEL}&outcome=client_left`, left);
});

test('what goes wrong is said, and the conversation goes on', async (t) => {
  const page = await visitor(t);
  page.expected.push('502');
  await open(page);
  await ask(page, '[[sim status=500]]');
  await told(page, 'provider');
  assert.equal(await page.$eval('[name="message"]', ({ value }) => value), '[[sim status=500]]', 'it is kept');
  await ask(page, 'Are you there?');
  await told(page, 'tokens in');
  assert.match(await textOf(page, '#conversation article:last-child'), /You said: Are you there\?/);
});
