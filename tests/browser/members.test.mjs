// Members of an account: each role signs in, and finds its pages and no others.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { operate, statusWith } from './support/gateway.mjs';
import {
  accountOf, clickTo, fill, go, isThere, makeKey, PHONE, rowWith, signIn, signUp, textOf, visitor,
} from './support/visitor.mjs';

const PASSWORD = 'a password for the team';
const ALWAYS = ['Plan and limits', 'Members', 'Settings'];

/** The entries of the navigation for each role. */
const NAVIGATION = {
  owner: [
    'Overview', 'API keys', 'Projects', 'Playground', 'Models', 'Requests', 'Usage', 'Billing', 'Budgets', ...ALWAYS,
  ],
  billing: ['Overview', 'Models', 'Usage', 'Billing', 'Budgets', ...ALWAYS],
  developer: ['Overview', 'API keys', 'Playground', 'Models', 'Requests', 'Usage', ...ALWAYS],
  viewer: ['Overview', 'Models', 'Usage', ...ALWAYS],
};
const PATHS = {
  'API keys': '/portal/keys',
  Projects: '/portal/projects',
  Playground: '/portal/playground',
  Requests: '/portal/requests',
  Billing: '/portal/billing',
  Budgets: '/portal/budgets',
};

const address = (role) => `${role}@team.example.com`;

const navigation = (page) => page.$$eval('nav[aria-label="Portal"] a', (links) => links.map(({ innerText }) => innerText));

/** Invites a person on the page Members and returns the link. */
async function invite(page, role, email = address(role)) {
  await go(page, '/portal/members');
  await fill(page, 'email', email);
  await page.select('#invitations [name="role"]', role);
  await clickTo(page, 'button', 'Invite');
  return new URL(await textOf(page, '#new-link'));
}

/** A new member of the owner's account, signed in. */
async function join(t, owner, role) {
  const { pathname, search } = await invite(owner, role);
  const page = await visitor(t);
  await go(page, pathname + search);
  assert.match(await textOf(page), role === 'owner' ? /invited to the account/ : new RegExp(`with the role ${role}`));
  await fill(page, 'password', PASSWORD);
  await clickTo(page, 'button', 'Set password and sign in');
  return page;
}

let first = null;

/** The owner of the account of these tests, signed in. */
async function theOwner(t) {
  const page = await visitor(t);
  const person = { name: 'Ada', email: 'first@team.example.com', password: PASSWORD };
  if (first) {
    await signIn(page, person);
    return page;
  }
  first = person;
  await signUp(page, person);
  const account = `/operator/accounts/${await accountOf(page)}`;
  await operate('POST', `${account}/grants`, { amount: '5.00' });
  await operate('PATCH', account, { tier: 'pro' });
  return page;
}

test('each role finds its pages in the navigation, and no others', async (t) => {
  const owner = await theOwner(t);
  for (const [role, expected] of Object.entries(NAVIGATION)) {
    const page = await join(t, owner, role);
    assert.equal(new URL(page.url()).pathname, '/portal', role);
    assert.deepEqual(await navigation(page), expected, role);
    for (const name of expected) {
      await clickTo(page, 'link', name);
      assert.deepEqual(await navigation(page), expected, `${role}: ${name}`);
      assert.equal(await textOf(page, 'nav [aria-current="page"]'), name);
    }
    for (const [name, path] of Object.entries(PATHS)) {
      if (expected.includes(name)) continue;
      page.expected.push('403');
      await go(page, path, 403);
      assert.match(await textOf(page), new RegExp(`Your role is ${role}; an owner can change it`));
      await clickTo(page, 'link', 'Go to overview');
    }
    await go(page, '/portal');
    assert.equal((await textOf(page)).includes('Balance'), expected.includes('Billing'), role);
    await go(page, '/portal/members');
    assert.equal(await isThere(page, 'button', 'Invite'), role === 'owner');
  }
});

