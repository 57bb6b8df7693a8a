// What people do, done with the keyboard alone. (That Tab reaches every control is a check of every page.)

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sum } from './support/books.mjs';
import { DEMO, nanos, operate } from './support/gateway.mjs';
import { operator, PAGES, resident } from './support/places.mjs';
import { follow, go, isThere, rowWith, textOf, visitor } from './support/visitor.mjs';

/** The focused element: its text, the name of a field, the target of a link. */
const focused = (page) => page.evaluate(() => {
  const { textContent, name, href } = document.activeElement;
  return { text: textContent.replaceAll(/\s+/g, ' ').trim(), name, href };
});

/** Presses Tab until the element with this text, name or target has the focus. */
async function tabTo(page, wanted) {
  const is = wanted instanceof RegExp
    ? ({ href }) => wanted.test(href)
    : ({ text, name }) => text === wanted || name === wanted;
  for (let presses = 0; presses < 200; presses += 1) {
    await page.keyboard.press('Tab');
    if (is(await focused(page))) return;
  }
  assert.fail(`the Tab key never leads to ${wanted} on ${page.url()}`);
}

/** Tabs to an element and presses Enter, which opens another page. */
async function enter(page, wanted) {
  await tabTo(page, wanted);
  return follow(page, () => page.keyboard.press('Enter'));
}

test('the first tab stop is a link past the navigation', async (t) => {
  const page = await resident(t);
  for (const { open, name } of PAGES) {
    await open(page);
    await page.keyboard.press('Tab');
    assert.equal((await focused(page)).text, 'Skip to content', name);
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

test('one finds why a request was refused, filters requests, and disables a key and undoes it, without a mouse', async (t) => {
  const page = await resident(t, { theme: 'dark' });
  await go(page, '/portal');
  await enter(page, 'Requests');
  await enter(page, 'Why requests were refused');
  await enter(page, 'Unknown model');
  assert.equal(new URL(page.url()).searchParams.get('code'), 'model_not_found');
  await enter(page, /\/portal\/requests\/refused_/);
  assert.match(await textOf(page), /What to do[^]*Check the spelling/);
  await enter(page, 'See all models');
  assert.equal(await textOf(page, 'h1'), 'Models');

  await enter(page, 'Requests');
  await tabTo(page, 'model');
  await page.keyboard.type('svc-native-fast');
  await tabTo(page, 'outcome');
  await page.keyboard.type('Answered');
  await enter(page, 'Show');
  assert.equal(new URL(page.url()).search, '?model=svc-native-fast&outcome=answered');
  const ended = await page.$$eval('main tbody td:last-child', (cells) => cells.map(({ textContent }) => textContent));
  assert.ok(ended.length > 0 && ended.every((text) => text === 'Answered'), ended.join());

  await enter(page, 'API keys');
  await enter(page, 'Disable laptop');
  assert.match(await textOf(page, '[role="status"]'), /Key laptop disabled/);
  assert.equal((await rowWith(page, 'nightly tests'))[2], 'active');
  assert.equal((await page.$$eval('main tbody tr', (rows) => rows.map(({ innerText }) => innerText)))
    .filter((text) => text.includes('disabled')).length, 2);
  await enter(page, 'Undo');
  assert.match(await textOf(page, '[role="status"]'), /Key laptop enabled/);
});

test('an operator disables a model, undoes it, and grants credit without a mouse', async (t) => {
  const page = await operator(t);
  const enabled = async () => (await operate('GET', '/operator/models/svc-light-coding')).enabled;
  await go(page, '/portal/console');
  await enter(page, 'Models');
  await enter(page, 'Disable svc-light-coding');
  assert.equal(await textOf(page, 'h1'), 'Disable svc-light-coding?');
  assert.equal(await enabled(), true, 'a question changes nothing');
  await enter(page, 'Disable for all accounts');
  assert.equal(await enabled(), false);
  await enter(page, 'Undo');
  assert.equal(await enabled(), true);

  await enter(page, 'Accounts');
  await tabTo(page, 'text');
  await page.keyboard.type('frugal@example.com');
  await follow(page, () => page.keyboard.press('Enter'));
  await enter(page, 'frugal@example.com');
  const account = `/operator/accounts/${page.url().split('/').at(-1)}`;
  const granted = async () => sum((await operate('GET', `${account}/grants`)).data.map(({ amount }) => nanos(amount)));
  const before = await granted();
  await tabTo(page, 'amount');
  await page.keyboard.type('0.25');
  await tabTo(page, 'reason');
  await page.keyboard.type('a gift');
  await enter(page, 'Grant credit');
  assert.equal(await textOf(page, 'h1'), 'Grant $0.25 to frugal@example.com?');
  assert.equal(await granted(), before, 'a question grants nothing');
  await enter(page, 'Grant $0.25');
  assert.match(await textOf(page, '[role="status"]'), /\$0\.25 granted/);
  assert.equal(await granted(), before + nanos('0.25'));
});
