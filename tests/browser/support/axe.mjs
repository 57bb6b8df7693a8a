// axe, which finds what makes a page inaccessible.

import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';

const AXE = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** The rules whose outcome depends on theme and width. */
export const OF_LAYOUT = ['color-contrast', 'link-in-text-block', 'scrollable-region-focusable', 'target-size'];

/** The violations that axe finds, a line each, and the rules that passed: of these rules, or of all. */
export async function examine(page, rules) {
  // Injected through the debugger, because the content security policy forbids foreign scripts.
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(AXE);
  const { violations, passes } = await page.evaluate(async (rules) => {
    const options = { preload: false, resultTypes: ['violations'], ...(rules && { runOnly: rules }) };
    const { violations, passes } = await globalThis.axe.run(options);
    return { violations, passes: passes.map(({ id }) => id) };
  }, rules);
  const lines = violations.flatMap(({ id, impact, help, nodes }) => nodes.map(({ html, any }) => {
    return `${impact}: ${id}: ${help}: ${html.slice(0, 160)} ${any.map(({ message }) => message).join('; ')}`;
  }));
  return { lines, passed: passes };
}
