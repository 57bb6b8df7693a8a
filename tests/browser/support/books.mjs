// What the ledger says of an account, read through the operator API, and the amounts that a page may show of it.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { nanos, operate } from './gateway.mjs';

export const sum = (amounts) => amounts.reduce((all, amount) => all + amount, 0n);

const settled = new Map();

/** The details of a call. Once it is settled, they stay as they are. */
async function detailsOf(id) {
  if (settled.has(id)) return settled.get(id);
  const details = await operate('GET', `/operator/requests/${id}`);
  if (details.settlement) settled.set(id, details);
  return details;
}

/** An account's calls, grants and balances; amounts are nano-dollars. */
export async function booksOf(id) {
  const path = `/operator/accounts/${id}`;
  const [account, { data: grants }, { data: calls }, { data: budgets }] = await Promise.all([
    operate('GET', path), operate('GET', `${path}/grants`), operate('GET', `${path}/usage`), operate('GET', `${path}/budgets`),
  ]);
  // What was held for each call is in its details alone.
  const details = await Promise.all(calls.map(({ id: call }) => detailsOf(call)));
  const costs = calls.map(({ cost }) => nanos(cost));
  const granted = grants.map(({ amount }) => nanos(amount));
  assert.equal(nanos(account.balance), sum(granted) - sum(costs), `${account.email}: the ledger adds up`);
  return {
    account,
    grants,
    calls: calls.map((call, at) => ({ ...call, settledAt: details[at].settlement?.at ?? call.created_at })),
    budgets,
    holds: details.map(({ hold }) => hold).filter(Boolean),
  };
}

export async function booksOfAll() {
  const { data: accounts } = await operate('GET', '/operator/accounts');
  return Promise.all(accounts.map(({ id }) => booksOf(id)));
}

/** The sums of the calls' costs by what `by` says of a call. */
export function sums(calls, by) {
  const found = new Map();
  for (const call of calls) found.set(by(call), (found.get(by(call)) ?? 0n) + nanos(call.cost));
  return found;
}

/** The spending of a budget by the calls: those in its place since its period began. */
export function spentOf({ scope, scope_id: id, period_started_at: since }, calls) {
  const isIn = { account: () => true, project: ({ project }) => project === id, key: (call) => call.key_id === id, member: ({ member }) => member === id };
  return sum(calls.filter(isIn[scope]).filter(({ created_at: at }) => !since || at >= since).map(({ cost }) => nanos(cost)));
}

/** Tokens at a price a token, to a billionth of a nano-dollar. */
const ATTO = 18;
const attos = (text) => {
  const [whole, decimals = ''] = text.replaceAll(',', '').split('.');
  assert.ok(decimals.length <= ATTO, text);
  return BigInt(whole + decimals.padEnd(ATTO, '0'));
};
const ofNanos = (amount) => (amount < 0n ? -amount : amount) * 1_000_000_000n;

/** All amounts in a text, without their signs, in atto-dollars; with how each is written. */
export function amountsIn(text) {
  return text.split('\n').flatMap((line) => [...line.matchAll(/\$([\d,]+(?:\.\d+)?)/g)].map(([written, digits]) => (
    { written, amount: attos(digits), line })));
}

/** The price list: US dollars per million tokens, the only texts of digits in the catalog. */
const CATALOG = readFileSync(new URL('../../../src/catalog/catalog.toml', import.meta.url), 'utf8');
const PRICES = [...CATALOG.matchAll(/"(\d+\.\d+)"/g)].map(([, price]) => attos(price));

