// Visitors: pages of one real browser, each with its own cookies, and with browser errors recorded.

import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { after } from 'node:test';
import puppeteer from 'puppeteer-core';
import { ORIGIN } from './gateway.mjs';

/** The timeout of waiting for something to appear. */
const TIMEOUT_MS = 20_000;
const PICTURES = process.env.TOLLGATE_PICTURES;
/** Whether screenshots are wanted. A page on which a test fails is always photographed. */
const TAKES_PICTURES = process.env.TOLLGATE_SCREENSHOTS === '1';
export const DESKTOP = { width: 1280, height: 800 };
export const PHONE = { width: 390, height: 844, isMobile: true, hasTouch: true };

// Controlled over a pipe, so that the browser exits with the tests, however they end.
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
    // The sandbox does not work as root, which tests in containers run as. Only our own pages are loaded.
    ...(process.getuid() === 0 ? ['--no-sandbox'] : []),
  ],
});
after(() => browser.close());

/**
 * A new visitor, closed at the end of the test `t`. The test fails if the browser reports an error or warning on
 * a page of theirs that does not match `page.expected`.
 */
export async function visitor(t, { theme = 'light', screen = DESKTOP, script = true, cookies = [] } = {}) {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  page.expected = [];
  page.complaints = await watch(page);
  t.after(async () => {
    if (!t.passed) await photographFailure(page, t.name);
    await context.close();
    assertQuiet(page);
  });
  if (cookies.length > 0) await context.setCookie(...cookies);
  await page.setViewport(screen);
  await wearTheme(page, theme);
  await page.setJavaScriptEnabled(script);
  page.setDefaultTimeout(TIMEOUT_MS);
  return page;
}

/** Fails if the browser has reported an error or warning that was not expected, since this was last asked. */
export function assertQuiet(page) {
  const complaints = page.complaints.splice(0);
  const unexpected = complaints.filter((text) => !page.expected.some((words) => text.includes(words)));
  assert.deepEqual(unexpected, [], 'complaints');
}

/** Records errors, warnings, failed requests, policy violations and requests to other origins. */
async function watch(page) {
  const complaints = [];
  const complain = (text) => complaints.push(`${text} (on ${page.url()})`);
  page.on('console', (message) => {
    if (['error', 'warn'].includes(message.type())) complain(`${message.type()}: ${message.text()}`);
  });
  page.on('pageerror', (error) => complain(`uncaught: ${error}`));
  page.on('request', (request) => {
    // The browser's own images, e.g. of a date field, are data URLs; the policy forbids such images to our pages.
    const { origin, protocol, href } = new URL(request.url());
    if (origin !== ORIGIN && protocol !== 'data:') complain(`request to another origin: ${href}`);
  });
  page.on('response', (response) => {
    if (response.status() >= 400) complain(`${response.status()} for ${new URL(response.url()).pathname}`);
  });
  // Violations are on the browser's console anyway; this adds the name of the directive.
  await page.evaluateOnNewDocument(() => {
    addEventListener('securitypolicyviolation', ({ effectiveDirective, blockedURI }) => {
      console.error(`broke the policy: ${effectiveDirective} ${blockedURI}`);
    });
  });
  return complaints;
}

export const wearTheme = (page, theme) =>
  page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: theme }]);

/** Opens a page of the portal. */
export async function go(page, path, status = 200) {
  const response = await page.goto(ORIGIN + path);
  assert.equal(response.status(), status, path);
  return response;
}

/** Runs an action that opens another page, and waits for that page. */
export async function follow(page, action) {
  const [response] = await Promise.all([page.waitForNavigation(), action()]);
  return response;
}

/** The element with this ARIA role and accessible name. */
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

/** Signs out; on a narrow screen the button is in the menu. */
export async function signOut(page) {
  const menu = await page.$('.menu summary');
  if (await menu.isVisible()) await menu.click();
  await clickTo(page, 'button', 'Sign out');
}

/** Orders credit, up to the payment page. */
export async function orderCredit(page, button) {
  const found = await named(page, 'button', button);
  // There is a page with a refresh in between.
  const arrived = new Promise((done, failed) => {
    const late = () => failed(new Error(`the payment page did not come, but ${page.url()}`));
    const timer = setTimeout(late, TIMEOUT_MS);
    page.on('load', function look() {
      if (!new URL(page.url()).pathname.startsWith('/portal/billing/test-payment/')) return;
      clearTimeout(timer);
      page.off('load', look);
      done();
    });
  });
  await Promise.all([arrived, found.click()]);
}

/** Buys credit, from the billing page and back to it. */
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

/** Waits until `holds` returns true in the page. It is evaluated after every change of the document. */
export function until(page, holds, ...given) {
  const wait = (holds, given, timeout) => new Promise((done, failed) => {
    const observer = new MutationObserver(check);
    const late = () => failed(new Error(`it never came to ${holds}: ${document.body.innerText}`));
    const timer = setTimeout(late, timeout);
    function check() {
      if (!holds(...given)) return;
      clearTimeout(timer);
      observer.disconnect();
      done();
    }
    observer.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
    check();
  });
  // Passed as text, because the content security policy forbids `eval` in the page.
  return page.evaluate(`(${wait})(${holds}, ${JSON.stringify(given)}, ${TIMEOUT_MS})`);
}

/** Stops the page from refreshing its parts, so that all checks see the same ones. */
export const holdRefreshes = (page) => page.evaluate(() => {
  addEventListener('htmx:before:request', (event) => event.preventDefault());
});

/** Reloads a page until `holds` is true, for data that is stored with a delay. */
export async function eventually(page, path, holds) {
  const deadline = Date.now() + TIMEOUT_MS;
  for (;;) {
    await go(page, path);
    if (await holds()) return;
    assert.ok(Date.now() < deadline, `${path} never came to ${holds}: ${await textOf(page)}`);
  }
}

/** Takes a screenshot of the whole page if screenshots are wanted, and returns its size in bytes. */
export async function photograph(page, name, format = { type: 'png' }) {
  return TAKES_PICTURES ? shoot(page, name, format) : undefined;
}

export async function photographFailure(page, name) {
  if (page.url() === 'about:blank') return;
  await shoot(page, `failed-${name.replaceAll(/\W+/g, '-')}`, { type: 'png' }).catch(() => {});
}

async function shoot(page, name, format) {
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
  await clickTo(page, 'button', 'Create account');
}

/** Creates a key in the portal and returns it, as shown once. */
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
