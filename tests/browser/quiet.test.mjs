// No page makes the browser complain, and none lets in what it should not. (Every other test has an eye on
// complaints too; this one goes everywhere for their sake.)

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PORTAL } from './support/gateway.mjs';
import { CONSOLE, everywhere, operator, PAGES, resident } from './support/places.mjs';
import { go, textOf, visitor } from './support/visitor.mjs';

test('nothing is complained about on any page, and each says what it has to say', async (t) => {
  await everywhere(t, {}, async (page, { name, says }) => {
    const text = await textOf(page);
    for (const words of says) assert.ok(text.includes(words), `${name} does not say ${words}: ${text}`);
  });
});

test('the navigation leads to the pages that are tested here, and marks each', async (t) => {
  const page = await resident(t);
  await go(page, '/portal');
  const links = await page.$$eval('.top nav a', (all) => all.map(({ href, innerText }) => ({ href, innerText })));
  assert.equal(links.length, PAGES.length);
  for (const [number, { href, innerText }] of links.entries()) {
    await PAGES[number].open(page);
    assert.equal(page.url(), href);
    assert.equal(await textOf(page, 'h1'), innerText);
    assert.equal(await textOf(page, '.top nav [aria-current="page"]'), innerText);
  }
});

test("the console's navigation leads to the pages that are tested here, and marks each", async (t) => {
  const page = await operator(t);
  await go(page, '/portal/console');
  const links = await page.$$eval('.top nav a', (all) => all.map(({ href }) => href));
  assert.equal(links.pop(), PORTAL, 'the last one leads back');
  assert.equal(links.length, CONSOLE.length);
  for (const [number, href] of links.entries()) {
    await CONSOLE[number].open(page);
    assert.equal(page.url(), href);
    assert.equal(await page.$eval('.top nav [aria-current="page"]', (link) => link.href), href);
  }
});

test('a script or style that somebody slips in does nothing, and is complained about', async (t) => {
  const page = await visitor(t);
  const blocked = [];
  page.on('console', (message) => blocked.push(message.text()));
  page.expected.push('broke the policy', 'Content Security Policy');
  await go(page, '/portal/sign-in');
  const complained = page.evaluate(() => new Promise((done) => {
    let left = 2;
    addEventListener('securitypolicyviolation', () => { left -= 1; if (left === 0) done(); });
  }));
  await page.evaluate(() => {
    const [script, style] = [document.createElement('script'), document.createElement('style')];
    script.textContent = 'window.slippedIn = true';
    style.textContent = 'h1 { color: rgb(1, 2, 3) }';
    document.head.append(script, style);
  });
  await complained;
  assert.equal(await page.evaluate(() => window.slippedIn), undefined);
  assert.notEqual(await page.$eval('h1', (title) => getComputedStyle(title).color), 'rgb(1, 2, 3)');
  assert.ok(blocked.some((text) => text.startsWith('broke the policy: script-src')), blocked.join('\n'));
});
