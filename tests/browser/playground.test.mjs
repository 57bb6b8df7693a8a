// The playground: answers of one or of several models are shown as they stream, can be stopped, and cost what the ledger
// says.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { DEMO, nanos, operate } from './support/gateway.mjs';
import { demo } from './support/places.mjs';
import {
  clickTo, fill, go, isThere, makeKey, named, PHONE, photograph, rowWith, signIn, textOf, until, visitor, wearTheme,
} from './support/visitor.mjs';

const run = promisify(execFile);
const MODEL = 'svc-native-light';
const OTHER = 'svc-native-fast';
const TOKENS = 20;
const DELAY_MS = 60;
const ANSWER = '.message.assistant .answer';

async function open(page, model = MODEL) {
  await go(page, '/portal/playground');
  await page.select('[name="model"]', model);
}

async function write(page, message) {
  await page.$eval('[name="message"]', (field) => { field.value = ''; });
  await fill(page, 'message', message);
}

async function sendMessage(page, message) {
  await write(page, message);
  await press(page, 'Send');
}

const press = async (page, name) => (await named(page, 'button', name)).click();
const isDisabled = (page) => page.$eval('#playground [type="submit"]', ({ disabled }) => disabled);
const hasFocus = (page) => page.evaluate(() => document.activeElement.name);
const draft = (page) => page.$eval('[name="message"]', ({ value }) => value);

/** Waits for an answer of more than `length` characters. */
const answered = (page, length) => until(page, (selector, length) => {
  return [...document.querySelectorAll(selector)].at(-1)?.textContent.length > length;
}, ANSWER, length);
/** Waits until this number of answers have their cost. */
const costs = async (page, number) => {
  await until(page, (number) => document.querySelectorAll('.message .meta a').length === number, number);
  return page.$$eval('.message .meta a', (all) => all.map(({ textContent, href }) => ({ cost: textContent, href })));
};
const statusHas = (page, text) => until(page, (text) => {
  return document.querySelector('#playground-status').textContent.includes(text);
}, text);

/** The call as the ledger has it. */
const inLedger = ({ href }) => operate('GET', `/operator/requests/${href.split('/').at(-1)}`);

/** Compares an amount on the page with the ledger's and returns the call. */
async function charged({ cost, href }) {
  const call = await inLedger({ href });
  assert.equal(nanos(cost), nanos(call.settlement.charge));
  return call;
}

/** Records the bodies that the page sends to models. */
function recordRequests(page) {
  const bodies = [];
  page.on('request', (request) => {
    if (request.url().endsWith('/portal/playground/run')) bodies.push(JSON.parse(request.postData()));
  });
  return bodies;
}

test('Ctrl+Enter sends, the answer streams in steps, and its cost is that of the ledger', async (t) => {
  const page = await demo(t);
  await open(page);
  await page.evaluate(() => {
    window.growth = [];
    new MutationObserver(() => {
      const length = document.querySelector('.message.assistant .answer')?.textContent.length ?? 0;
      if (length !== (window.growth.at(-1)?.length ?? 0)) window.growth.push({ at: performance.now(), length });
    }).observe(document.querySelector('#conversation'), { subtree: true, childList: true, characterData: true });
  });
  await write(page, `[[sim tokens=${TOKENS} delay_ms=${DELAY_MS}]]`);
  await page.focus('[name="message"]');
  await page.keyboard.down('Control');
  await page.keyboard.press('Enter');
  await page.keyboard.up('Control');
  await answered(page, 0);
  assert.equal(await isDisabled(page), true);
  assert.deepEqual([await hasFocus(page), await draft(page)], ['message', '']);
  const [shown] = await costs(page, 1);
  assert.equal(await isDisabled(page), false);
  const order = await page.$$eval('#conversation, .composer', (all) => all.map((one) => one.id || one.className));
  assert.deepEqual(order, ['conversation', 'composer'], 'the conversation stands above the composer');
  const [end, start] = await Promise.all([
    page.$eval('#conversation', (one) => one.getBoundingClientRect().bottom),
    page.$eval('.composer', (one) => one.getBoundingClientRect().top),
  ]);
  assert.ok(end <= start, `the conversation ends at ${end}, the composer begins at ${start}`);

  const growth = await page.evaluate(() => window.growth);
  const lengths = growth.map(({ length }) => length);
  assert.ok(lengths.length >= TOKENS / 2, `it came in ${lengths.length} steps`);
  assert.deepEqual(lengths, lengths.toSorted((a, b) => a - b));
  // The pauses are between the steps; a response that was buffered and shown at once would have none.
  const took = growth.at(-1).at - growth[0].at;
  assert.ok(took > (TOKENS / 2) * DELAY_MS, `it came within ${took} ms`);

  const call = await charged(shown);
  assert.equal(call.settlement.usage.completion_tokens, TOKENS);
  const meta = await textOf(page, '.message .meta');
  assert.match(meta, new RegExp(`${TOKENS} out`));
  assert.match(meta, /first token after .*in total/);
  assert.match(await textOf(page, '#playground-spoken'), new RegExp(`^${MODEL} answered: `));
  await go(page, `/portal/requests?model=${MODEL}`);
  const row = await rowWith(page, MODEL);
  assert.match(row[1], /^Playground/);
});

