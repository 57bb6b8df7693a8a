// A customer with history: keys, credit with and without expiry, a purchase, auto top-up, requests with various outcomes,
// and a second member. And one with little credit.

import assert from 'node:assert/strict';
import { chat, operate } from './gateway.mjs';
import { accountOf, buyCredit, clickTo, fill, go, signUp } from './visitor.mjs';

const REQUESTS = [
  ['production', 'svc-standard', 'Summarise this report. [[sim tokens=420]]'],
  ['production', 'svc-standard', 'And the next one. [[sim tokens=380 cached=300]]'],
  ['production', 'svc-pro', 'Plan the migration. [[sim tokens=900 reasoning=250]]'],
  ['production', 'svc-hybrid-cost', 'What is a toll gate?'],
  ['production', 'svc-basic', '[[sim tool=convert_units {"amount": "1.5", "from": "ether", "to": "wei"}]]'],
  ['laptop', 'svc-pro-coding', 'Write a parser. [[sim tokens=700]]'],
  ['laptop', 'svc-native-fast', 'Hello!'],
  ['laptop', 'svc-native-fast', 'It breaks. [[sim status=500]]'],
  ['nightly tests', 'svc-native-flash', 'Translate this. [[sim tokens=160]]'],
  ['nightly tests', 'svc-native-light', 'Classify this. [[sim tokens=12]]'],
];

let resident = null;

/** The customer and their cookies. They are created with the first test that needs them. */
export async function theResident(newVisitor) {
  resident ??= newVisitor().then(create);
  return resident;
}

let frugal = null;

/** Somebody whose balance is low and who has begun to set up two-factor authentication. Operators have an alert of it. */
export async function theFrugal(newVisitor) {
  frugal ??= newVisitor().then(async (visitor) => {
    const person = { name: 'Ebenezer', email: 'frugal@example.com', password: 'a penny is saved here' };
    await signUp(visitor, person);
    const account = `/operator/accounts/${await accountOf(visitor)}`;
    await operate('POST', `${account}/grants`, { amount: '0.50', reason: 'Trial' });
    const { key } = await operate('POST', `${account}/keys`, { name: 'counting house' });
    const response = await chat(key, 'What does it cost? [[sim tokens=40]]');
    await response.arrayBuffer();
    assert.equal(response.status, 200);
    await go(visitor, '/portal/settings/two-factor');
    await fill(visitor, 'present', person.password);
    await clickTo(visitor, 'button', 'Set up');
    // Alerts are checked every 30 seconds, and after an audit.
    await operate('POST', '/operator/audit');
    return { ...person, cookies: await visitor.browserContext().cookies() };
  });
  return frugal;
}

/** The customer's auto top-up: the threshold that the form proposes, and what they typed. */
export const TOP_UP = { threshold: '5.00', amount: '20.00', monthlyMax: '100.00' };

/** Turns on auto top-up, which buys nothing while there is more than the threshold. */
async function topUpAutomatically(visitor) {
  await go(visitor, '/portal/billing/top-up');
  await fill(visitor, 'amount', TOP_UP.amount);
  await fill(visitor, 'monthly_max', TOP_UP.monthlyMax);
  await visitor.click('[name="consent"]');
  await clickTo(visitor, 'button', 'Turn on');
}

/** Invites a member with the role billing, who takes the visitor's place. */
async function join(visitor, account) {
  const member = { email: 'mary@example.com', password: 'she counts every penny' };
  const { link } = await operate('POST', `${account}/invitations`, { email: member.email, role: 'billing' });
  await visitor.browserContext().deleteCookie(...await visitor.browserContext().cookies());
  await visitor.goto(link);
  await fill(visitor, 'password', member.password);
  await clickTo(visitor, 'button', 'Set password and sign in');
  return { ...member, cookies: await visitor.browserContext().cookies() };
}

async function create(visitor) {
  const person = { name: 'Ada Lovelace', email: 'ada@example.com', password: 'a tower of correct horses' };
  await signUp(visitor, person);
  const account = `/operator/accounts/${await accountOf(visitor)}`;
  await operate('PATCH', account, { track: 'business', tier: 'flex' });
  const soon = new Date(Date.now() + 30 * 86_400_000).toISOString().replace(/\.\d+Z/, 'Z');
  await operate('POST', `${account}/grants`, { amount: '5.00', reason: 'Welcome', expires_at: soon });
  await operate('POST', `${account}/grants`, { amount: '120.00', reason: 'Invoice 2026-0417' });
  await go(visitor, '/portal/billing');
  await buyCredit(visitor, 'Add $10.00');
  await topUpAutomatically(visitor);
  const website = await operate('POST', `${account}/projects`, { name: 'Website' });
  const keys = {};
  for (const name of ['production', 'laptop', 'nightly tests', 'old laptop']) {
    const project = name === 'production' ? website.id : undefined;
    keys[name] = await operate('POST', `${account}/keys`, { name, project });
  }
  await operate('POST', `/operator/keys/${keys['old laptop'].id}/disable`);
  const budget = (scope, id, amount, period, hard = true) => operate('PUT', '/operator/budgets', {
    account: account.split('/').at(-1), scope, id, amount, period, hard, timezone: 'Europe/Berlin',
  });
  await budget('account', undefined, '200', 'month', false);
  await budget('project', website.id, '50', 'week');
  await budget('key', keys.production.id, '20', 'day');
  for (const [name, model, content] of REQUESTS) {
    const response = await chat(keys[name].key, content, { model });
    const answer = await response.text();
    const expected = content.includes('status=500') ? 502 : 200;
    assert.equal(response.status, expected, `${model}: ${answer}`);
  }
  const refused = await chat(keys.production.key, 'Hello!', { model: 'svc-natve-fast' });
  assert.equal(refused.status, 404);
  const cookies = await visitor.browserContext().cookies();
  return { ...person, cookies, lead: await join(visitor, account) };
}
