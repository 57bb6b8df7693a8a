// Every control can be reached and used with the keyboard alone, and the focus is visible.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DEMO } from './support/gateway.mjs';
import { everywhere, PAGES, resident } from './support/places.mjs';
import { follow, go, isThere, textOf, visitor } from './support/visitor.mjs';

/** The focused element: its text, or the name of a field. */
const focused = (page) => page.evaluate(() => {
  const { textContent, name } = document.activeElement;
  return textContent.replaceAll(/\s+/g, ' ').trim() || name;
});

/** Presses Tab until the element with this text or name has the focus. */
async function tabTo(page, name) {
  for (let presses = 0; presses < 60; presses += 1) {
    await page.keyboard.press('Tab');
    if ((await focused(page)) === name) return;
  }
  assert.fail(`the Tab key never leads to ${name} on ${page.url()}`);
}

/** The focusable elements of the page, in document order. Each gets a number. */
const usable = (page) => page.evaluate(() => {
  const all = document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"]');
  const usable = [...all].filter((one) => !one.disabled && one.type !== 'hidden' && one.checkVisibility());
  usable.forEach((one, number) => { one.dataset.number = number; });
  return usable.map((one) => one.outerHTML.slice(0, 80));
});

/** The focused element, and whether its focus is visible. */
const focus = (page) => page.evaluate(() => {
  const element = document.activeElement;
  const { outlineStyle, outlineWidth } = getComputedStyle(element);
  const { left, right, top, bottom, width, height } = element.getBoundingClientRect();
  const inSight = width > 0 && height > 0 && right > 0 && bottom > 0 && left < innerWidth && top < innerHeight;
  const outlined = outlineStyle !== 'none' && Number.parseFloat(outlineWidth) >= 2;
  return { number: element.dataset.number, html: element.outerHTML.slice(0, 80), outlined, inSight };
});

// A window is narrow on a laptop too, when text is enlarged.
for (const width of [1280, 390]) test(`Tab reaches every control in order, with a visible focus, at ${width} pixels`, async (t) => {
  await everywhere(t, { screen: { width, height: 800 } }, async (page, { name }) => {
    const expected = await usable(page);
    assert.match(expected[0], /Skip to content/, name);
    await page.focus('.skip');
    // Tab and Shift+Tab, because browsers do not always outline a focus that a script has set.
    await page.keyboard.press('Tab');
    await page.keyboard.down('Shift');
    await page.keyboard.press('Tab');
    await page.keyboard.up('Shift');
    for (const [number, html] of expected.entries()) {
      const seen = await focus(page);
      assert.equal(seen.number, String(number), `${name}: ${html} comes after ${seen.html}`);
      assert.ok(seen.outlined, `${name}: the focus on ${html} has no outline`);
      assert.ok(seen.inSight, `${name}: the focus on ${html} is out of sight`);
      // A field for a date or time has a tab stop for each of its parts.
      do await page.keyboard.press('Tab');
      while (html.includes('type="date') && (await focus(page)).number === String(number));
    }
  });
});

test('the first tab stop is a link past the navigation', async (t) => {
  const page = await resident(t);
  for (const { open, name } of PAGES) {
    await open(page);
    await page.keyboard.press('Tab');
    assert.equal(await focused(page), 'Skip to content', name);
    const { left } = await page.$eval('.skip', (skip) => skip.getBoundingClientRect().toJSON());
    assert.ok(left >= 0, `${name}: it is seen once it has the focus`);
    await page.keyboard.press('Enter');
    await page.keyboard.press('Tab');
    const inside = await page.evaluate(() => document.activeElement.closest('main') !== null);
    assert.ok(inside, `${name}: the next one is in the content`);
  }
});

test('a key is made and deleted without a mouse, from signing in to signing out', async (t) => {
  const page = await visitor(t);
  await go(page, '/portal/sign-in');
  // The first field is focused automatically, shortly after the page is loaded.
  await page.waitForSelector('[name="email"]:focus');
  await page.keyboard.type(DEMO.email);
  await page.keyboard.press('Tab');
  await page.keyboard.type(DEMO.password);
  await follow(page, () => page.keyboard.press('Enter'));
  await tabTo(page, 'API keys');
  await follow(page, () => page.keyboard.press('Enter'));
  await tabTo(page, 'name');
  await page.keyboard.type('by hand');
  await follow(page, () => page.keyboard.press('Enter'));
  assert.match(await textOf(page, '#new-key'), /^sk-svc-/);
  await tabTo(page, 'I have copied it');
  await follow(page, () => page.keyboard.press('Enter'));
  assert.match(await textOf(page), /by hand/);
  await tabTo(page, 'Delete by hand');
  await follow(page, () => page.keyboard.press('Enter'));
  await tabTo(page, 'Delete key');
  await follow(page, () => page.keyboard.press('Space'));
  assert.match(await textOf(page), /Key by hand deleted/);
  assert.equal(await isThere(page, 'link', 'Delete by hand'), false);
  await tabTo(page, 'Sign out');
  await follow(page, () => page.keyboard.press('Enter'));
  assert.equal(await textOf(page, 'h1'), 'Sign in');
});
