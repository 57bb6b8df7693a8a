// The way of the focus through a page, as the Tab key leads it.

import assert from 'node:assert/strict';
import { wearTheme } from './visitor.mjs';

/** The focusable elements of the page, in document order. Each gets a number. */
const usable = (page) => page.evaluate(() => {
  const all = document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"]');
  const usable = [...all].filter((one) => !one.disabled && one.type !== 'hidden' && one.checkVisibility());
  document.querySelectorAll('[data-number]').forEach((one) => { delete one.dataset.number; });
  usable.forEach((one, number) => { one.dataset.number = number; });
  return usable.map((one) => one.outerHTML.slice(0, 80));
});

/**
 * Makes the page note each element that Tab leads to, and whether its focus is visible: in sight, with an outline that
 * contrasts with what is behind it.
 */
const watchFocus = (page) => page.evaluate(() => {
  const light = (color) => {
    const [red, green, blue] = color.match(/[\d.]+/g).slice(0, 3).map((part) => {
      const value = part / 255;
      return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const paint = (element) => getComputedStyle(element).backgroundColor;
  const contrast = (element, color) => {
    let behind = element.parentElement ?? element;
    while (behind.parentElement && /, 0\)$/.test(paint(behind))) behind = behind.parentElement;
    const [dark, bright] = [light(color), light(paint(behind))].toSorted((one, other) => one - other);
    return (bright + 0.05) / (dark + 0.05);
  };
  window.stops = [];
  // When the key is released, the focus has moved and the element was scrolled into sight.
  const note = ({ key }) => {
    if (key !== 'Tab') return;
    const element = document.activeElement;
    const { outlineStyle, outlineWidth, outlineColor } = getComputedStyle(element);
    const { left, right, top, bottom, width, height } = element.getBoundingClientRect();
    const inSight = width > 0 && height > 0 && right > 0 && bottom > 0 && left < innerWidth && top < innerHeight;
    const isWide = outlineStyle !== 'none' && Number.parseFloat(outlineWidth) >= 2;
    const outlined = isWide && contrast(element, outlineColor) >= 3;
    window.stops.push({ number: Number(element.dataset.number), html: element.outerHTML.slice(0, 80), outlined, inSight });
  };
  addEventListener('keyup', note, true);
  window.stopWatching = () => removeEventListener('keyup', note, true);
});

/** Presses Tab so many times; the browser handles the keys one after another. */
const pressTab = (page, times) => Promise.all(
  Array.from({ length: times }, () => [page.keyboard.down('Tab'), page.keyboard.up('Tab')]).flat(),
);

/** The stops so far. A field for a date or time has one for each of its parts, of which the first counts. */
const stops = async (page) => (await page.evaluate(() => window.stops)).filter(({ number, html }, at, all) => (
  !html.includes('type="date') || number !== all[at - 1]?.number));

/**
 * Fails unless Tab reaches every control in order, each with a visible focus. Half of the page is in the first theme, the
 * rest in the second one. `where` names the page in messages.
 */
export async function assertTabOrder(page, where, themes) {
  await wearTheme(page, themes[0]);
  const expected = await usable(page);
  assert.match(expected[0], /Skip to content/, where);
  await page.focus('.skip');
  // Tab and Shift+Tab, because browsers do not always outline a focus that a script has set.
  await page.keyboard.press('Tab');
  await page.keyboard.down('Shift');
  await watchFocus(page);
  await page.keyboard.press('Tab');
  await page.keyboard.up('Shift');
  const half = Math.floor(expected.length / 2);
  await pressTab(page, half - 1);
  await wearTheme(page, themes[1]);
  while ((await stops(page)).length < expected.length) await pressTab(page, expected.length - (await stops(page)).length);
  const seen = await stops(page);
  for (const [number, html] of expected.entries()) {
    const stop = seen[number];
    const theme = themes[number < half ? 0 : 1];
    assert.equal(stop.number, number, `${where}: ${html} comes after ${stop.html}`);
    assert.ok(stop.outlined, `${where}, ${theme}: the focus on ${html} has no outline`);
    assert.ok(stop.inSight, `${where}, ${theme}: the focus on ${html} is out of sight`);
  }
  await page.evaluate(() => {
    window.stopWatching();
    document.activeElement.blur();
    scrollTo(0, 0);
  });
}
