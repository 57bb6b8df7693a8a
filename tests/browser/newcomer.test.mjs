// A new customer: from sign-up to the first request and its cost.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nanos, operate } from './support/gateway.mjs';
import { accountOf, buyCredit, clickTo, fill, follow, go, isThere, rowWith, signUp, textOf, visitor } from './support/visitor.mjs';

const GRANTED = '10.00';
const CURL = /^curl (\S+) \\\n\s*-H "([^"]+)" \\\n\s*-H "([^"]+)" \\\n\s*-d '(.+)'$/;

/** Sends the curl command of the page, as a shell would. */
async function sendAsWritten(text) {
  const written = CURL.exec(text.trim());
  assert.ok(written, text);
  const [, url, ...rest] = written;
  const body = rest.pop();
  return fetch(url, { method: 'POST', headers: rest.map((header) => header.split(/:\s*/)), body });
}

/** The figure of the card with this title. */
const figure = (page, title) => page.$$eval('section.card', (cards, title) => {
  const card = cards.find((card) => card.querySelector('h2').innerText === title);
  return card.querySelector('.figure').innerText;
}, title);

test('sign up, buy credit, make a key, send the request, see what it cost', async (t) => {
  const page = await visitor(t);
  await signUp(page, { name: 'Grace', email: 'grace@example.com', password: 'a compiler is a program' });
  assert.equal(await textOf(page, 'h1'), 'Overview');
  const steps = await textOf(page, '.steps');
  assert.match(steps, /Add credit/);
  assert.match(steps, /Create an API key/);
  assert.ok((await textOf(page)).includes('YOUR_API_KEY'));

  await follow(page, () => page.click('.steps a[href="/portal/billing"]'));
  assert.equal(nanos(await figure(page, 'Balance')), 0n);
  await buyCredit(page, `Add $${GRANTED}`);
  assert.match(await textOf(page, '[role="status"]'), /the credit was added/);
  const account = `/operator/accounts/${await accountOf(page)}`;
  await clickTo(page, 'link', 'Overview');
  assert.doesNotMatch(await textOf(page, '.steps'), /Add credit/);
  assert.equal(nanos(await figure(page, 'Balance')), nanos(GRANTED));

  await clickTo(page, 'link', 'Create an API key');
  await fill(page, 'name', 'first');
  await clickTo(page, 'button', 'Create key');
  const response = await sendAsWritten(await textOf(page, '.snippet pre'));
  assert.equal(response.status, 200);
  const { usage, model } = await response.json();
  const { data: [charged] } = await operate('GET', `${account}/usage`);
  const cost = nanos(charged.cost);
  assert.ok(cost > 0n);

  await go(page, '/portal');
  assert.ok(!(await isThere(page, 'heading', 'Your first request')), 'it is not the first any more');
  assert.ok((await rowWith(page, model)).some((cell) => cell.startsWith('first')));

  await clickTo(page, 'link', 'Requests');
  const request = await rowWith(page, model);
  assert.equal(Number(request[3]), usage.prompt_tokens);
  assert.equal(Number(request[4]), usage.completion_tokens);
  assert.equal(nanos(request[5]), cost);
  await follow(page, () => page.click('main tbody a'));
  const details = await textOf(page);
  assert.ok(details.includes(charged.id) && details.includes(charged.request_id), details);
  assert.equal(nanos((await textOf(page, 'tfoot td')).trim()), cost);

  await clickTo(page, 'link', 'Usage');
  assert.equal(nanos(await figure(page, 'Cost')), cost);
  assert.equal(await figure(page, 'Requests'), '1');
  assert.equal(Number(await figure(page, 'Input tokens')), usage.prompt_tokens);
  assert.equal(Number(await figure(page, 'Output tokens')), usage.completion_tokens);
  assert.equal(nanos((await rowWith(page, model))[6]), cost);

  await clickTo(page, 'link', 'Billing');
  const left = nanos(GRANTED) - cost;
  assert.equal(nanos(await figure(page, 'Balance')), left);
  assert.equal(nanos(await figure(page, 'Available')), left);
  const [, , tokens, amount, after] = await rowWith(page, 'Charges for 1 request');
  assert.equal(Number(tokens), usage.prompt_tokens + usage.completion_tokens);
  assert.equal(nanos(amount), -cost);
  assert.equal(nanos(after), left);
  const [, , , granted] = await rowWith(page, 'Credit added');
  assert.equal(nanos(granted), nanos(GRANTED));
});

test('a taken address is refused with a message, and the input is kept', async (t) => {
  const page = await visitor(t);
  page.expected.push('400');
  await signUp(page, { name: 'Not Demo', email: process.env.TOLLGATE_PORTAL_EMAIL, password: 'a password of mine' });
  assert.match(await textOf(page, '[role="alert"]'), /cannot be used/);
  assert.equal(await page.$eval('[name="name"]', ({ value }) => value), 'Not Demo');
  assert.equal(await page.$eval('[name="password"]', ({ value }) => value), '');
});
