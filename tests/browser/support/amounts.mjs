// Every amount of money on a page: it follows from the ledger's entries, or stands in an element that offers it.

import assert from 'node:assert/strict';
import { amountsIn, booksOf, inSpansOfTime, known } from './books.mjs';
import { nanos, operate } from './gateway.mjs';
import { ORDERED } from './places.mjs';
import { TOP_UP } from './resident.mjs';

const dollars = (amount) => `$${amount}`;

/** What auto top-up was set to. */
const RULE = Object.values(TOP_UP).map(dollars);
/** What the form to order credit has on its buttons, and the least and the most that can be ordered. */
const CHOICES = ['$10.00', '$25.00', '$50.00', '$100.00'];
const BOUNDS = ['$5.00', '$1,000.00'];

/** The elements of any page that have amounts which no ledger has, with these amounts. */
const OFFERS = [
  ['#add-credit button[name="amount"]', CHOICES],
  ['#amount-hint', BOUNDS],
  ['#top-up p', [...RULE, '$0.00']], // nothing was bought by it
  ['form[action="/portal/billing/top-up"] input', RULE],
  ['form[action="/portal/billing/top-up"] ~ p.muted', RULE], // the consent
  ['tr:has([data-label="Status"] > .badge:not(.good)) [data-label="Amount"]', [dollars(ORDERED)]], // not paid
];

/** The elements with amounts in whole cents that have no title with the exact ones. */
const IN_CENTS = ['#live p.muted', 'main:has(#playground) > p.muted'];

/** What the page says, apart from `offers`: its texts, those of titles, and the values of fields for amounts. */
const read = (page, offers) => page.$eval('main', (main, offers, inCents) => {
  const inside = (one) => main.contains(one) && one.checkVisibility();
  const visible = (selector) => [...document.querySelectorAll(selector)].filter(inside);
  const said = (one) => (one.matches('input') ? `${one.name} $${one.value}` : one.innerText);
  const offered = offers.map(([selector]) => visible(selector).map(said));
  const links = visible('a[href]').map(({ innerText, pathname }) => ({ text: innerText.trim(), pathname }));
  const titled = visible('[title]').map(({ innerText, title }) => [innerText, title]);
  const cents = inCents.flatMap((selector) => visible(selector).map(said));
  const live = visible('#live, #live [title]').flatMap((one) => [...one.innerText.split('\n'), one.title]);
  // The scales of charts are no amounts of anybody.
  const hidden = [...offers.flatMap(([selector]) => visible(selector)), ...main.querySelectorAll('svg text.mark')];
  for (const one of hidden) one.style.display = 'none';
  const fields = visible('input[inputmode="decimal"]').filter(({ value }) => value !== '').map(said);
  const titles = [...main.querySelectorAll('title')].map(({ textContent }) => textContent);
  const text = [main.innerText, ...titles, ...titled.map(([, title]) => title), ...fields].join('\n');
  for (const one of hidden) one.style.display = '';
  return { offered, links, titled, cents, live, text };
}, offers, IN_CENTS);

const CENT = 10n ** 16n;

/** Whether this amount, in atto-dollars, is the other one in whole cents. */
const isRounded = (shown, exact) => exact >= CENT && (exact + CENT / 2n) / CENT * CENT === shown;

/** The text of a link that is an amount. */
const AMOUNT = /^\$[\d,]+(?:\.\d+)?$/;

/**
 * Fails unless each amount on the page is among `amounts`, or in an element that offers it: on any page, or on this one, which
 * `more` lists. An amount that links to its request is what that request was charged. Returns how many amounts there are, and
 * how many of them are such charges.
 */
export async function assertAmounts(page, where, { amounts, spans, uncharged }, more = []) {
  const offers = [...OFFERS, ...more];
  const { text, offered, links, titled, cents, live } = await read(page, offers);
  const wrong = [];
  for (const [at, texts] of offered.entries()) {
    const [selector, allowed] = offers[at];
    const found = texts.flatMap(amountsIn);
    if (at >= OFFERS.length) assert.ok(found.length > 0, `${where}: there is no amount in ${selector}`);
    for (const { written, line } of found) {
      if (!allowed.includes(written)) wrong.push(`${written} in ${line}, which is in ${selector}`);
    }
  }
  // An amount in whole cents has the exact one in its title.
  const exact = titled.flatMap(([shown, title]) => amountsIn(shown).slice(0, 1).flatMap(({ written }) => (
    amountsIn(title).map(({ amount }) => ({ written, amount })))));
  const isKnown = ({ written, amount, line }) => {
    if (line.includes('was not charged')) return uncharged.has(amount);
    const possible = live.includes(line) ? amounts.union(spans) : amounts;
    return possible.has(amount)
      || exact.some((one) => one.written === written && isRounded(amount, one.amount) && possible.has(one.amount))
      || (cents.includes(line) && possible.values().some((one) => isRounded(amount, one)));
  };
  const found = amountsIn(text);
  wrong.push(...found.filter((one) => !isKnown(one)).map(({ written, line }) => `${written} in ${line}`));
  assert.deepEqual(wrong, [], `${where}: amounts that are not the ledger's`);
  let charges = 0;
  for (const { text: shown, pathname } of links) {
    const [, call] = /\/requests\/(\w+)$/.exec(pathname) ?? [];
    if (!call || !AMOUNT.test(shown)) continue;
    const { settlement } = await operate('GET', `/operator/requests/${call}`);
    assert.equal(nanos(shown), nanos(settlement.charge), `${where}: the charge of ${call}`);
    charges += 1;
  }
  return { amounts: found.length, charges };
}

let last = { state: null, of: new Map() };

/**
 * The amounts that may be shown to the person with this email, or to an operator, who sees those of all. They are read again
 * once a balance has changed.
 */
export async function amountsOf(email) {
  const { data: accounts } = await operate('GET', '/operator/accounts');
  const state = JSON.stringify(accounts);
  if (last.state !== state) last = { state, of: new Map() };
  if (!last.of.has(email)) {
    const theirs = accounts.filter((account) => email === undefined || account.email === email);
    const books = Promise.all(theirs.map(({ id }) => booksOf(id)));
    last.of.set(email, books.then((all) => ({ amounts: known(all), spans: inSpansOfTime(all) })));
  }
  return { ...await last.of.get(email), uncharged: email === undefined ? await uncharged() : new Set() };
}

/** What was not charged, although a provider reported it: in no ledger, but in alerts. */
async function uncharged() {
  const { data: alerts } = await operate('GET', '/operator/alerts');
  return new Set(alerts.flatMap(({ detail }) => amountsIn(dollars(detail.not_charged ?? 'none')).map(({ amount }) => amount)));
}
