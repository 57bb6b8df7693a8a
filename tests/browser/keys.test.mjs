// API keys in a browser: create, copy, disable, enable, delete.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DEMO, ORIGIN, statusWith } from './support/gateway.mjs';
import {
  clickTo, fill, go, isThere, makeKey, named, rowWith, signIn, textOf, until, visitor,
} from './support/visitor.mjs';

const KEY = /^sk-svc-[A-Za-z0-9_-]{48}$/;

async function withClipboard(page) {
  const granted = ['clipboard-read', 'clipboard-write'].map((name) => ({ permission: { name }, state: 'granted' }));
  await page.browserContext().setPermission(ORIGIN, ...granted);
}

test('a key is made, shown once, copied, disabled, enabled and deleted', async (t) => {
  const page = await visitor(t);
  await signIn(page, DEMO);
  assert.equal(page.url(), `${ORIGIN}/portal`);

  await clickTo(page, 'link', 'API keys');
  await fill(page, 'name', 'laptop');
  await clickTo(page, 'button', 'Create key');
  const key = await textOf(page, '#new-key');
  assert.match(key, KEY);
  assert.equal(await statusWith(key), 200);

  await withClipboard(page);
  await (await named(page, 'button', 'Copy the key')).click();
  await until(page, () => document.querySelector('[data-copy]').textContent.startsWith('Copied'));
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), key);

  await clickTo(page, 'link', 'I have copied it');
  const [, prefix, state] = await rowWith(page, 'laptop');
  assert.ok(key.startsWith(prefix.replace('…', '')) && prefix.length < 20, prefix);
  assert.equal(state, 'active');
  assert.ok(!(await page.content()).includes(key), 'a key is shown once');

  await clickTo(page, 'button', 'Disable laptop');
  assert.equal((await rowWith(page, 'laptop'))[2], 'disabled');
  assert.equal(await statusWith(key), 401);
  await clickTo(page, 'button', 'Enable laptop');
  assert.equal((await rowWith(page, 'laptop'))[2], 'active');
  assert.equal(await statusWith(key), 200);

  await clickTo(page, 'link', 'Delete laptop');
  assert.match(await textOf(page, 'h1'), /Delete laptop\?/);
  await clickTo(page, 'link', 'Keep it');
  assert.equal(await statusWith(key), 200);
  await clickTo(page, 'link', 'Delete laptop');
  await clickTo(page, 'button', 'Delete the key');
  assert.equal(new URL(page.url()).pathname, '/portal/keys');
  assert.ok(!(await isThere(page, 'link', 'Delete laptop')));
  assert.equal(await statusWith(key), 401);
});

test('each request beside a new key can be copied, and has the key in it', async (t) => {
  const page = await visitor(t);
  await signIn(page, DEMO);
  await withClipboard(page);
  const key = await makeKey(page, 'snippets');
  const snippets = await page.$$('.snippet');
  assert.equal(snippets.length, 5);
  for (const snippet of snippets) {
    if (!(await snippet.evaluate(({ open }) => open))) await (await snippet.$('summary')).click();
    await (await snippet.$('[data-copy]')).click();
    await until(page, () => document.querySelectorAll('.snippet[open] [data-copy]').values()
      .some(({ textContent }) => textContent.startsWith('Copied')));
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    assert.equal(copied, await snippet.$eval('code', ({ textContent }) => textContent));
    assert.ok(copied.includes(key) && copied.includes(ORIGIN), copied);
  }
});

test('the form is not sent without a name', async (t) => {
  const page = await visitor(t);
  await signIn(page, DEMO);
  await go(page, '/portal/keys');
  await (await named(page, 'button', 'Create key')).click();
  assert.ok(await page.$('input[name="name"]:invalid:focus'), 'the field that is missing has the focus');
  assert.equal(await textOf(page, 'h1'), 'API keys');
});
