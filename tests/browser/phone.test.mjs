// On a phone nothing is cut off: wide elements scroll inside the page, and the page does not scroll sideways; controls are large
// enough for touch.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { picture } from './support/pictures.mjs';
import { everywhere, operator, resident } from './support/places.mjs';
import { clickTo, go, holdRefreshes, isThere, PHONE, textOf, until, wearTheme } from './support/visitor.mjs';

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

everywhere('every page on a phone', { screen: PHONE }, async (page, place) => {
  await holdRefreshes(page);
  for (const theme of ['dark', 'light']) {
    await wearTheme(page, theme);
    const where = `${place.name}, ${theme}`;
    const scrollWidth = await page.evaluate(() => document.scrollingElement.scrollWidth);
    assert.deepEqual(await sticksOut(page), [], where);
    assert.ok(scrollWidth <= PHONE.width, `${where}: it is ${scrollWidth} wide`);
    assert.deepEqual(await tooSmall(page), [], where);
    await picture(page, place, theme, 'phone');
  }
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

/** Fails unless the rows of a table in `where` are cards with these in sight. */
async function areCards(page, where) {
  const rows = await page.$$eval(`${where} tbody tr`, (all) => all.map(({ cells }) => [...cells].map((cell) => ({
    label: getComputedStyle(cell, '::before').content.replaceAll('"', ''),
    text: cell.innerText.trim(),
    right: cell.getBoundingClientRect().right,
  }))));
  assert.ok(rows.length > 0, `${where} of ${page.url()} has no rows`);
  for (const cells of rows) {
    for (const wanted of ['Model', 'Cost', 'Outcome']) {
      const cell = cells.find(({ label }) => label === wanted);
      assert.ok(cell?.text, `${wanted} is not among ${JSON.stringify(cells)}`);
    }
    for (const { label, right } of cells) assert.ok(right <= PHONE.width, `${label} ends at ${right}`);
  }
}

test('a request is a card with its model, cost and outcome in sight', async (t) => {
  const page = await resident(t, { screen: PHONE });
  await go(page, '/portal/requests');
  await areCards(page, 'main');
  await go(page, '/portal');
  await areCards(page, 'main .scroll[aria-label="Requests"]');
});

test("so it is in the console's list, and in its live page after a refresh", async (t) => {
  await resident(t); // who has made requests
  const page = await operator(t, { screen: PHONE });
  await go(page, '/portal/console/requests');
  await areCards(page, 'main');
  await go(page, '/portal/console');
  await areCards(page, '#tail');
  await page.$eval('#tail table', (table) => { table.dataset.isFirst = 'yes'; });
  await until(page, () => document.querySelector('#tail table:not([data-is-first])') !== null);
  await areCards(page, '#tail');
});
