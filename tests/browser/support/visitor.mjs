// Visitors: pages of one real browser, each with cookies of its own, and an eye on what goes wrong there.

import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { after } from 'node:test';
import puppeteer from 'puppeteer-core';
import { ORIGIN } from './gateway.mjs';

/** How long something may take to appear. */
const PATIENCE_MS = 20_000;
const PICTURES = process.env.TOLLGATE_PICTURES;
export const DESKTOP = { width: 1280, height: 800 };
export const PHONE = { width: 390, height: 844, isMobile: true, hasTouch: true };

// Over a pipe: a browser whose other end is gone goes too, however the tests end.
const browser = await puppeteer.launch({
  executablePath: process.env.TOLLGATE_BROWSER,
  userDataDir: process.env.TOLLGATE_BROWSER_PROFILE,
  pipe: true,
  handleSIGINT: false,
  handleSIGTERM: false,
  handleSIGHUP: false,
  defaultViewport: null,
  args: [
    '--no-proxy-server',
    '--disable-dev-shm-usage',
    '--disable-gpu',
    '--disable-breakpad',
    // The sandbox does not work for root, as whom tests in containers run; the pages are our own.
    ...(process.getuid() === 0 ? ['--no-sandbox'] : []),
  ],
});
after(() => browser.close());

/**
 * A new visitor, who is gone with the test `t`. A test fails if anything is complained about on a page
 * of theirs that is not in `page.expected`.
 */
export async function visitor(t, { theme = 'light', screen = DESKTOP, script = true, cookies = [] } = {}) {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  page.expected = [];
  const complaints = await watch(page);
  t.after(async () => {
    const name = `failed-${t.name.replaceAll(/\W+/g, '-')}`;
    if (!t.passed && page.url() !== 'about:blank') await photograph(page, name).catch(() => {});
    await context.close();
    const unexpected = complaints.filter((text) => !page.expected.some((words) => text.includes(words)));
    assert.deepEqual(unexpected, [], 'complaints');
  });
  if (cookies.length > 0) await context.setCookie(...cookies);
  await page.setViewport(screen);
  await wearTheme(page, theme);
  await page.setJavaScriptEnabled(script);
  page.setDefaultTimeout(PATIENCE_MS);
  return page;
}

/** Everything that a browser complains about: errors, refusals, broken policies, strangers. */
async function watch(page) {
  const complaints = [];
  const complain = (text) => complaints.push(`${text} (on ${page.url()})`);
  page.on('console', (message) => {
    if (['error', 'warn'].includes(message.type())) complain(`${message.type()}: ${message.text()}`);
  });
  page.on('pageerror', (error) => complain(`uncaught: ${error}`));
  page.on('request', (request) => {
    // The browser's own pictures, of a date field for one, come with it; ours could not: see the policy.
    const { origin, protocol, href } = new URL(request.url());
    if (origin !== ORIGIN && protocol !== 'data:') complain(`asked elsewhere: ${href}`);
  });
  page.on('response', (response) => {
    if (response.status() >= 400) complain(`${response.status()} for ${new URL(response.url()).pathname}`);
  });
  // A policy that was broken is on the console too; here it has its name.
  await page.evaluateOnNewDocument(() => {
    addEventListener('securitypolicyviolation', ({ effectiveDirective, blockedURI }) => {
      console.error(`broke the policy: ${effectiveDirective} ${blockedURI}`);
    });
  });
  return complaints;
}

export const wearTheme = (page, theme) =>
  page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: theme }]);

/** Goes to a page of the portal. */
export async function go(page, path, status = 200) {
  const response = await page.goto(ORIGIN + path);
  assert.equal(response.status(), status, path);
  return response;
}

/** Does what leads to another page, and waits for that. */
export async function follow(page, action) {
  const [response] = await Promise.all([page.waitForNavigation(), action()]);
  return response;
}

/** What a screen reader finds under this role and name. */
export async function named(page, role, name) {
  const found = await page.$(`::-p-aria([name="${name}"][role="${role}"])`);
  assert.ok(found, `no ${role} called ${name} on ${page.url()}: ${await textOf(page)}`);
  return found;
}

export const isThere = async (page, role, name) =>
  (await page.$(`::-p-aria([name="${name}"][role="${role}"])`)) !== null;

export async function clickTo(page, role, name) {
  const found = await named(page, role, name);
  return follow(page, () => found.click());
}

/** Orders credit, to the page where it is paid for. */
export async function orderCredit(page, button) {
  const there = () => location.pathname.startsWith('/portal/billing/test-payment/')
    && document.readyState === 'complete';
  await (await named(page, 'button', button)).click();
  // By way of a page that leads on.
  await page.waitForFunction(there);
}

/** From the billing page and back to it. */
export async function buyCredit(page, button) {
  await orderCredit(page, button);
  await clickTo(page, 'button', 'Pay');
}

export const fill = (page, field, text) => page.type(`main [name="${field}"]`, text);

export const textOf = (page, selector = 'main') => page.$eval(selector, (element) => element.innerText);

/** The cells of the first row of a table in which a cell has this text. */
export async function rowWith(page, text) {
  const rows = await page.$$eval('main tbody tr', (rows) =>
    rows.map(({ cells }) => [...cells].map((cell) => cell.innerText.trim())));
  const found = rows.find((cells) => cells.some((cell) => cell.includes(text)));
  assert.ok(found, `no row with ${text} among ${JSON.stringify(rows)}`);
  return found;
}

/** Waits until `holds` is true in the page; it is asked whenever something changes there. */
export function until(page, holds, ...given) {
  const wait = (holds, given, patience) => new Promise((done, failed) => {
    const observer = new MutationObserver(look);
    const late = () => failed(new Error(`it never came to ${holds}: ${document.body.innerText}`));
    const timer = setTimeout(late, patience);
    function look() {
      if (!holds(...given)) return;
      clearTimeout(timer);
      observer.disconnect();
      done();
    }
    observer.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
    look();
  });
  // As text: pages allow no evaluation of their own.
  return page.evaluate(`(${wait})(${holds}, ${JSON.stringify(given)}, ${PATIENCE_MS})`);
}

/** Goes to a page again and again, for what is written down a moment after its cause. */
export async function eventually(page, path, holds) {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    await go(page, path);
    if (await holds()) return;
    assert.ok(Date.now() < deadline, `${path} never came to ${holds}: ${await textOf(page)}`);
  }
}

/** A picture of the whole page, and how many bytes it has. */
export async function photograph(page, name, format = { type: 'png' }) {
  const file = join(PICTURES, `${name}.${format.type}`);
  await mkdir(dirname(file), { recursive: true });
  const { length } = await page.screenshot({ path: file, fullPage: true, ...format });
  return length;
}

export async function signIn(page, { email, password }) {
  await go(page, '/portal/sign-in');
  await fill(page, 'email', email);
  await fill(page, 'password', password);
  await clickTo(page, 'button', 'Sign in');
}

export async function signUp(page, { name, email, password }) {
  await go(page, '/portal/sign-up');
  await fill(page, 'name', name);
  await fill(page, 'email', email);
  await fill(page, 'password', password);
  await clickTo(page, 'button', 'Make an account');
}

/** Makes a key on the page of keys, and gives what is shown of it this once. */
export async function makeKey(page, name) {
  await go(page, '/portal/keys');
  await fill(page, 'name', name);
  await clickTo(page, 'button', 'Create key');
  return textOf(page, '#new-key');
}

export async function accountOf(page) {
  await go(page, '/portal/settings');
  const [id] = /acct_\w+/.exec(await textOf(page));
  return id;
}
