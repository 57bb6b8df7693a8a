// A person's own settings: two-factor authentication, another email, and deleting the account. By keyboard and without scripts.

import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { test } from 'node:test';
import { clickTo, fill, go, photograph, PHONE, signIn, signOut, signUp, textOf, visitor } from './support/visitor.mjs';

const PASSWORD = 'a password of my own';
const BASE32 = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';

/**
 * The code that an authenticator app shows, `later` steps from now. A code is accepted a step early or late, and once;
 * so the one after another is the next, and both are good however close to the end of a step the test is.
 */
function codeOf(secret, later = 0) {
  const bits = [...secret.replace(/\s/g, '')].map((sign) => BASE32.indexOf(sign).toString(2).padStart(5, '0')).join('');
  const key = Buffer.from(bits.match(/.{8}/g).map((byte) => Number.parseInt(byte, 2)));
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(Math.floor(Date.now() / 30_000) + later));
  const tag = createHmac('sha1', key).update(counter).digest();
  const word = tag.readUInt32BE(tag.at(-1) & 15) & 0x7fffffff;
  return String(word % 1_000_000).padStart(6, '0');
}

/** Signs up, and turns on two-factor authentication. Returns the secret and the recovery codes. */
async function protectedPerson(page, email) {
  await signUp(page, { name: 'Ada', email, password: PASSWORD });
  await go(page, '/portal/settings');
  await clickTo(page, 'link', 'Set up');
  await fill(page, 'present', PASSWORD);
  await clickTo(page, 'button', 'Set up');
  const secret = await textOf(page, '#factor-secret');
  const qr = await page.$eval('svg.qr', (svg) => svg.getBoundingClientRect().width);
  assert.ok(qr > 150, 'the QR code can be scanned');
  await photograph(page, 'two-factor-setup');
  await fill(page, 'code', codeOf(secret));
  await clickTo(page, 'button', 'Turn on');
  await photograph(page, 'two-factor-codes');
  const recovery = (await textOf(page, '#recovery-codes')).trim().split(/\s+/);
  assert.equal(recovery.length, 10);
  await clickTo(page, 'link', 'I have saved them');
  assert.match(await textOf(page, '#two-factor'), /10 recovery codes left/);
  return { secret, recovery };
}

async function askedForACode(page, email) {
  await signOut(page);
  await signIn(page, { email, password: PASSWORD });
  assert.equal(new URL(page.url()).pathname, '/portal/sign-in/code');
}

for (const [how, options] of [['with scripts', {}], ['without scripts, on a phone', { script: false, screen: PHONE }]]) {
  test(`two-factor authentication is set up and asked for, ${how}`, async (t) => {
    const page = await visitor(t, options);
    const email = `factor${options.screen ? 2 : 1}@example.com`;
    const { secret, recovery } = await protectedPerson(page, email);
    await askedForACode(page, email);
    await photograph(page, `two-factor-code${options.screen ? '-phone' : ''}`);
    page.expected.push('401');
    await fill(page, 'code', '000000');
    await clickTo(page, 'button', 'Sign in');
    assert.match(await textOf(page, '[role="alert"]'), /wrong, or was used before/);
    await fill(page, 'code', codeOf(secret, 1));
    await clickTo(page, 'button', 'Sign in');
    assert.equal(await textOf(page, 'h1'), 'Overview');
    await askedForACode(page, email);
    await clickTo(page, 'link', 'Use a recovery code');
    await fill(page, 'code', recovery[0]);
    await clickTo(page, 'button', 'Sign in');
    assert.match(await textOf(page, '[role="status"]'), /You have 9 left/);
  });
}

test('the code is entered by keyboard alone', async (t) => {
  const page = await visitor(t);
  const email = 'keyboard@example.com';
  const { secret } = await protectedPerson(page, email);
  await askedForACode(page, email);
  // The field is focused automatically, shortly after the page is loaded.
  await page.waitForSelector('[name="code"]:focus');
  await page.keyboard.type(codeOf(secret, 1));
  await Promise.all([page.waitForNavigation(), page.keyboard.press('Enter')]);
  assert.equal(await textOf(page, 'h1'), 'Overview');
});

test('the email is changed, and the account is deleted, without scripts', async (t) => {
  const page = await visitor(t, { script: false });
  await signUp(page, { name: 'Eve', email: 'eve@before.example.com', password: PASSWORD });
  await clickTo(page, 'link', 'Settings');
  await page.click('#profile summary');
  await fill(page, 'email', 'eve@after.example.com');
  await page.type('#profile [name="present"]', PASSWORD);
  await clickTo(page, 'button', 'Change email');
  assert.match(await textOf(page, '[role="status"]'), /Email changed to eve@after.example.com/);
  await photograph(page, 'settings-changed');

  await clickTo(page, 'link', 'Delete account');
  await photograph(page, 'delete-account');
  page.expected.push('400');
  await fill(page, 'email', 'eve@before.example.com');
  await fill(page, 'present', PASSWORD);
  await clickTo(page, 'button', 'Delete account');
  assert.match(await textOf(page, '[role="alert"]'), /Type your email/);
  await fill(page, 'email', 'eve@after.example.com');
  await fill(page, 'present', PASSWORD);
  await clickTo(page, 'button', 'Delete account');
  assert.equal(await textOf(page, 'h1'), 'Your account is deleted');
  page.expected.push('401');
  await signIn(page, { email: 'eve@after.example.com', password: PASSWORD });
  assert.match(await textOf(page, '[role="alert"]'), /Wrong email or password/);
  await signUp(page, { name: 'Eve', email: 'eve@after.example.com', password: PASSWORD });
  assert.equal(await textOf(page, 'h1'), 'Overview');
});
