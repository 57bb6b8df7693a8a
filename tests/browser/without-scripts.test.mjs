// With JavaScript disabled, every page can be read and a key can be created.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DEMO, statusWith } from './support/gateway.mjs';
import { CONSOLE, CONSOLE_STATES, operator, OUTSIDE, PAGES, resident, STATES } from './support/places.mjs';
import { clickTo, go, makeKey, signIn, textOf, visitor } from './support/visitor.mjs';

test('every page has its texts', async (t) => {
  const [inside, outside] = [await resident(t, { script: false }), await visitor(t, { script: false })];
  const consolePages = [await operator(t, { script: false }), [...CONSOLE, ...CONSOLE_STATES]];
  for (const [page, places] of [[inside, [...PAGES, ...STATES]], consolePages, [outside, OUTSIDE]]) {
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

test('the playground says what it needs', async (t) => {
  const page = await resident(t, { script: false });
  await go(page, '/portal/playground');
  assert.match(await textOf(page, 'noscript'), /needs JavaScript/);
});

test('one signs in, makes a key that works, and signs out', async (t) => {
  const page = await visitor(t, { script: false });
  await signIn(page, DEMO);
  const key = await makeKey(page, 'plain');
  assert.equal(await statusWith(key), 200);
  await clickTo(page, 'button', 'Sign out');
  assert.equal(await textOf(page, 'h1'), 'Sign in');
});