test('two models answer side by side, each with its own conversation and cost', async (t) => {
  const page = await demo(t);
  const bodies = recordRequests(page);
  await open(page);
  await press(page, 'Compare with another model');
  await page.select('.another select', OTHER);
  await sendMessage(page, '[[sim tokens=12]]');
  const first = await costs(page, 2);
  const calls = await Promise.all(first.map(charged));
  assert.deepEqual(calls.map(({ model }) => model), [MODEL, OTHER]);
  assert.deepEqual(bodies.map(({ model }) => model), [MODEL, OTHER]);
  const places = await page.$$eval('.message.assistant', (all) => all.map((one) => {
    const { top, left } = one.getBoundingClientRect();
    return { top: Math.round(top), left };
  }));
  assert.equal(places[0].top, places[1].top);
  assert.ok(places[0].left < places[1].left);
  await photograph(page, 'playground-compare');

  const answers = await page.$$eval(ANSWER, (all) => all.map(({ textContent }) => textContent));
  await sendMessage(page, 'And now?');
  await costs(page, 4);
  for (const [column, body] of bodies.slice(2).entries()) {
    assert.deepEqual(body.messages.map(({ role }) => role), ['user', 'assistant', 'user']);
    assert.equal(body.messages[1].content.trim(), answers[column].trim());
  }
  for (const shown of await costs(page, 4)) await charged(shown);
});

test('a model that is removed takes its own answers out of the conversation, and no others', async (t) => {
  const page = await demo(t);
  const bodies = recordRequests(page);
  await open(page);
  // The simulator's answer quotes the message, so each model gets one of its own.
  await page.evaluate(() => {
    const send = window.fetch;
    window.fetch = (url, options) => {
      if (!url.endsWith('/run')) return send(url, options);
      const body = JSON.parse(options.body);
      body.messages.at(-1).content += ` (to ${body.model})`;
      return send(url, { ...options, body: JSON.stringify(body) });
    };
  });
  await press(page, 'Compare with another model');
  await page.select('.another select', OTHER);
  await press(page, 'Compare with another model');
  const third = await page.$eval('.another:last-of-type select', ({ value }) => value);
  await sendMessage(page, 'Who are you?');
  await costs(page, 3);
  await press(page, 'Remove');
  assert.equal((await page.$$(ANSWER)).length, 2);
  await sendMessage(page, 'And now?');
  await costs(page, 4);
  const models = [MODEL, third];
  const second = bodies.slice(3);
  assert.deepEqual(second.map(({ model }) => model), models);
  for (const [column, { messages }] of second.entries()) {
    assert.deepEqual(messages.map(({ role }) => role), ['user', 'assistant', 'user']);
    assert.ok(messages[1].content.includes(`Who are you? (to ${models[column]})`), messages[1].content);
  }
  // While answers arrive, the columns stay.
  await sendMessage(page, '[[sim first_ms=1500 tokens=5]]');
  assert.equal(await isThere(page, 'button', 'Stop'), true);
  assert.equal(await isThere(page, 'button', 'Remove'), false);
  await costs(page, 6);
  assert.equal(await isThere(page, 'button', 'Remove'), true);

  // A model that is no longer on offer goes in the same way when the page is loaded again.
  await page.evaluateOnNewDocument(() => {
    const state = JSON.parse(sessionStorage.getItem('playground'));
    if (state?.models.length !== 2) return;
    state.models.splice(1, 0, 'svc-gone');
    for (const { answers } of state.turns) answers.splice(1, 0, { ...answers[1], text: 'of the other' });
    sessionStorage.setItem('playground', JSON.stringify(state));
  });
  await page.reload();
  assert.deepEqual(await page.$$eval('.models select', (all) => all.map(({ value }) => value)), models);
  await sendMessage(page, 'Still there?');
  await costs(page, 8);
  const last = bodies.at(-1).messages.map(({ content }) => content);
  assert.equal(bodies.at(-1).model, third);
  assert.ok(last[1].includes(`(to ${third})`), last[1]);
});