/** Every amount that follows from the books of these accounts and from the price list. */
export function known(books) {
  const amounts = new Set(PRICES);
  const add = (...all) => all.forEach((amount) => amounts.add(ofNanos(amount)));
  const every = books.flatMap(({ calls }) => calls);
  add(0n);
  for (const { account, grants, calls, budgets, holds } of books) {
    add(nanos(account.balance), nanos(account.held), nanos(account.available));
    add(...balances(grants, calls), ...grants.map(({ amount }) => nanos(amount)), ...leftBy(grants, calls).map(({ left }) => left));
    for (const budget of budgets) {
      const spent = spentOf(budget, calls);
      add(nanos(budget.amount), spent, nanos(budget.amount) - spent);
    }
    add(...allSums(calls), ...holds.flatMap(({ amount, most }) => [nanos(amount), nanos(most)]));
    for (const { prices, ...call } of calls) {
      add(nanos(call.cost));
      const tokens = { prompt: call.prompt_tokens - call.cached_tokens, input_cache_read: call.cached_tokens, completion: call.completion_tokens };
      for (const [kind, count] of Object.entries(tokens)) amounts.add(attos(prices[kind] ?? '0') * BigInt(count));
    }
  }
  add(...allSums(every));
  return amounts;
}

const FIELDS = ['model', 'routed_model', 'key_id', 'project', 'member', 'session'];

const ascending = (sums) => [...sums].sort(([, one], [, other]) => (one < other ? -1 : 1)).map(([name]) => name);

/** Sums by each field that pages group by, and those of all but the highest few: of these calls, or of `all` in the page. */
const byFields = (calls, all = calls) => FIELDS.flatMap((field) => {
  const by = (call) => call[field] ?? null;
  const found = sums(calls, by);
  const others = [ascending(found), ascending(sums(all, by))].flatMap((names) => names.map((_, at) => (
    sum(names.slice(0, at + 1).map((name) => found.get(name) ?? 0n)))));
  return [...found.values(), ...others];
});

/** Sums of days, hours and minutes, and by each field in them. */
const allSums = (calls) => [
  sum(calls.map(({ cost }) => nanos(cost))),
  ...byFields(calls),
  ...[10, 13, 16].flatMap((length) => {
    const times = new Set(calls.map(({ created_at: at }) => at.slice(0, length)));
    const inTimes = [...times].map((time) => calls.filter(({ created_at: at }) => at.startsWith(time)));
    return inTimes.flatMap((inTime) => [sum(inTime.map(({ cost }) => nanos(cost))), ...byFields(inTime, calls)]);
  }),
];

/**
 * What may have been spent in a number of seconds or minutes, in all or by a field that pages group by: the sums of calls that
 * were settled one after another.
 */
export function inSpansOfTime(books) {
  const calls = books.flatMap((one) => one.calls).sort((one, other) => (one.settledAt < other.settledAt ? -1 : 1));
  const groups = [calls, ...FIELDS.flatMap((field) => [...Map.groupBy(calls, (call) => call[field] ?? null).values()])];
  return new Set(groups.flatMap((group) => group.flatMap((_, first) => {
    let spent = 0n;
    return group.slice(first).map(({ cost }) => ofNanos(spent += nanos(cost)));
  })));
}

/** The balance after each entry: as they are, and with the charges of a day as one, after what was granted on that day. */
function balances(grants, calls) {
  const after = (lengthOfTime) => {
    // The oldest grant is the first of its list, the latest call of its own; entries of the same time stay in their order.
    const entries = [
      ...grants.map(({ created_at: at, amount }) => [at.slice(0, lengthOfTime), nanos(amount)]),
      ...calls.toReversed().map(({ created_at: at, cost }) => [at.slice(0, lengthOfTime), -nanos(cost)]),
    ].sort(([one], [other]) => (one < other ? -1 : Number(one > other)));
    let balance = 0n;
    return entries.map(([, amount]) => (balance += amount));
  };
  return [19, 10].flatMap(after);
}

/** The grants with what is left of each, in the order in which they are used: the one that expires first is first. */
export function leftBy(grants, calls) {
  let used = sum(calls.map(({ cost }) => nanos(cost)));
  const never = '9999';
  const inOrder = grants.toSorted((one, other) => ((one.expires_at ?? never) < (other.expires_at ?? never) ? -1 : 1));
  return inOrder.map((grant) => {
    const amount = nanos(grant.amount);
    const taken = used < amount ? used : amount;
    used -= taken;
    return { ...grant, left: amount - taken };
  });
}
