// Screenshots of every page for review: light and dark, on a desktop and on a phone.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { everywhere } from './support/places.mjs';
import { DESKTOP, PHONE, photograph, wearTheme } from './support/visitor.mjs';

/** The screenshots in the documentation, with their file names there. */
const IN_DOCS = {
  'overview-light-desktop': 'portal-overview',
  'usage-dark-desktop': 'portal-usage',
  'request-light-desktop': 'portal-request',
  'answered-light-phone': 'portal-phone',
  'refused-request-light-desktop': 'portal-refused',
  'requests-errors-light-desktop': 'portal-filters',
  'statement-light-desktop': 'portal-statement',
  'console-paused-dark-desktop': 'console-live',
  'console-config-model-dark-desktop': 'console-configuration',
};
/** The size limit of screenshots in the documentation, because they are part of every clone. */
const DOCS_BYTES = 100_000;

for (const [size, screen] of Object.entries({ desktop: DESKTOP, phone: PHONE })) {
  test(`every page on a ${size}`, async (t) => {
    await everywhere(t, { screen }, async (page, { name }) => {
      for (const theme of ['light', 'dark']) {
        await wearTheme(page, theme);
        const picture = `${name}-${theme}-${size}`;
        assert.ok((await photograph(page, picture)) > 5_000, `${picture} is empty`);
        if (!(picture in IN_DOCS)) continue;
        const bytes = await photograph(page, `docs/${IN_DOCS[picture]}`, { type: 'webp', quality: 80 });
        assert.ok(bytes < DOCS_BYTES, `${picture} has ${bytes} bytes`);
      }
    });
  });
}