test('a stopped answer is charged as a whole, and is part of the next question', async (t) => {
  const page = await demo(t);
  const bodies = recordRequests(page);
  await open(page);
  assert.match(await textOf(page, '.composer'), /The model still writes it, and you pay for all of it/);
  await sendMessage(page, '[[sim tokens=60 delay_ms=50]]');
  await answered(page, 20);
  await press(page, 'Stop');
  await statusHas(page, 'Stopped. The model still writes its answer, and you pay for all of it');
  assert.equal(await hasFocus(page), 'message');
  const text = (await textOf(page, ANSWER)).trim();
  assert.ok(text.split(' ').length < 50, text);
  assert.equal(await isThere(page, 'button', 'Stop'), false);
  assert.match(await textOf(page, '.message .meta'), /The model is still writing/);

  const [shown] = await costs(page, 1);
  const call = await charged(shown);
  assert.equal(call.outcome, 'client_left');
  assert.equal(call.settlement.usage.completion_tokens, 60, 'all of it is charged');
  assert.match(await textOf(page, '.message .meta'), /for the whole answer: .* 60 out/);
  await statusHas(page, `cost ${shown.cost}`);

  await sendMessage(page, 'Go on.');
  await costs(page, 2);
  const [, next] = bodies;
  assert.deepEqual(next.messages.map(({ role }) => role), ['user', 'assistant', 'user']);
  assert.equal(next.messages[1].content.trim(), text);
});

test('an answer that is stopped before its first word is charged too', async (t) => {
  const page = await demo(t);
  const bodies = recordRequests(page);
  await open(page);
  await sendMessage(page, '[[sim tokens=5 first_ms=1500]]');
  await press(page, 'Stop');
  const [shown] = await costs(page, 1);
  await charged(shown);
  assert.match(await textOf(page, '.message .meta'), /Not part of the next question/);
  await sendMessage(page, 'Hello?');
  await costs(page, 2);
  assert.equal(bodies[1].messages.length, 1);
});

test('an error is shown, the message is kept, and the conversation goes on', async (t) => {
  const page = await demo(t);
  page.expected.push('502');
  await open(page);
  await sendMessage(page, '[[sim status=500]]');
  await statusHas(page, 'provider');
  assert.equal(await draft(page), '[[sim status=500]]');
  assert.equal((await textOf(page, '#conversation')).trim(), '');
  const link = await page.$eval('#playground-status a', ({ textContent, pathname }) => [textContent, pathname]);
  assert.equal(link[0], 'See the request');
  assert.match(link[1], /^\/portal\/requests\/play_[0-9a-f]{32}$/);
  await sendMessage(page, 'Are you there?');
  await costs(page, 1);
  assert.match(await textOf(page, ANSWER), /You said: Are you there\?/);
});

test('settings are sent, except those that a model does not take', async (t) => {
  const page = await demo(t);
  const bodies = recordRequests(page);
  await open(page);
  await (await page.$('.settings summary')).click();
  for (const [field, value] of [['system', 'Be brief.'], ['temperature', '0.5'], ['max_tokens', '64'], ['stop', 'END']]) {
    await fill(page, field, value);
  }
  await page.select('[name="reasoning_effort"]', 'low');
  await page.click('[name="json"]');
  await sendMessage(page, 'Hello');
  await costs(page, 1);
  const { model, messages, stream, stream_options, ...settings } = bodies[0];
  assert.deepEqual(messages, [{ role: 'system', content: 'Be brief.' }, { role: 'user', content: 'Hello' }]);
  assert.deepEqual(settings, {
    temperature: 0.5, max_tokens: 64, stop: ['END'], reasoning_effort: 'low', response_format: { type: 'json_object' },
  });
  const particular = await page.$('option[data-without~="temperature"]');
  if (!particular) return t.diagnostic('the demo account has no model that drops a setting');
  const chosen = await particular.evaluate(({ value }) => value);
  await page.select('[name="model"]', chosen);
  assert.equal(await page.$eval('[name="temperature"]', ({ disabled }) => disabled), true);
  const notes = await textOf(page, '[data-notes]');
  assert.ok(notes.startsWith(`Empty settings are not sent. ${chosen} does not take temperature`), notes);
  assert.equal(notes.match(/does not take/g).length, 1, notes);
  await sendMessage(page, 'Hello again');
  await costs(page, 2);
  assert.equal('temperature' in bodies[1], false);
  assert.equal(bodies[1].max_tokens, 64);
});

