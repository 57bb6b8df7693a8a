// On a phone nothing is cut off: wide elements scroll inside the page, and the page does not scroll sideways.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { everywhere } from './support/places.mjs';
import { PHONE } from './support/visitor.mjs';

/**
 * The elements that exceed the page on the right, except inside scrolling containers. The width is that of the
 * emulated phone and not of the window, because a mobile window grows with content that does not fit.
 */
const sticksOut = (page) => page.evaluate((width) => {
  const scrolls = (element) => ['auto', 'scroll'].includes(getComputedStyle(element).overflowX);
  const held = (element) => {
    for (let above = element.parentElement; above; above = above.parentElement) if (scrolls(above)) return true;
    return false;
  };
  const wide = [...document.body.querySelectorAll('*')].filter((element) => {
    return element.checkVisibility() && element.getBoundingClientRect().right > width + 1 && !held(element);
  });
  return wide.map((element) => element.outerHTML.slice(0, 100));
}, PHONE.width);

/** The controls that are too small for touch. */
const tooSmall = (page) => page.$$eval('button, .button, nav a, input:not([type="hidden"]), select', (all) => all
  .filter((one) => one.checkVisibility())
  .map((one) => [one.outerHTML.slice(0, 80), one.getBoundingClientRect().toJSON()])
  .filter(([, { width, height }]) => width < 24 || height < 24));

test('no page scrolls sideways on a phone, and controls are large enough for touch', async (t) => {
  await everywhere(t, { screen: PHONE }, async (page, { name }) => {
    const scrollWidth = await page.evaluate(() => document.scrollingElement.scrollWidth);
    assert.deepEqual(await sticksOut(page), [], name);
    assert.ok(scrollWidth <= PHONE.width, `${name} is ${scrollWidth} wide`);
    assert.deepEqual(await tooSmall(page), [], name);
  });
});
