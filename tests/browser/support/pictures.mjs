// Screenshots of pages, for review and for the documentation.

import assert from 'node:assert/strict';
import { photograph } from './visitor.mjs';

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

/** Takes a screenshot of a page in a theme, if screenshots are wanted; and one for the documentation, if it has that picture. */
export async function picture(page, { name }, theme, size) {
  const file = `${name}-${theme}-${size}`;
  const length = await photograph(page, file);
  if (length === undefined) return;
  assert.ok(length > 5_000, `${file} is empty`);
  if (!(file in IN_DOCS)) return;
  const bytes = await photograph(page, `docs/${IN_DOCS[file]}`, { type: 'webp', quality: 80 });
  assert.ok(bytes < DOCS_BYTES, `${file} has ${bytes} bytes`);
}
