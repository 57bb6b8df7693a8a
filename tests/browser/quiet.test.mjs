// The navigation leads to every page, and the content security policy blocks injected code.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PORTAL } from './support/gateway.mjs';
import { CONSOLE, operator, PAGES, resident } from './support/places.mjs';
import { clickTo, go, isThere, textOf, visitor } from './support/visitor.mjs';

test('the navigation links to all tested pages and marks the current one', async (t) => {
  const page = await resident(t);
  await go(page, '/portal');
  const links = await page.$$eval('.places nav:not(.sides) a', (all) => all.map(({ href, innerText }) => ({ href, innerText })));
  assert.equal(links.length, PAGES.length);
  for (const [number, { href, innerText }] of links.entries()) {
    await PAGES[number].open(page);
    assert.equal(page.url(), href);
    assert.equal(await textOf(page, 'h1'), innerText);
    assert.equal(await textOf(page, 'nav [aria-current="page"]'), innerText);
  }
});

test("the console's navigation links to all tested pages and marks the current one", async (t) => {
  const page = await operator(t);
  await go(page, '/portal/console');
  const links = await page.$$eval('.places nav:not(.sides) a', (all) => all.map(({ href }) => href));
  assert.equal(links.length, CONSOLE.length);
  for (const [number, href] of links.entries()) {
    await CONSOLE[number].open(page);
    assert.equal(page.url(), href);
    assert.equal(await page.$eval('nav [aria-current="page"]', (link) => link.href), href);
  }
});

test('operators switch between portal and console, customers see no switch', async (t) => {
  const page = await operator(t);
  await go(page, '/portal/console/alerts');
  await clickTo(page, 'link', 'Portal');
  assert.equal(page.url(), PORTAL);
  await clickTo(page, 'link', 'Console');
  assert.equal(await textOf(page, 'h1'), 'Live');
  const customer = await resident(t);
  await go(customer, '/portal');
  assert.equal(await isThere(customer, 'link', 'Console'), false);
});

test('an injected script or style is blocked and reported', async (t) => {
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
