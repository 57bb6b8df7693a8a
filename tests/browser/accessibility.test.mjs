// axe finds no violation on any page, in either theme, on a phone, a laptop and a large screen.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { ALL_AUDIENCES, everywhere, resident } from './support/places.mjs';
import { go, wearTheme } from './support/visitor.mjs';

const AXE = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

const WIDTHS = [1280, 390, 1920];
/** The rules whose outcome depends on theme and width. All rules are checked once, at the first width in the light theme. */
const OF_LAYOUT = ['color-contrast', 'link-in-text-block', 'scrollable-region-focusable', 'target-size'];

/** The violations that axe finds, a line each, and the rules that passed. */
async function examine(page, rules) {
  // Injected through the debugger, because the content security policy forbids foreign scripts.
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(AXE);
  const { violations, passes } = await page.evaluate((rules) => {
    return globalThis.axe.run({ preload: false, resultTypes: ['violations'], ...(rules && { runOnly: rules }) });
  }, rules);
  const lines = violations.flatMap(({ id, impact, help, nodes }) => nodes.map(({ html, any }) => {
    return `${impact}: ${id}: ${help}: ${html.slice(0, 160)} ${any.map(({ message }) => message).join('; ')}`;
  }));
  return { lines, passed: passes.map(({ id }) => id) };
}

for (const audience of ALL_AUDIENCES) test(`no page of a ${audience} has a finding in either theme, at any width`, async (t) => {
  await everywhere(t, {}, async (page, { name }) => {
    for (const width of WIDTHS) {
      await page.setViewport({ width, height: 800 });
      for (const theme of ['light', 'dark']) {
        await wearTheme(page, theme);
        const isFirst = width === WIDTHS[0] && theme === 'light';
        const expected = isFirst ? ['color-contrast', 'document-title', 'html-has-lang', 'region'] : ['color-contrast'];
        const { lines, passed } = await examine(page, isFirst ? undefined : OF_LAYOUT);
        const where = `${name}, ${width} pixels, ${theme}`;
        assert.deepEqual(lines, [], where);
        for (const rule of expected) assert.ok(passed.includes(rule), `${where}: ${rule} was checked`);
      }
    }
    await page.setViewport({ width: WIDTHS[0], height: 800 });
  }, [audience]);
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
