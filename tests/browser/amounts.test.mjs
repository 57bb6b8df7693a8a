// The figures that people look for first are the ledger's, on the right place. (That every amount on a page follows from the
// ledger's entries is a check of every page.)

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { amountsIn, booksOf, booksOfAll, leftBy, spentOf, sum, sums } from './support/books.mjs';
import { nanos, operate } from './support/gateway.mjs';
import { frugal, lead, operator, resident } from './support/places.mjs';
import { accountOf, go, rowWith, textOf } from './support/visitor.mjs';

/** The figure of the card with this title: the exact one of its title, where it is rounded. */
const figure = (page, title) => page.$$eval('section.card', (cards, title) => {
  const shown = cards.find((card) => card.querySelector('h2')?.innerText === title).querySelector('.figure');
  return shown.title || shown.innerText;
}, title);

/** What the list of details says of this term. */
const detail = (page, term) => page.$$eval('dl dt', (terms, term) => (
  terms.find(({ innerText }) => innerText === term).nextElementSibling.innerText
), term);

/** What the page says of credit: "$4.65 expires 20 Nov 2026, 08:00:00", as pairs of amount and time. */
const expiries = (page) => page.$$eval('main time', (times) => times.flatMap((time) => {
  const said = /(\$[\d,.]+) expires $/.exec(time.previousSibling?.textContent ?? '');
  return said ? [[said[1], time.dateTime]] : [];
}));

/** The rows of the table of remaining credit, as pairs of amount and time; null where it does not expire. */
const remaining = (page) => page.$$eval('main [aria-label="Remaining credit"] tbody tr', (rows) => rows.map(({ cells }) => (
  [cells[1].innerText.trim(), cells[3].querySelector('time')?.dateTime ?? null])));

/** Fails unless the page at `path` says exactly what is left of the grants, by when they expire. */
async function checkExpiries(page, path, { grants, calls }, hasTable) {
  await go(page, path);
  const left = leftBy(grants, calls).filter(({ left: amount }) => amount > 0n);
  const inNanos = (pairs) => pairs.map(([amount, at]) => [nanos(amount), at]);
  const expected = left.filter(({ expires_at: at }) => at !== null).map(({ left: amount, expires_at: at }) => [amount, at]);
  assert.ok(expected.length > 0, 'some of the credit expires');
  if (hasTable) {
    const all = left.map(({ left: amount, expires_at: at }) => [amount, at]);
    assert.deepEqual(new Set(inNanos(await remaining(page)).map(String)), new Set(all.map(String)), path);
  }
  // The console has the table alone.
  if (!path.startsWith('/portal/console')) assert.deepEqual(inNanos(await expiries(page)), expected, path);
}

test('what expires is what is left of that grant', async (t) => {
  const page = await resident(t);
  const books = await booksOf(await accountOf(page));
  const first = books.grants.find(({ reason }) => reason === 'Welcome');
  const [welcome] = leftBy(books.grants, books.calls);
  assert.equal(welcome.id, first.id, 'what expires first is used first');
  assert.ok(welcome.left > 0n && welcome.left < nanos(first.amount), 'some of it was used');
  await checkExpiries(page, '/portal', books, false);
  await checkExpiries(page, '/portal/billing', books, true);
  await checkExpiries(await lead(t), '/portal/billing', books, true);
  await checkExpiries(await operator(t), `/portal/console/accounts/${books.account.id}`, books, true);
});

test('the warning of a low balance has what is available', async (t) => {
  const page = await frugal(t);
  const books = await booksOf(await accountOf(page));
  for (const path of ['/portal', '/portal/billing']) {
    await go(page, path);
    const [{ written: available }] = amountsIn(await textOf(page, '.warning'));
    assert.equal(nanos(available), nanos(books.account.available), path);
  }
});

test('a hybrid costs up to its prices, in the portal and in the console', async (t) => {
  const pages = [[await resident(t), '/portal/models', [2, 3, 4]], [await operator(t), '/portal/console/models', [2, 3]]];
  const { data: models } = await operate('GET', '/operator/models');
  const hybrids = models.filter(({ id }) => id.includes('-hybrid-')).map(({ id }) => id);
  assert.ok(hybrids.length > 0);
  for (const [page, path, columns] of pages) {
    await go(page, path);
    const rows = await page.$$eval('main tbody tr', (all) => all.map(({ innerText, cells }) => (
      { text: innerText, cells: [...cells].map((cell) => cell.innerText.trim()) })));
    for (const { text, cells } of rows) {
      const isHybrid = hybrids.some((id) => new RegExp(`\\b${id}(?![\\w-])`).test(text));
      for (const column of columns) {
        assert.equal(cells[column].startsWith('up to $'), isHybrid, `${path}: ${cells.join(' | ')}`);
      }
    }
    for (const id of hybrids) assert.ok(rows.some(({ text }) => text.includes(id)), `${id} is not on ${path}`);
  }
});

