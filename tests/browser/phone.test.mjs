// On a phone nothing is cut off: wide elements scroll inside the page, and the page does not scroll sideways.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { everywhere, resident } from './support/places.mjs';
import { clickTo, go, isThere, PHONE, textOf } from './support/visitor.mjs';

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
const tooSmall = (page) => page.$$eval('button, .button, nav a, summary, input:not([type="hidden"]), select', (all) => all
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

test('the menu is closed at first, names the page, and opens without a script', async (t) => {
  const page = await resident(t, { screen: PHONE, script: false });
  await go(page, '/portal/keys');
  assert.match(await textOf(page, '.menu summary'), /API keys/);
  assert.equal(await isThere(page, 'link', 'Requests'), false);
  await page.click('.menu summary');
  await clickTo(page, 'link', 'Requests');
  assert.equal(await textOf(page, 'h1'), 'Requests');
  assert.match(await textOf(page, '.menu summary'), /Requests/);
});

test('a request is a card with its model, cost and outcome in sight', async (t) => {
  const page = await resident(t, { screen: PHONE });
  await go(page, '/portal/requests');
  const cells = await page.$$eval('main tbody tr:first-child td', (all) => all.map((cell) => ({
    label: getComputedStyle(cell, '::before').content.replaceAll('"', ''),
    right: cell.getBoundingClientRect().right,
  })));
  const labels = cells.map(({ label }) => label);
  for (const label of ['Model', 'Cost']) assert.ok(labels.includes(label), `${label} is not among ${labels}`);
  for (const { label, right } of cells) assert.ok(right <= PHONE.width, `${label} ends at ${right}`);
});
