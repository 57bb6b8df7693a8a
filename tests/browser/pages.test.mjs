// Every page, opened once for each audience: it has its texts and few bytes, its amounts are the ledger's, it fits every screen,
// axe finds no violation, and Tab reaches every control with a visible focus. On a phone, a laptop and a large screen, in both
// themes. Screenshots, when they are wanted, are taken here and on the phone.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { amountsOf, assertAmounts } from './support/amounts.mjs';
import { examine, OF_LAYOUT } from './support/axe.mjs';
import { assertTabOrder } from './support/focus.mjs';
import { picture } from './support/pictures.mjs';
import { everywhere, resident } from './support/places.mjs';
import { bytes, measure } from './support/size.mjs';
import { DESKTOP, go, holdRefreshes, textOf, wearTheme } from './support/visitor.mjs';

/** The most bytes of a page with everything that it loads, compressed. */
const MOST_BYTES = 60_000;
/** The width at which no table scrolls. */
const LARGE = 1920;

/**
 * The widths, with the themes in the order of the focus' way: half of each page is in the first one, the rest in the second. A
 * window is narrow on a laptop too, when text is enlarged.
 */
const SCREENS = [
  { width: 1280, themes: ['light', 'dark'] },
  { width: 390, themes: ['dark', 'light'] },
  { width: 1920, themes: ['dark', 'light'] },
  { width: 768, themes: ['light', 'dark'], onlySize: true },
];

async function assertFits(page, where, width) {
  const { scrollWidth, clientWidth, cutOff, covered } = await measure(page);
  assert.ok(scrollWidth <= clientWidth, `${where}: it is ${scrollWidth} wide on ${clientWidth}`);
  assert.deepEqual(cutOff, [], `${where}: cells are cut off`);
  if (width === LARGE) assert.deepEqual(covered, [], `${where}: columns are covered`);
}

/** Fails unless axe finds nothing: by all rules, or by those whose outcome depends on theme and width. */
async function assertAccessible(page, where, isFirst) {
  const { lines, passed } = await examine(page, isFirst ? undefined : OF_LAYOUT);
  assert.deepEqual(lines, [], where);
  const expected = isFirst ? ['color-contrast', 'document-title', 'html-has-lang', 'region'] : ['color-contrast'];
  for (const rule of expected) assert.ok(passed.includes(rule), `${where}: ${rule} was checked`);
}

/** How many amounts were seen on the pages of each audience. */
const seen = {};

everywhere('every page', {}, async (page, place, { audience, email }) => {
  const { name, says, offers, answers = 0 } = place;
  const text = await textOf(page);
  for (const words of says) assert.ok(text.includes(words), `${name} does not say ${words}: ${text}`);
  const loaded = await bytes(page);
  assert.ok(loaded > 5_000 && loaded <= MOST_BYTES, `${name} has ${loaded} bytes`);
  await holdRefreshes(page);
  const { amounts, charges } = await assertAmounts(page, name, await amountsOf(email), offers);
  assert.ok(charges >= answers, `${name}: ${charges} amounts are linked to their requests`);
  seen[audience] = (seen[audience] ?? 0) + amounts;

  for (const { width, themes, onlySize } of SCREENS) {
    await page.setViewport({ width, height: DESKTOP.height });
    for (const theme of themes.toReversed()) {
      await wearTheme(page, theme);
      const where = `${name}, ${width} pixels, ${theme}`;
      await assertFits(page, where, width);
      if (onlySize) continue;
      // All rules are checked once, at the first width in the light theme.
      await assertAccessible(page, where, width === SCREENS[0].width && theme === 'light');
      if (width === DESKTOP.width) await picture(page, place, theme, 'desktop');
    }
    if (!onlySize) await assertTabOrder(page, `${name}, ${width} pixels`, themes);
  }
  await wearTheme(page, 'light');
  await page.setViewport(DESKTOP);
});

test('amounts were seen on the pages of each audience', () => {
  for (const [audience, least] of [['customer', 200], ['frugal customer', 8], ['team lead', 40], ['operator', 100]]) {
    assert.ok(seen[audience] > least, `${audience}: only ${seen[audience]} amounts were seen`);
  }
});

test('axe finds a violation', async (t) => {
  const page = await resident(t);
  await go(page, '/portal');
  await page.evaluate(() => {
    const field = document.createElement('input');
    document.querySelector('main').append(field);
  });
  const { lines } = await examine(page);
  assert.ok(lines.some((line) => line.startsWith('critical: label')), lines.join('\n'));
});
