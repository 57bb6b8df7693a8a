// With JavaScript disabled, every page can be read on every screen and in both themes, and what a script makes easier works:
// the playground, making, rotating and disabling a key, and granting credit.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { amountsOf, assertAmounts } from './support/amounts.mjs';
import { DEMO, nanos, operate, statusWith } from './support/gateway.mjs';
import { demo, everywhere, operator, resident } from './support/places.mjs';
import {
  clickTo, DESKTOP, fill, go, makeKey, photograph, rowWith, signIn, textOf, visitor, wearTheme,
} from './support/visitor.mjs';

const SCREENS = [DESKTOP, { width: 390, height: 844 }, { width: 1920, height: 1080 }];

/** The page as it is now: its text, its width, and what it must not show without a script. */
const seen = (page) => page.evaluate(() => {
  const { scrollWidth, clientWidth } = document.scrollingElement;
  const [red] = getComputedStyle(document.body).backgroundColor.match(/\d+/g);
  const dead = document.querySelectorAll('[data-copy], [data-theme-switch], [data-stop], [data-clear], [data-print]');
  return {
    text: document.querySelector('main').innerText,
    pans: scrollWidth > clientWidth,
    theme: red > 127 ? 'light' : 'dark',
    dead: [...dead].filter((one) => one.checkVisibility()).length,
  };
});

everywhere('every page without scripts', { script: false }, async (page, place, { email }) => {
  const { name, says, saysPlain = says, offers, answers = 0 } = place;
  const { charges } = await assertAmounts(page, name, await amountsOf(email), offers);
  assert.ok(charges >= answers, `${name}: ${charges} amounts are linked to their requests`);
  for (const screen of SCREENS) {
    await page.setViewport(screen);
    for (const theme of ['light', 'dark']) {
      await wearTheme(page, theme);
      const where = `${name} at ${screen.width}, ${theme}`;
      const { text, pans, dead, ...shown } = await seen(page);
      assert.equal(shown.theme, theme, where);
      assert.equal(pans, false, `${where} pans sideways`);
      assert.equal(dead, 0, `${where} has buttons that do nothing`);
      // On a phone the names of columns are the labels of cells, which are no text.
      const words = screen.width === 390 ? [] : saysPlain;
      for (const said of words) assert.ok(text.includes(said), `${where} does not say ${said}: ${text}`);
      assert.ok(text.trim().length > 20, `${where} says ${text}`);
    }
  }
  await page.setViewport(DESKTOP);
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
  assert.match(await textOf(page, '.meta'), / · [\d.]+ m?s in total$/);

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

test('a key is disabled and enabled by Undo, and rotated after a question', async (t) => {
  const page = await demo(t, { script: false });
  const old = await makeKey(page, 'without');
  await go(page, '/portal/keys');
  await clickTo(page, 'button', 'Disable without');
  assert.match(await textOf(page, '[role="status"]'), /Key without disabled/);
  assert.equal(await statusWith(old), 401);
  await clickTo(page, 'button', 'Undo');
  assert.equal((await rowWith(page, 'without'))[2], 'active');
  assert.equal(await statusWith(old), 200);

  const rotate = async () => {
    await clickTo(page, 'link', 'Edit without');
    await page.select('[name="grace"]', '0');
    await clickTo(page, 'button', 'Rotate key');
    assert.equal(await textOf(page, 'h1'), 'Rotate without now?');
  };
  await rotate();
  await clickTo(page, 'link', 'Cancel');
  assert.equal(await statusWith(old), 200, 'a question changes nothing');
  await go(page, '/portal/keys');
  await rotate();
  await clickTo(page, 'button', 'Rotate key now');
  const fresh = await textOf(page, '#new-key');
  assert.deepEqual([await statusWith(old), await statusWith(fresh)], [401, 200]);
});

test('credit is granted after a question, which can be cancelled', async (t) => {
  await resident(t);
  const page = await operator(t, { script: false });
  await go(page, '/portal/console/accounts?text=ada%40example.com');
  await clickTo(page, 'link', 'ada@example.com');
  const { pathname } = new URL(page.url());
  const account = `/operator/accounts/${pathname.split('/').at(-1)}`;
  const grants = async () => (await operate('GET', `${account}/grants`)).data;
  const before = await grants();
  const ask = async () => {
    await fill(page, 'amount', '7.25');
    await fill(page, 'reason', 'paid by transfer');
    await clickTo(page, 'button', 'Grant credit');
    assert.equal(await textOf(page, 'h1'), 'Grant $7.25 to ada@example.com?');
  };
  await ask();
  await clickTo(page, 'link', 'Cancel');
  assert.equal(new URL(page.url()).pathname, pathname);
  await ask();
  assert.equal((await grants()).length, before.length, 'a question grants nothing');
  await clickTo(page, 'button', 'Grant $7.25');
  const told = await textOf(page, '[role="status"]');
  const known = new Set(before.map(({ id }) => id));
  const given = (await grants()).filter(({ id }) => !known.has(id));
  assert.equal(given.length, 1);
  assert.equal(given[0].reason, 'paid by transfer');
  assert.equal(nanos(/\$[\d.]+/.exec(told)[0]), nanos(given[0].amount));
});
