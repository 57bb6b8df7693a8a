// On a phone nothing is cut off: what is wide scrolls by itself, never the page.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { everywhere } from './support/places.mjs';
import { PHONE } from './support/visitor.mjs';

/**
 * What sticks out of the page on the right, other than inside something that scrolls. It is not the window
 * that is asked how wide it is: on a phone it grows with what does not fit.
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

/** What is too small for a finger, of what one presses. */
const tooSmall = (page) => page.$$eval('button, .button, nav a, input:not([type="hidden"]), select', (all) => all
  .filter((one) => one.checkVisibility())
  .map((one) => [one.outerHTML.slice(0, 80), one.getBoundingClientRect().toJSON()])
  .filter(([, { width, height }]) => width < 24 || height < 24));

test('no page scrolls sideways at the width of a phone, and a finger finds what one presses', async (t) => {
  await everywhere(t, { screen: PHONE }, async (page, { name }) => {
    const scrollWidth = await page.evaluate(() => document.scrollingElement.scrollWidth);
    assert.deepEqual(await sticksOut(page), [], name);
    assert.ok(scrollWidth <= PHONE.width, `${name} is ${scrollWidth} wide`);
    assert.deepEqual(await tooSmall(page), [], name);
  });
});
