// The light and the dark theme: by the system's setting, or by the user's choice.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { resident } from './support/places.mjs';
import { go, named, visitor, wearTheme } from './support/visitor.mjs';

const OTHER = { light: 'dark', dark: 'light' };
const LABELS = { light: 'Light', dark: 'Dark' };

/** The visible theme, by the brightness of background and text. */
async function seen(page) {
  const [paper, ink] = await page.evaluate(() => {
    const { backgroundColor, color } = getComputedStyle(document.body);
    const brightness = (text) => text.match(/\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 3;
    return [brightness(backgroundColor), brightness(color)];
  });
  assert.ok(Math.abs(paper - ink) > 150, `paper ${paper}, ink ${ink}`);
  return paper > ink ? 'light' : 'dark';
}

for (const theme of ['light', 'dark']) {
  test(`a ${theme} system has ${theme} pages, also before one has signed in`, async (t) => {
    for (const page of [await resident(t, { theme }), await visitor(t, { theme })]) {
      await go(page, '/portal');
      assert.equal(await seen(page), theme);
      await wearTheme(page, OTHER[theme]);
      assert.equal(await seen(page), OTHER[theme], 'it follows the system at once');
    }
  });

  test(`on a ${theme} system one chooses ${OTHER[theme]}, and it stays`, async (t) => {
    const page = await resident(t, { theme });
    await go(page, '/portal');
    await (await named(page, 'button', LABELS[OTHER[theme]])).click();
    assert.equal(await seen(page), OTHER[theme]);
    await go(page, '/portal/usage');
    assert.equal(await seen(page), OTHER[theme], 'on the next page too');
    await wearTheme(page, OTHER[theme]);
    assert.equal(await seen(page), OTHER[theme]);
    await (await named(page, 'button', LABELS[theme])).click();
    assert.equal(await seen(page), theme, 'and back');
  });
}

test('a chosen theme is applied before anything is drawn', async (t) => {
  const page = await resident(t, { theme: 'light' });
  await go(page, '/portal');
  await (await named(page, 'button', 'Dark')).click();
  await page.evaluateOnNewDocument(() => {
    // Fires as soon as the body exists, before anything is drawn.
    new MutationObserver((_, observer) => {
      if (!document.body) return;
      observer.disconnect();
      window.drawnWith = document.documentElement.dataset.theme;
    }).observe(document, { subtree: true, childList: true });
  });
  await go(page, '/portal/keys');
  assert.equal(await page.evaluate(() => window.drawnWith), 'dark');
});
