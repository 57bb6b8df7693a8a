// A developer whose request was refused finds out why.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { chat, ORIGIN } from './support/gateway.mjs';
import {
  clickTo, fill, follow, go, makeKey, photograph, PHONE, rowWith, signIn, signUp, textOf, visitor,
} from './support/visitor.mjs';

const PERSON = { name: 'Grete', email: 'grete@example.com', password: 'a refusal says what to do' };

/** Opens a link as from another program, e.g. a terminal, and signs in there. */
async function signInAt(page, url, { email, password }) {
  await page.goto(url);
  assert.equal(new URL(page.url()).pathname, '/portal/sign-in');
  await fill(page, 'email', email);
  await fill(page, 'password', password);
  await clickTo(page, 'button', 'Sign in');
}

test('the link in an error leads to what was wrong and what to do', async (t) => {
  const owner = await visitor(t);
  await signUp(owner, PERSON);
  const key = await makeKey(owner, 'laptop');
  const refused = await chat(key, 'Hello!', { model: 'svc-natve-fast' });
  assert.equal(refused.status, 404);
  const { error } = await refused.json();
  const id = refused.headers.get('x-request-id');
  assert.equal(error.request_url, `${ORIGIN}/portal/requests/${id}`);
  assert.equal((await chat(key, 'Hello!')).status, 402, 'there is no credit');

  const page = await visitor(t, { script: false });
  await signInAt(page, error.request_url, PERSON);
  assert.equal(page.url(), error.request_url);
  const text = await textOf(page);
  for (const told of ['Unknown model', 'svc-natve-fast', 'Check the spelling', 'laptop', '404', id]) {
    assert.ok(text.includes(told), `${told}: ${text}`);
  }
  assert.match(text, /1 time in the last hour/);
  await clickTo(page, 'link', 'See all models');
  assert.equal(await textOf(page, 'h1'), 'Models');

  // Without the link: by the ID that the client logged, or in the list.
  await clickTo(page, 'link', 'Requests');
  await page.type('main [name="id"]', id);
  await clickTo(page, 'button', 'Find');
  assert.ok((await textOf(page)).includes('Unknown model'));
  await clickTo(page, 'link', 'Refused requests');
  const row = await rowWith(page, 'Not enough credit');
  assert.ok(row.includes('402'), row.join());
  await follow(page, () => page.click('main > .scroll tbody a'));
  await go(page, '/portal/requests/find?id=nothing');
  assert.match(await textOf(page), /No matching requests/);
});

test('a refused request is readable on a phone, light and dark', async (t) => {
  for (const [theme, screen, name] of [['light', undefined, 'desktop'], ['dark', PHONE, 'phone']]) {
    const page = await visitor(t, { theme, screen });
    await signIn(page, PERSON);
    await go(page, '/portal/requests/refused');
    await photograph(page, `refused-list-${name}-${theme}`);
    await follow(page, () => page.click('main > .scroll tbody a'));
    assert.match(await textOf(page), /What to do/);
    await photograph(page, `refused-${name}-${theme}`);
    const wide = await page.evaluate(() => document.scrollingElement.scrollWidth > document.documentElement.clientWidth);
    assert.equal(wide, false, 'it does not pan sideways');
  }
});
