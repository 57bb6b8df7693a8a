// Billing: the history and documents equal the ledger, receipts print, and auto top-up buys.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { chat, nanos, operate } from './support/gateway.mjs';
import {
  accountOf, buyCredit, clickTo, eventually, fill, follow, go, photograph, signUp, textOf, visitor,
} from './support/visitor.mjs';

const SCREENS = [[390, 844], [1280, 800], [1920, 1080]];

/** The cells of all rows of the table with this class or position. */
const rowsOf = (page, selector) => page.$$eval(`${selector} tbody tr`, (rows) =>
  rows.map(({ cells }) => [...cells].map((cell) => cell.innerText.trim())));

const amountOf = (text) => nanos(text);

test('the history, a receipt and the statement are exact, on every screen and on paper', async (t) => {
  const page = await visitor(t);
  await signUp(page, { name: 'Emmy', email: 'emmy@example.com', password: 'invariants are conserved' });
  const account = `/operator/accounts/${await accountOf(page)}`;
  await go(page, '/portal/billing');
  assert.match(await textOf(page, '.test-mode'), /no card is charged/);
  await buyCredit(page, 'Add $10.00');
  const { data: [bought] } = await operate('GET', `${account}/grants`);
  const key = await operate('POST', `${account}/keys`, { name: 'laptop' });
  for (const content of ['One.', 'Two. [[sim tokens=77]]']) {
    await (await chat(key.key, content)).arrayBuffer();
  }
  const { balance } = await operate('GET', account);
  await go(page, '/portal/billing');
  const history = await rowsOf(page, 'table.history');
  let expected = amountOf(balance);
  for (const cells of history) {
    assert.equal(amountOf(cells.at(-1)), expected, cells.join(' '));
    expected -= amountOf(cells.at(-2));
  }
  assert.equal(expected, 0n);
  for (const [width, height] of SCREENS) {
    for (const theme of ['light', 'dark']) {
      await page.setViewport({ width, height });
      await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: theme }]);
      await photograph(page, `billing-${width}-${theme}`);
    }
  }
  await page.setViewport({ width: 1280, height: 800 });

  await clickTo(page, 'link', 'Billing details');
  await fill(page, 'bill_to', 'Emmy N.\n12 Ring Street');
  await clickTo(page, 'button', 'Save');
  await follow(page, () => page.click('a[href^="/portal/billing/receipts/"]'));
  const receipt = await textOf(page);
  for (const told of ['Receipt R-', 'Emmy N.', '12 Ring Street', 'no card was charged']) {
    assert.ok(receipt.includes(told), receipt);
  }
  const paid = await page.$$eval('main table td.number', (cells) => cells.map((cell) => cell.innerText));
  assert.deepEqual(paid.map(amountOf), [amountOf(bought.amount), amountOf(bought.amount)], 'the item and the total');
  await page.emulateMediaType('print');
  assert.ok(!(await textOf(page)).includes('Print or save'), 'the button is not printed');
  await photograph(page, 'receipt-printed');
  await page.emulateMediaType('screen');

  await go(page, '/portal/billing/statements');
  await follow(page, () => page.click('main li a'));
  const lines = await rowsOf(page, 'main');
  const amounts = lines.map((cells) => amountOf(cells.at(-1)));
  const [opening, closing] = [amounts[0], amounts.at(-1)];
  assert.equal(opening, 0n);
  assert.equal(amounts.slice(1, -1).reduce((sum, amount) => sum + amount, 0n), closing);
  assert.equal(closing, amountOf(balance));
  await photograph(page, 'statement');
});

test('auto top-up asks for consent, buys with the pretended card, and is turned off', async (t) => {
  const page = await visitor(t);
  await signUp(page, { name: 'Sophie', email: 'sophie@example.com', password: 'primes and more primes' });
  const account = `/operator/accounts/${await accountOf(page)}`;
  await go(page, '/portal/billing');
  await clickTo(page, 'link', 'Set up auto top-up');
  await fill(page, 'amount', '20');
  await fill(page, 'monthly_max', '30');
  await page.click('[name="consent"]');
  await clickTo(page, 'button', 'Turn on');
  assert.match(await textOf(page), /Auto top-up is on/);
  // The payment is there before its credit.
  await eventually(page, '/portal/billing', async () => {
    const text = await textOf(page);
    return text.includes('$20.00 of $30.00 bought this month') && text.includes('Automatic top-up');
  });
  assert.match(await textOf(page), /Monthly maximum reached\. No more credit is bought until 1 /);
  const { data: grants } = await operate('GET', `${account}/grants`);
  assert.equal(grants.length, 1, 'it bought once');
  const [{ amount }] = grants;
  const row = (await rowsOf(page, 'table.history')).find((cells) => cells[1].includes('Automatic top-up'));
  assert.deepEqual(row.slice(-2).map(amountOf), [amountOf(amount), amountOf(amount)], 'the entry, and the balance after it');
  const [said] = /\$[\d.]+(?= of \$30\.00 bought this month)/.exec(await textOf(page));
  assert.equal(amountOf(said), amountOf(amount));
  await photograph(page, 'auto-top-up-on');
  await clickTo(page, 'link', 'Turn off auto top-up');
  assert.match(await textOf(page, 'h1'), /Turn off auto top-up\?/);
  await clickTo(page, 'button', 'Turn off auto top-up');
  assert.match(await textOf(page), /Auto top-up is off/);
});