test("the figures that a customer looks for are the ledger's", async (t) => {
  const page = await resident(t);
  const { account, calls, budgets } = await booksOf(await accountOf(page));
  const spent = sum(calls.map(({ cost }) => nanos(cost)));
  await go(page, '/portal');
  assert.equal(nanos(await figure(page, 'Balance')), nanos(account.balance));
  assert.equal(nanos(await figure(page, 'Spent today')), spent);
  await go(page, '/portal/billing');
  for (const [title, amount] of [['Balance', account.balance], ['Reserved', account.held], ['Available', account.available]]) {
    assert.equal(nanos(await figure(page, title)), nanos(amount), title);
  }
  await go(page, '/portal/usage');
  assert.equal(nanos(await figure(page, 'Cost')), spent);
  for (const [model, cost] of sums(calls, ({ model }) => model)) {
    assert.ok((await rowWith(page, model)).some((cell) => cell.startsWith('$') && nanos(cell) === cost), model);
  }
  // Each request of the list costs what its call was charged.
  await go(page, '/portal/requests');
  const rows = await page.$$eval('main tbody tr', (all) => all.map((row) => [
    row.querySelector('a[href*="/call_"]')?.href.split('/').at(-1), row.innerText,
  ]));
  for (const { id, cost } of calls) {
    const [, text] = rows.find(([call]) => call === id);
    assert.ok(amountsIn(text).some(({ written: shown }) => nanos(shown) === nanos(cost)), `${id}: ${text}`);
  }
  await go(page, '/portal/budgets');
  for (const budget of budgets) {
    const spent = spentOf(budget, calls);
    assert.equal(nanos(budget.spent), spent, budget.name);
    const bars = (await page.$$eval('main tbody tr', (all) => all.map(({ innerText }) => innerText)))
      .map((text) => amountsIn(text).map(({ written: shown }) => nanos(shown)));
    const expected = [spent, nanos(budget.amount), 0n, nanos(budget.amount) - spent];
    assert.ok(bars.some((bar) => bar.length === 4 && bar.every((amount, at) => amount === expected[at])), budget.name);
  }
});

/** What the rows of the list of payments have: amount, status, and the path of the receipt. */
const payments = (page) => page.$$eval('main [aria-label="Payments"] tbody tr', (rows) => rows.map((row) => ({
  amount: row.querySelector('[data-label="Amount"]').innerText,
  status: row.querySelector('[data-label="Status"]').innerText,
  receipt: row.querySelector('[data-label="Receipt"] a')?.pathname,
})));

for (const [audience, newVisitor] of Object.entries({ customer: resident, 'team lead': lead })) {
  test(`what a ${audience} has paid was granted, and so do the receipts say`, async (t) => {
    const page = await newVisitor(t);
    const { grants } = await booksOf(await accountOf(page));
    // A purchase is the only grant with the reference of a payment.
    const bought = grants.filter(({ reference }) => reference !== null).map(({ amount }) => nanos(amount));
    assert.ok(bought.length > 0);
    await go(page, '/portal/billing/payments');
    const paid = (await payments(page)).filter(({ status }) => status === 'Paid');
    assert.deepEqual(paid.map(({ amount }) => nanos(amount)), bought.toReversed());
    for (const [at, { receipt }] of paid.entries()) {
      await go(page, receipt);
      const shown = await page.$$eval('main table td.number', (cells) => cells.map(({ innerText }) => innerText));
      assert.deepEqual(shown.map(nanos), [bought.at(-1 - at), bought.at(-1 - at)], `${receipt}: the item and the total`);
    }
  });
}

test("an operator's figures are the ledger's, for one account and for all", async (t) => {
  await resident(t);
  const page = await operator(t);
  const books = await booksOfAll();
  await go(page, '/portal/console/margin');
  const total = sum(books.flatMap(({ calls }) => calls).map(({ cost }) => nanos(cost)));
  assert.equal(nanos(await detail(page, 'Charged')), total);
  const ada = books.find(({ account }) => account.email === 'ada@example.com');
  await go(page, `/portal/console/accounts/${ada.account.id}`);
  for (const [title, amount] of [['Balance', ada.account.balance], ['Reserved', ada.account.held], ['Available', ada.account.available]]) {
    assert.equal(nanos(await figure(page, title)), nanos(amount), title);
  }
  assert.match(await textOf(page), /Grant credit/);
});
