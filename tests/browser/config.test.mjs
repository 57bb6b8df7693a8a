// Changing the configuration in the console: a price with its preview, and going back, without scripts; the live page.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { operate } from './support/gateway.mjs';
import { operator, resident } from './support/places.mjs';
import {
  clickTo, eventually, go, isThere, PHONE, photograph, textOf, wearTheme,
} from './support/visitor.mjs';

const FORM = '/portal/console/config/models/edit?name=svc-light-coding';

const output = async () => {
  const { entries } = await operate('GET', '/operator/config');
  const entry = entries.find(({ name }) => name === 'svc-light-coding');
  return entry ? /output = "([\d.]+)"/.exec(entry.after)[1] : null;
};

/** Replaces what a field of the form has. */
async function retype(page, name, text) {
  await page.$eval(`main [name="${name}"]`, (field) => { field.value = ''; });
  await page.type(`main [name="${name}"]`, text);
}

for (const script of [true, false]) {
  test(`a price is previewed, applied and rolled back ${script ? 'with' : 'without'} scripts`, async (t) => {
    const page = await operator(t, { script });
    await go(page, FORM);
    if (script) await photograph(page, 'console-config-form');
    await retype(page, 'f.output', 'cheap');
    page.expected.push('400');
    await clickTo(page, 'button', 'Preview');
    assert.match(await textOf(page), /is "cheap"; expected US dollars per million tokens/);
    await retype(page, 'f.output', '7.60');
    await retype(page, 'note', 'for a test');
    await clickTo(page, 'button', 'Preview');
    const shown = await textOf(page);
    assert.match(shown, /Removed:\s+output = "0.76"/);
    assert.match(shown, /output = "7.60"/);
    assert.equal(await output(), null, 'a preview changes nothing');
    if (script) {
      await photograph(page, 'console-config-preview');
      await wearTheme(page, 'dark');
      await photograph(page, 'console-config-preview-dark');
      await wearTheme(page, 'light');
    }
    await clickTo(page, 'button', 'Apply');
    assert.match(await textOf(page), /svc-light-coding is saved/);
    assert.equal(await output(), '7.60');
    if (script) await photograph(page, 'console-config-changed');
    await clickTo(page, 'link', 'History');
    assert.match(await textOf(page), /for a test/);
    await clickTo(page, 'button', 'Roll back to the file');
    assert.match(await textOf(page), /Rolled back to the file/);
    assert.equal(await output(), null);
    assert.ok(await isThere(page, 'button', 'Undo'));
  });
}

test('the pages fit a phone, in both themes', async (t) => {
  const page = await operator(t, { screen: PHONE });
  for (const [name, path] of [
    ['console-config', '/portal/console/config'],
    ['console-config-form', FORM],
    ['console-config-new', '/portal/console/config/providers/new'],
    ['console-config-history', '/portal/console/config/history'],
    ['console-live', '/portal/console'],
  ]) {
    for (const theme of ['light', 'dark']) {
      await go(page, path);
      await wearTheme(page, theme);
      const wide = await page.evaluate(() => document.scrollingElement.scrollWidth > document.scrollingElement.clientWidth);
      assert.ok(!wide, `${name} pans sideways`);
      await photograph(page, `${name}-phone-${theme}`);
    }
  }
});

for (const script of [true, false]) test(`the latest requests are filtered and paused ${script ? 'with' : 'without'} scripts`, async (t) => {
  await resident(t); // who has made requests
  const page = await operator(t, { script });
  await go(page, '/portal/console');
  await page.select('main [name="model"]', 'svc-pro-coding');
  await clickTo(page, 'button', 'Show');
  const rows = await page.$$eval('#tail tbody tr', (all) => all.map(({ innerText }) => innerText));
  assert.ok(rows.length > 0 && rows.every((row) => row.includes('svc-pro-coding')), rows.join());
  await page.select('main [name="model"]', '');
  await page.select('main [name="outcome"]', 'provider_failed');
  await clickTo(page, 'button', 'Show');
  const ended = await page.$$eval('#tail tbody td:last-child', (all) => all.map(({ innerText }) => innerText.trim()));
  assert.ok(ended.length > 0 && new Set(ended).size === 1, ended.join());
  await clickTo(page, 'link', 'Pause');
  assert.equal(await page.$eval('[name="outcome"]', ({ value }) => value), 'provider_failed', 'it stays filtered');
  assert.equal(await page.$eval('#tail', (tail) => tail.hasAttribute('hx-get')), false);
  await clickTo(page, 'link', 'Resume');
  assert.equal(await page.$eval('#tail', (tail) => tail.hasAttribute('hx-get')), true);
  await eventually(page, '/portal/console', async () => (await textOf(page)).includes('By model'));
});

for (const script of [true, false]) test(`a model is disabled after a question, and enabled by Undo, ${script ? 'with' : 'without'} scripts`, async (t) => {
  const page = await operator(t, { script });
  const enabled = async () => (await operate('GET', '/operator/models/svc-flex-beta-3.6')).enabled;
  await go(page, '/portal/console/models');
  await clickTo(page, 'link', 'Disable svc-flex-beta-3.6');
  assert.match(await textOf(page), /It can no longer be called/);
  assert.equal(await enabled(), true);
  await clickTo(page, 'button', 'Disable for all accounts');
  assert.equal(await enabled(), false);
  await clickTo(page, 'button', 'Undo');
  assert.equal(await enabled(), true);
});
