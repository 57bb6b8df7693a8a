// API keys in a browser: create, copy, disable, enable, delete, rotate, bind.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DEMO, ORIGIN, statusWith } from './support/gateway.mjs';
import { demo } from './support/places.mjs';
import {
  clickTo, fill, go, isThere, makeKey, named, rowWith, signIn, textOf, until, visitor,
} from './support/visitor.mjs';

const KEY = /^sk-svc-[A-Za-z0-9_-]{48}$/;

async function withClipboard(page) {
  const granted = ['clipboard-read', 'clipboard-write'].map((name) => ({ permission: { name }, state: 'granted' }));
  await page.browserContext().setPermission(ORIGIN, ...granted);
}

const stateOf = async (page, name) => (await rowWith(page, name))[2];

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
  const [, prefix, , project] = await rowWith(page, 'laptop');
  assert.ok(key.startsWith(prefix.replace('…', '')) && prefix.length < 20, prefix);
  assert.equal(project, 'Default');
  assert.equal(await stateOf(page, 'laptop'), 'active');
  assert.ok(!(await page.content()).includes(key), 'a key is shown once');

  await clickTo(page, 'button', 'Disable laptop');
  assert.equal(await stateOf(page, 'laptop'), 'disabled');
  assert.equal(await statusWith(key), 401);
  await clickTo(page, 'button', 'Enable laptop');
  assert.equal(await stateOf(page, 'laptop'), 'active');
  assert.equal(await statusWith(key), 200);

  await clickTo(page, 'link', 'Delete laptop');
  assert.match(await textOf(page, 'h1'), /Delete laptop\?/);
  await clickTo(page, 'link', 'Cancel');
  assert.equal(await statusWith(key), 200);
  await clickTo(page, 'link', 'Delete laptop');
  await clickTo(page, 'button', 'Delete key');
  assert.equal(new URL(page.url()).pathname, '/portal/keys');
  assert.ok(!(await isThere(page, 'link', 'Delete laptop')));
  assert.equal(await statusWith(key), 401);
});

test('each request beside a new key can be copied, and has the key in it', async (t) => {
  const page = await demo(t);
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

test('a key of a project is rotated, and both secrets work until the grace ends', async (t) => {
  const page = await demo(t);
  await go(page, '/portal/projects');
  await fill(page, 'name', 'Night shift');
  await clickTo(page, 'button', 'Create project');
  await go(page, '/portal/keys');
  await fill(page, 'name', 'night-worker');
  await page.click('main form summary');
  const project = await page.$$eval('select[name="project"] option', (options) =>
    options.find(({ textContent }) => textContent === 'Night shift').value);
  await page.select('select[name="project"]', project);
  await clickTo(page, 'button', 'Create key');
  const old = await textOf(page, '#new-key');
  await clickTo(page, 'link', 'I have copied it');
  assert.equal((await rowWith(page, 'night-worker'))[3], 'Night shift');

  await clickTo(page, 'link', 'Edit night-worker');
  await page.select('select[name="grace"]', '3600');
  await clickTo(page, 'button', 'Rotate key');
  const fresh = await textOf(page, '#new-key');
  assert.match(fresh, KEY);
  assert.notEqual(fresh, old);
  assert.deepEqual([await statusWith(old), await statusWith(fresh)], [200, 200]);

  await clickTo(page, 'link', 'I have copied it');
  await clickTo(page, 'link', 'Edit night-worker');
  assert.match(await textOf(page), /Previous secret[^]*is valid until/);
  assert.ok(!(await page.content()).includes(fresh), 'a secret is shown once');
  await page.select('select[name="grace"]', '0');
  await clickTo(page, 'button', 'Rotate key');
  assert.match(await textOf(page, 'h1'), /Rotate night-worker now\?/);
  assert.deepEqual([await statusWith(old), await statusWith(fresh)], [200, 200]);
  await clickTo(page, 'button', 'Rotate key now');
  const last = await textOf(page, '#new-key');
  assert.deepEqual([await statusWith(old), await statusWith(fresh), await statusWith(last)], [401, 401, 200]);
});

test('the form is not sent without a name', async (t) => {
  const page = await demo(t);
  await go(page, '/portal/keys');
  await (await named(page, 'button', 'Create key')).click();
  assert.ok(await page.$('input[name="name"]:invalid:focus'), 'the field that is missing has the focus');
  assert.equal(await textOf(page, 'h1'), 'API keys');
});
