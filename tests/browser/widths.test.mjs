// Pages fit the screen: nothing scrolls sideways at any width, the last column of each table is in sight, and on a large
// screen all columns are. And they are small.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { everywhere } from './support/places.mjs';
import { wearTheme } from './support/visitor.mjs';

const SCREENS = [[390, 844], [768, 1024], [1280, 800], [1920, 1080]];

/**
 * The widths of the page and of the window; the last cells of table rows that are not wholly inside the window; and the boxes
 * of tables that scroll, so that inner columns are covered by the last one, which sticks.
 */
const measure = (page) => page.evaluate(() => {
  const { scrollWidth, clientWidth } = document.scrollingElement;
  const visible = (selector) => [...document.querySelectorAll(selector)].filter((one) => one.checkVisibility());
  const cutOff = visible('main tr > :last-child').filter((cell) => {
    const { left, right } = cell.getBoundingClientRect();
    return left < 0 || right > innerWidth + 1;
  });
  const covered = visible('main .scroll').filter((box) => box.scrollWidth > box.clientWidth);
  return {
    scrollWidth,
    clientWidth,
    cutOff: cutOff.map((cell) => cell.outerHTML.slice(0, 100)),
    covered: covered.map((box) => `${box.getAttribute('aria-label')} is ${box.scrollWidth} wide in ${box.clientWidth}`),
  };
});

/** The width at which no table scrolls. */
const LARGE = 1920;

/** The most bytes of a page with everything that it loads, compressed. */
const MOST_BYTES = 60_000;

/** The bytes of the page's body and of those of everything that it loaded, from the cache or not. */
const bytes = (page) => page.evaluate(() => {
  const [first] = performance.getEntriesByType('navigation');
  const loaded = [first, ...performance.getEntriesByType('resource')];
  return loaded.reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0);
});

test('every page fits every screen, and has at most 60 kB with its assets', async (t) => {
  const bad = [];
  await everywhere(t, {}, async (page, { name }) => {
    const loaded = await bytes(page);
    assert.ok(loaded > 5_000, `${name}: only ${loaded} bytes were measured`);
    if (loaded > MOST_BYTES) bad.push(`${name} has ${loaded} bytes`);
    for (const [width, height] of SCREENS) {
      await page.setViewport({ width, height });
      for (const theme of ['light', 'dark']) {
        await wearTheme(page, theme);
        const { scrollWidth, clientWidth, cutOff, covered } = await measure(page);
        if (scrollWidth > clientWidth) bad.push(`${name} is ${scrollWidth} wide on ${clientWidth}, ${theme}`);
        for (const cell of cutOff) bad.push(`${name} at ${width}, ${theme}: ${cell}`);
        for (const box of width === LARGE ? covered : []) bad.push(`${name} at ${width}, ${theme}: ${box}`);
      }
    }
    await page.setViewport({ width: 1280, height: 800 });
  });
  assert.deepEqual(bad, []);
});