test('an owner changes a role and removes a member, whose key ends', async (t) => {
  const owner = await theOwner(t);
  await go(owner, '/portal/members');
  const member = await visitor(t);
  await signIn(member, { email: address('viewer'), password: PASSWORD });
  await owner.select(`[aria-label="Role of ${address('viewer')}"]`, 'developer');
  await clickTo(owner, 'button', `Change the role of ${address('viewer')}`);
  assert.equal((await rowWith(owner, address('viewer')))[2], 'developer');
  const key = await makeKey(member, 'laptop');
  assert.equal(await statusWith(key), 200);
  await go(owner, '/portal/keys');
  assert.ok((await rowWith(owner, 'laptop')).includes(address('viewer')));

  await go(owner, '/portal/members');
  await clickTo(owner, 'link', `Remove ${address('viewer')}`);
  assert.match(await textOf(owner), /keys that they made are permanently deleted/);
  await clickTo(owner, 'button', 'Remove member');
  assert.equal(await isThere(owner, 'link', `Remove ${address('viewer')}`), false);
  assert.equal(await statusWith(key), 401);
  await go(member, '/portal');
  assert.equal(new URL(member.url()).pathname, '/portal/sign-in');
});

test('billing sets a budget, its developer sees the bar, and it refuses', async (t) => {
  const owner = await theOwner(t);
  const billing = await visitor(t);
  await signIn(billing, { email: address('billing'), password: PASSWORD });
  const developer = await visitor(t);
  await signIn(developer, { email: address('developer'), password: PASSWORD });
  const key = await makeKey(developer, 'ci');
  assert.equal(await statusWith(key), 200);

  await clickTo(billing, 'link', 'Budgets');
  assert.match(await textOf(billing), /No budgets yet/);
  const option = await billing.$$eval('[name="place"] option', (options) => options.find(({ text }) => text.startsWith('ci (')).value);
  await billing.select('[name="place"]', option);
  await fill(billing, 'amount', '-3');
  await clickTo(billing, 'button', 'Set budget');
  assert.match(await textOf(billing, '[role="alert"]'), /US dollars above zero/);
  assert.equal(await billing.$eval('[name="amount"]', ({ value }) => value), '-3', 'what was typed is kept');
  await billing.select('[name="place"]', option);
  await billing.$eval('[name="amount"]', (field) => { field.value = ''; });
  await fill(billing, 'amount', '0.000000001');
  await clickTo(billing, 'button', 'Set budget');
  assert.equal((await rowWith(billing, 'Key ci'))[0], 'Key ci');
  assert.equal(await statusWith(key), 402);

  await go(developer, '/portal/keys');
  assert.match((await rowWith(developer, 'ci'))[6], /of \$0\.000000001 a month/);
  await clickTo(developer, 'link', 'Edit ci');
  assert.match(await textOf(developer), /Only owners of the account can change the key/);
  await go(owner, '/portal/budgets');
  await clickTo(owner, 'link', 'Remove budget: Key ci');
  await clickTo(owner, 'button', 'Remove budget');
  assert.equal(await statusWith(key), 200);
});

test('an invitation is withdrawn, and the last owner cannot leave', async (t) => {
  const page = await visitor(t, { screen: PHONE });
  await signUp(page, { name: 'Eve', email: 'eve@alone.example.com', password: PASSWORD });
  await invite(page, 'billing', 'late@example.com');
  await clickTo(page, 'link', 'Back to members');
  assert.equal((await rowWith(page, 'late@example.com'))[1], 'billing');
  const withdraw = ['link', 'Withdraw the invitation of late@example.com'];
  await clickTo(page, ...withdraw);
  await clickTo(page, 'button', 'Withdraw the invitation');
  assert.ok(!(await isThere(page, ...withdraw)));
  await clickTo(page, 'link', 'Leave this account');
  page.expected.push('409');
  await clickTo(page, 'button', 'Leave account');
  assert.match(await textOf(page, '[role="alert"]'), /make another member an owner first/);
});
