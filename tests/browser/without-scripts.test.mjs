// With JavaScript disabled, every page can be read and a key can be created.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DEMO, nanos, operate, statusWith } from './support/gateway.mjs';
import {
  CONSOLE, CONSOLE_STATES, lead, LEAD, operator, OUTSIDE, PAGES, resident, STATES,
} from './support/places.mjs';
import { clickTo, fill, go, makeKey, photograph, signIn, textOf, visitor } from './support/visitor.mjs';

test('every page has its texts', async (t) => {
  const [inside, outside] = [await resident(t, { script: false }), await visitor(t, { script: false })];
  const consolePages = [await operator(t, { script: false }), [...CONSOLE, ...CONSOLE_STATES]];
  const team = [await lead(t, { script: false }), LEAD];
  for (const [page, places] of [[inside, [...PAGES, ...STATES]], team, consolePages, [outside, OUTSIDE]]) {
    for (const { open, name, says } of places) {
      await open(page);
      const text = await textOf(page);
      for (const words of says) assert.ok(text.includes(words), `${name} does not say ${words}: ${text}`);
      const dead = await page.$$eval('[data-copy], [data-theme-switch], [data-stop], [data-clear]', (all) => {
        return all.filter((one) => one.checkVisibility()).length;
      });
      assert.equal(dead, 0, `${name} has buttons that do nothing`);
    }
  }
});

test('the playground answers, keeps the conversation, and puts no message into an address', async (t) => {
  const page = await resident(t, { script: false });
  const addresses = [];
  page.on('request', (request) => addresses.push(request.url()));
  await go(page, '/portal/playground');
  await page.select('[name="model"]', 'svc-native-light');
  for (const [number, message] of ['Secret question', 'What did I ask?'].entries()) {
    await page.$eval('[name="message"]', (field) => { field.value = ''; });
    await fill(page, 'message', message);
    const response = await clickTo(page, 'button', 'Send');
    assert.equal(response.status(), 200);
    const text = await textOf(page, '#conversation');
    assert.match(text, /You\s+Secret question\s+svc-native-light\s+.*You said: Secret question/s);
    assert.ok(text.includes(message), text);
    assert.equal((await page.$$('.message')).length, 2 * (number + 1));
    const { cost, href } = await page.$eval('.meta a', ({ textContent, href }) => ({ cost: textContent, href }));
    const call = await operate('GET', `/operator/requests/${href.split('/').at(-1)}`);
    assert.equal(nanos(cost), nanos(call.settlement.charge));
  }
  assert.match(await textOf(page, '.meta'), / · [\d.]+ m?s in all$/);

  // The last message goes to another model too, whose answer stands beside the first one.
  await page.select('[name="model"]', 'svc-native-fast');
  await clickTo(page, 'button', 'Send the last message to this model too');
  const answers = await page.$$eval('.turn:last-child .assistant h2', (all) => all.map(({ textContent }) => textContent));
  assert.deepEqual(answers, ['svc-native-light', 'svc-native-fast']);
  const costs = await page.$$eval('.meta a', (all) => all.map(({ textContent, href }) => ({ cost: textContent, href })));
  assert.equal(costs.length, 2);
  for (const { cost, href } of costs) {
    const call = await operate('GET', `/operator/requests/${href.split('/').at(-1)}`);
    assert.equal(nanos(cost), nanos(call.settlement.charge));
  }
  for (const address of addresses) assert.doesNotMatch(address, /ecret|ask|\?/);
  await photograph(page, 'playground-without-scripts');
});

test('one signs in, makes a key that works, and signs out', async (t) => {
  const page = await visitor(t, { script: false });
  await signIn(page, DEMO);
  const key = await makeKey(page, 'plain');
  assert.equal(await statusWith(key), 200);
  await clickTo(page, 'button', 'Sign out');
  assert.equal(await textOf(page, 'h1'), 'Sign in');
});