test('the last message is edited and sent again, and clearing can be undone', async (t) => {
  const page = await demo(t);
  const bodies = recordRequests(page);
  await open(page);
  await sendMessage(page, 'One');
  await costs(page, 1);
  await sendMessage(page, 'Two');
  await costs(page, 2);
  await press(page, 'Edit and send again');
  assert.deepEqual([await hasFocus(page), await draft(page)], ['message', 'Two']);
  await press(page, 'Cancel editing');
  await press(page, 'Edit and send again');
  await sendMessage(page, 'Three');
  await until(page, () => document.querySelectorAll('.message.question').length === 2);
  await costs(page, 2);
  assert.deepEqual(bodies.at(-1).messages.filter(({ role }) => role === 'user').map(({ content }) => content), ['One', 'Three']);

  await press(page, 'Clear');
  assert.equal((await textOf(page, '#conversation')).trim(), '');
  assert.equal(await hasFocus(page), 'message');
  await press(page, 'Undo');
  assert.match(await textOf(page, '#conversation'), /Three/);
});

test('a conversation survives a reload, also in the middle of an answer, and ends with signing out', async (t) => {
  const page = await visitor(t); // who signs out
  await signIn(page, DEMO);
  await open(page);
  await sendMessage(page, 'Remember me');
  await costs(page, 1);
  await sendMessage(page, '[[sim tokens=40 delay_ms=50]]');
  await answered(page, 20);
  await page.reload();
  assert.match(await textOf(page, '#conversation'), /Remember me[^]*Stopped\./);
  assert.equal(await page.$eval('[name="model"]', ({ value }) => value), MODEL);
  const [, stopped] = await costs(page, 2);
  const call = await charged(stopped);
  assert.equal(call.settlement.usage.completion_tokens, 40);
  await clickTo(page, 'button', 'Sign out');
  assert.equal(await page.evaluate(() => sessionStorage.getItem('playground')), null);
  await signIn(page, DEMO);
  await go(page, '/portal/playground');
  assert.equal((await textOf(page, '#conversation')).trim(), '');
});

test('the request runs as curl, with the conversation and the settings', async (t) => {
  const page = await demo(t);
  const key = await makeKey(page, 'for curl');
  await go(page, '/portal/playground');
  await page.select('[name="model"]', MODEL);
  await sendMessage(page, 'First');
  await costs(page, 1);
  await (await page.$('.settings summary')).click();
  await fill(page, 'max_tokens', '64');
  await write(page, "It's \"quoted\" $HOME `id` \\ é");
  await (await page.$('.code summary')).click();
  const code = (language) => page.$eval(`[data-language="${language}"] code`, ({ textContent }) => textContent);
  await until(page, () => document.querySelector('[data-language="curl"] code').textContent);
  const curl = await code('curl');
  assert.ok(!curl.includes(key));
  const { stdout } = await run('bash', ['-c', `${curl.replace('curl ', 'curl -sS --noproxy "*" ')}`], {
    env: { ...process.env, OPENAI_API_KEY: key },
  });
  const answer = JSON.parse(stdout);
  assert.match(answer.choices[0].message.content, /It's "quoted" \$HOME `id` \\ é/);
  const body = JSON.parse(/-d '([^]*)'$/.exec(curl)[1].replaceAll("'\\''", "'"));
  assert.deepEqual(body.messages.map(({ role }) => role), ['user', 'assistant', 'user']);
  assert.equal(body.max_tokens, 64);
  // The others are valid, and have that request too.
  const python = await code('python');
  await run('python3', ['-c', 'import ast, sys; ast.parse(sys.argv[1])', python]);
  assert.ok(python.includes('max_tokens=64'));
  const file = join(await mkdtemp(join(tmpdir(), 'playground-')), 'request.mjs');
  await writeFile(file, await code('node'));
  await run('node', ['--check', file]);
  await rm(dirname(file), { recursive: true });
  assert.ok((await code('node')).includes('"max_tokens": 64'));
});

test('the playground works on a phone and in the dark', async (t) => {
  const page = await demo(t, { screen: PHONE });
  await open(page);
  await press(page, 'Compare with another model');
  await sendMessage(page, '[[sim tokens=30]]');
  await costs(page, 2);
  const wide = await page.evaluate(() => document.scrollingElement.scrollWidth);
  assert.ok(wide <= PHONE.width, `it is ${wide} wide`);
  for (const theme of ['light', 'dark']) {
    await wearTheme(page, theme);
    await photograph(page, `playground-compare-${theme}-phone`);
  }
});
