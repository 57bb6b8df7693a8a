// axe finds no violation on any page, in either theme.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { everywhere, resident } from './support/places.mjs';
import { go, wearTheme } from './support/visitor.mjs';

const AXE = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** The violations that axe finds, a line each, and the rules that passed. */
async function examine(page) {
  // Injected through the debugger, because the content security policy forbids foreign scripts.
  await page.evaluate(AXE);
  const { violations, passes } = await page.evaluate(() => globalThis.axe.run({ preload: false }));
  const lines = violations.flatMap(({ id, impact, help, nodes }) => nodes.map(({ html, any }) => {
    return `${impact}: ${id}: ${help}: ${html.slice(0, 160)} ${any.map(({ message }) => message).join('; ')}`;
  }));
  return { lines, passed: passes.map(({ id }) => id) };
}

test('no page has a finding in either theme', async (t) => {
  await everywhere(t, {}, async (page, { name }) => {
    for (const theme of ['light', 'dark']) {
      await wearTheme(page, theme);
      const { lines, passed } = await examine(page);
      assert.deepEqual(lines, [], `${name}, ${theme}`);
      for (const rule of ['color-contrast', 'document-title', 'html-has-lang', 'region']) {
        assert.ok(passed.includes(rule), `${name}, ${theme}: ${rule} was checked`);
      }
    }
  });
});

test('a violation is found', async (t) => {
  const page = await resident(t);
  await go(page, '/portal');
  await page.evaluate(() => {
    const field = document.createElement('input');
    document.querySelector('main').append(field);
  });
  const { lines } = await examine(page);
  assert.ok(lines.some((line) => line.startsWith('critical: label')), lines.join('\n'));
});
