// All pages under test: how to open each, and the texts that it must contain, with and without scripts.

import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { DEMO, operate } from './gateway.mjs';
import { theFrugal, theResident } from './resident.mjs';
import {
  assertQuiet, clickTo, DESKTOP, eventually, fill, follow, go, makeKey, named, orderCredit, photographFailure, signIn, textOf,
  until, visitor, wearTheme,
} from './visitor.mjs';

const page = (name, path, ...says) => ({ name, says, open: (page) => go(page, path) });

/** What the customer orders and does not pay: US dollars. */
export const ORDERED = '25.00';
/** What an operator is asked about: US dollars. */
export const ASKED = '12.50';

/** The portal's pages in the navigation, in its order. */
export const PAGES = [
  page('overview', '/portal', 'Overview', 'Balance', 'Spent today', 'Daily cost', 'Latest requests', 'All requests'),
  page('keys', '/portal/keys', 'API keys', 'production', 'Website', 'old laptop', 'disabled', 'Create key'),
  page('projects', '/portal/projects', 'Projects', 'Website', 'Create project'),
  page('playground', '/portal/playground', 'Playground', 'Model', 'Settings', 'Message', 'Send'),
  page('models', '/portal/models', 'Models', 'svc-native-fast', 'svc-flex-beta-3.6', 'Included'),
  page('requests', '/portal/requests', 'Requests', 'svc-pro-coding', 'Answered', 'Failed'),
  page('usage', '/portal/usage', 'Usage', 'Daily cost', 'Daily requests', 'Usage by model', 'Download as CSV'),
  page('billing', '/portal/billing', 'Billing', 'Available', 'Welcome', 'Invoice 2026-0417', '$120.00', 'Add credit', 'Auto top-up', 'On When the balance falls below $5.00', 'R-', 'Test mode'),
  page('budgets', '/portal/budgets', 'Budgets', 'Whole account', 'Project Website', 'Key production', 'warns only', 'Set budget'),
  page('plan', '/portal/plan', 'Plan and limits', 'Flex', 'Business', 'Limits per minute'),
  page('members', '/portal/members', 'Members', 'ada@example.com', 'owner', 'Invitations', 'Invite'),
  page('settings', '/portal/settings', 'Settings', 'ada@example.com', 'Change password', 'this one', 'Two-factor authentication', 'Delete account'),
];

/** Opens the question before a key's secret ends at once. */
async function askToRotate(page) {
  await go(page, '/portal/keys');
  await clickTo(page, 'link', 'Edit old laptop');
  await page.select('[name="grace"]', '0');
  await clickTo(page, 'button', 'Rotate key');
}

async function openReceipt(page) {
  await go(page, '/portal/billing/payments');
  await follow(page, () => page.click('a[href^="/portal/billing/receipts/"]'));
}

async function openStatement(page) {
  await go(page, '/portal/billing/statements');
  await follow(page, () => page.click('main li a'));
}

/** Pages reached from those, and special states of them. */
export const STATES = [
  page('usage-by-member', '/portal/usage?by=member', 'Usage by member', 'Service keys'),
  page('usage-last-hour', '/portal/usage?range=1h', 'Cost by minute', 'Usage by minute', 'Time to first token'),
  page('requests-errors', '/portal/requests?outcome=errors&last=24h', 'Errors only', 'Failed', 'Download as CSV'),
  page('usage-by-key', '/portal/usage?days=7&by=key', 'Usage by key', 'nightly tests'),
  {
    name: 'request',
    says: ['Request', 'svc-basic', 'Cost breakdown', 'Charged', 'Steps', 'convert_units'],
    async open(page) {
      await go(page, '/portal/requests?model=svc-basic');
      await follow(page, () => page.click('main tbody a'));
    },
  },
  page('refused-requests', '/portal/requests/refused', 'Refused requests', 'Last 24 hours', 'Unknown model'),
  {
    name: 'refused-request',
    says: ['Unknown model', 'What to do', 'How often', 'svc-natve-fast'],
    async open(page) {
      await go(page, '/portal/requests/refused?code=model_not_found');
      await follow(page, () => page.click('main > .scroll tbody a'));
    },
  },
  page('found-nothing', '/portal/requests/find?id=nothing', 'Find a request', 'No matching requests'),
  {
    name: 'delete-key',
    says: ['Delete old laptop?', 'Cancel'],
    async open(page) {
      await go(page, '/portal/keys');
      await clickTo(page, 'link', 'Delete old laptop');
    },
  },
  {
    name: 'key',
    says: ['old laptop', 'Project', 'Last day', 'Models', 'Save', 'Rotate key'],
    async open(page) {
      await go(page, '/portal/keys');
      await clickTo(page, 'link', 'Edit old laptop');
    },
  },
  {
    name: 'rotate-question',
    says: ['Rotate old laptop now?', 'cannot be restored', 'Rotate key now', 'Cancel'],
    open: askToRotate,
  },
  page('auto-top-up-on', '/portal/billing/top-up', 'Auto top-up', 'At most in a calendar month', 'Turned on by ada@example.com', 'Save'),
  page('payments', '/portal/billing/payments', 'Payments', 'ada@example.com', '$10.00', 'Paid'),
  {
    name: 'receipt',
    says: ['Receipt R-', 'Ada Lovelace', 'Total paid', '$10.00', 'no card was charged'],
    open: openReceipt,
  },
  page('billing-details', '/portal/billing/details', 'Billing details', 'Save'),
  page('statements', '/portal/billing/statements', 'Statements', 'To date'),
  {
    name: 'statement',
    says: ['Statement to date', 'Opening balance', 'svc-standard', 'Invoice 2026-0417', 'Closing balance'],
    open: openStatement,
  },
  page('two-factor', '/portal/settings/two-factor', 'Two-factor authentication', 'authenticator app', 'Set up'),
  page('delete-account', '/portal/settings/delete', 'Delete this account?', 'This cannot be undone', 'Cancel'),
  page('leave', '/portal/members/leave', 'Leave this account?', 'Cancel'),
  page('sign-out-elsewhere', '/portal/settings/sessions', 'Sign out everywhere else?', 'Cancel'),
  page('top-up-off', '/portal/billing/top-up/off', 'Turn off auto top-up?', 'Cancel'),
  page('deleted-keys', '/portal/keys/deleted', 'Deleted keys', 'stays in your history'),
  page('nothing-found', '/portal/requests?outcome=lost', 'No matching requests.'),
  {
    name: 'not-found',
    says: ['Not found', 'Go to overview'],
    async open(page) {
      page.expected.push('404');
      await go(page, '/portal/nothing-here', 404);
    },
  },
];

/** Clicks a button that a script handles; without scripts it opens another page. */
async function press(page, name, holds, ...given) {
  if (!page.isJavaScriptEnabled()) return clickTo(page, 'button', name);
  await (await named(page, 'button', name)).click();
  return until(page, holds, ...given);
}

/** Whether so many answers of the playground have their cost. */
const haveCosts = (number) => document.querySelectorAll('.turn:last-child .meta a').length === number;

/** Pages that are reached by changing something. */
export const ACTIONS = [
  {
    name: 'test-payment',
    says: ['Test payment', `$${ORDERED}`, 'Pay', 'Cancel'],
    offers: [['p.figure', [`$${ORDERED}`]]],
    async open(page) {
      await go(page, '/portal/billing');
      await orderCredit(page, `Add $${ORDERED}`);
    },
    undo: (page) => clickTo(page, 'link', 'Cancel'),
  },
  {
    name: 'new-key',
    says: ['Your new key', 'Copy it now', 'curl'],
    open: (page) => makeKey(page, 'staging'),
    async undo(page) {
      await go(page, '/portal/keys');
      await clickTo(page, 'link', 'Delete staging');
      await clickTo(page, 'button', 'Delete key');
    },
  },
  {
    name: 'rotated',
    says: ['New secret', 'Copy it now', 'no longer works'],
    async open(page) {
      await askToRotate(page);
      await clickTo(page, 'button', 'Rotate key now');
    },
  },
  {
    name: 'answered',
    says: ['You', 'svc-native-fast', 'tokens in', 'first token after'],
    saysPlain: ['You', 'svc-native-fast', 'tokens in', 'in total'],
    answers: 1,
    async open(page) {
      await go(page, '/portal/playground');
      await press(page, 'Send', haveCosts, 1);
    },
  },
  {
    name: 'compared',
    says: ['svc-native-fast', 'tokens in', 'Compare with another model'],
    saysPlain: ['svc-native-fast', 'svc-native-light', 'tokens in', 'Send the last message to this model too'],
    answers: 2,
    async open(page) {
      await go(page, '/portal/playground');
      if (page.isJavaScriptEnabled()) await (await named(page, 'button', 'Compare with another model')).click();
      await fill(page, 'message', 'Which of you is shorter?');
      await press(page, 'Send', haveCosts, 2);
      if (page.isJavaScriptEnabled()) return;
      await page.select('[name="model"]', 'svc-native-light');
      await clickTo(page, 'button', 'Send the last message to this model too');
    },
  },
];

/** The pages of somebody whose credit runs out. */
export const FRUGAL = [
  page('low-balance', '/portal', 'Low balance: $0.', 'Requests are refused once it is used up', 'Add credit'),
  page('low-balance-billing', '/portal/billing', 'Low balance: $0.', 'Set up auto top-up', 'Trial'),
  page('auto-top-up', '/portal/billing/top-up', 'Auto top-up', 'At most in a calendar month', 'Turn on'),
  page('two-factor-setup', '/portal/settings/two-factor', 'Scan this', 'enter this key', 'Turn on'),
];

/** The pages of a member who looks after the account's money: other people's usage and budgets, but no requests. */
export const LEAD = [
  page('lead-overview', '/portal', 'Overview', 'Balance', 'Spent today'),
  page('lead-usage-by-member', '/portal/usage?by=member', 'Usage by member', 'Service keys'),
  page('lead-billing', '/portal/billing', 'Billing', 'Available', 'Invoice 2026-0417', 'Auto top-up'),
  page('lead-auto-top-up', '/portal/billing/top-up', 'Auto top-up', 'Turned on by ada@example.com', 'Save'),
  page('lead-payments', '/portal/billing/payments', 'Payments', 'ada@example.com', '$10.00', 'Paid'),
  { name: 'lead-receipt', says: ['Receipt R-', 'Total paid', '$10.00'], open: openReceipt },
  page('lead-statements', '/portal/billing/statements', 'Statements', 'To date'),
  { name: 'lead-statement', says: ['Statement to date', 'svc-standard', 'Closing balance'], open: openStatement },
  page('lead-billing-details', '/portal/billing/details', 'Billing details', 'Save'),
  page('lead-budgets', '/portal/budgets', 'Budgets', 'Whole account', 'Project Website', 'Set budget'),
  page('lead-members', '/portal/members', 'Members', 'ada@example.com', 'mary@example.com', 'Leave this account'),
  page('lead-settings', '/portal/settings', 'Settings', 'mary@example.com', 'You can leave this account', 'Two-factor authentication'),
  {
    name: 'lead-not-allowed',
    says: ['Not for your role', 'Requests are for owners and developers'],
    async open(page) {
      page.expected.push('403');
      await go(page, '/portal/requests', 403);
    },
  },
];

let guesses = 0;

/** The version of the configuration that the history has. */
const HOUSE = { note: 'A name of our own', alias: 'house-model' };

/** Previews other values of fields in a form of the configuration. */
async function preview(page, form, values) {
  await go(page, form);
  for (const [field, value] of Object.entries(values)) {
    await page.$eval(`main [name="${field}"]`, (input, value) => { input.value = value; }, value);
  }
  await clickTo(page, 'button', 'Preview');
}

/** The console's pages in its navigation, in its order; after them the pages reached from those. */
export const CONSOLE = [
  page('console-live', '/portal/console', 'Live', 'Requests a second', 'Spend', 'Running'),
  page('console-requests', '/portal/console/requests', 'Requests', 'Answered', 'simulator'),
  page('console-margin', '/portal/console/margin', 'Margin', 'Provider cost'),
  page('console-accounts', '/portal/console/accounts', 'Accounts', 'ada@example.com', 'New account'),
  page('console-people', '/portal/console/people', 'People', 'ada@example.com', 'customer'),
  page('console-models', '/portal/console/models', 'Models', 'svc-flex-beta-3.6', 'enabled'),
  page('console-configuration', '/portal/console/config', 'Configuration', 'Models', 'Aliases', 'Deployments', 'Providers', 'svc-flex-beta-3.6', 'Add a provider'),
  page('console-limits', '/portal/console/limits', 'Limits per minute', 'Set limit'),
  page('console-deployments', '/portal/console/deployments', 'Deployments', 'simulator'),
  page('console-alerts', '/portal/console/alerts', 'Alerts', 'resolved by itself', 'Resolved'),
  page('console-audit', '/portal/console/audit', 'Audit', 'Run audit'),
  page('console-actions', '/portal/console/actions', 'Actions', 'Target'),
];
export const CONSOLE_STATES = [
  {
    name: 'console-account',
    says: ['ada@example.com', 'Grant credit', 'Latest requests', '$120.00'],
    async open(page) {
      await go(page, '/portal/console/accounts?text=ada%40example.com');
      await clickTo(page, 'link', 'ada@example.com');
    },
  },
  {
    name: 'console-keys',
    says: ['Keys', 'old laptop', 'disabled'],
    async open(page) {
      await go(page, '/portal/console/accounts?text=ada%40example.com');
      await clickTo(page, 'link', 'ada@example.com');
      await clickTo(page, 'link', 'All keys');
    },
  },
  {
    name: 'console-request',
    says: ['svc-basic', 'convert_units'],
    async open(page) {
      await go(page, '/portal/console/requests?model=svc-basic');
      await follow(page, () => page.click('main tbody a'));
    },
  },
  page('console-refused-requests', '/portal/console/requests/refused', 'Refused requests', 'svc-natve-fast'),
  {
    name: 'console-refused-request',
    says: ['Unknown model', 'svc-natve-fast', 'How often'],
    async open(page) {
      await go(page, '/portal/console/requests/refused?model=svc-natve-fast');
      await follow(page, () => page.click('main > .scroll tbody a'));
    },
  },
  {
    name: 'console-invited',
    says: ['bob@example.com', '/portal/welcome?link='],
    async open(page) {
      await go(page, '/portal/console/accounts?text=ada%40example.com');
      await clickTo(page, 'link', 'ada@example.com');
      await page.type('main form[action$="/invitations"] [name="email"]', 'bob@example.com');
      await clickTo(page, 'button', 'Invite');
    },
  },
  page('console-config-model', '/portal/console/config/models/edit?name=svc-pro', 'Model svc-pro', 'Input price', 'Other settings', 'Preview'),
  page('console-config-deployment', '/portal/console/config/deployments/new', 'New deployment', 'Weight', 'Your cost of input'),
  page('console-config-alias', '/portal/console/config/aliases/edit?name=gpt-*', 'Alias gpt-*', 'Model', 'Preview'),
  page('console-config-provider', '/portal/console/config/providers/new', 'New provider', 'Environment variable of the API key', 'Preview'),
  {
    name: 'console-config-model-preview',
    says: ['Change svc-pro?', 'Nothing is applied yet', 'output = "9.75"', 'Apply', 'Back to the form'],
    open: (page) => preview(page, '/portal/console/config/models/edit?name=svc-pro', { 'f.output': '9.75' }),
  },
  {
    name: 'console-config-provider-preview',
    says: ['Add the provider?', 'Running calls finish with the old settings', 'base_url = "https://models.example.com/v1"', 'Apply'],
    open: (page) => preview(page, '/portal/console/config/providers/new', {
      name: 'house', 'f.kind': 'openai', 'f.base_url': 'https://models.example.com/v1',
    }),
  },
  page('console-config-history', '/portal/console/config/history', 'History', 'Version 1', HOUSE.note),
  page('console-config-version', '/portal/console/config/history/1', 'Version 1', 'Changes from the version before', 'house-model'),
  {
    name: 'console-open-alert',
    says: ['Open alerts', 'What to do', 'Ebenezer', 'The account'],
    async open(page) {
      await eventually(page, '/portal/console/alerts', async () => (await textOf(page)).includes('Ebenezer'));
      const entry = await page.$eval('nav [aria-current="page"]', ({ textContent }) => textContent);
      assert.match(entry, /^Alerts [1-9]\d* open$/, 'the entry of the menu says how many are open');
    },
  },
  page('console-paused', '/portal/console?model=svc-pro-coding&paused=yes', 'Latest requests', 'svc-pro-coding', 'Paused.', 'Resume'),
  {
    name: 'console-reset-two-factor',
    says: ['Reset two-factor authentication of ada@example.com?', 'call them back', 'Cancel'],
    async open(page) {
      const { data: [account] } = await operate('GET', '/operator/accounts?email=ada@example.com');
      const { data: people } = await operate('GET', `/operator/accounts/${account.id}/people`);
      const { id } = people.find(({ email }) => email === 'ada@example.com');
      await go(page, `/portal/console/people/${id}/second-factor`);
    },
  },
  {
    name: 'console-grant-question',
    says: [`Grant $${ASKED} to ada@example.com?`, 'Credit cannot be taken back', 'Cancel'],
    offers: [['h1', [`$${ASKED}`]], ['form button.bad, form button.primary', [`$${ASKED}`]]],
    async open(page) {
      await go(page, '/portal/console/accounts?text=ada%40example.com');
      await clickTo(page, 'link', 'ada@example.com');
      await fill(page, 'amount', ASKED);
      await fill(page, 'reason', 'paid by transfer');
      await clickTo(page, 'button', 'Grant credit');
    },
  },
  page('console-disable-model', '/portal/console/models/disable?model=svc-pro', 'Disable svc-pro?', 'Cancel'),
  {
    name: 'console-audited',
    says: ['Everything adds up'],
    async open(page) {
      await go(page, '/portal/console/audit');
      await clickTo(page, 'button', 'Run audit');
    },
  },
];

/** Pages for visitors without a session. */
export const OUTSIDE = [
  page('sign-in', '/portal/sign-in', 'Sign in', 'Email', 'Password', 'Create account'),
  page('console-sign-in', '/portal/console/sign-in', 'Operator token'),
  {
    name: 'dead-link',
    says: ['This link cannot be used'],
    async open(page) {
      page.expected.push('410');
      await go(page, '/portal/welcome?link=of-nobody', 410);
    },
  },
  page('sign-up', '/portal/sign-up', 'Create account', 'At least 10 characters.'),
  {
    name: 'refused',
    says: ['Wrong email or password.'],
    async open(page) {
      page.expected.push('401');
      await go(page, '/portal/sign-in');
      // Attempts are throttled by address, so each uses another one.
      guesses += 1;
      await fill(page, 'email', `nobody-${guesses}@example.com`);
      await fill(page, 'password', 'not the password');
      const response = await clickTo(page, 'button', 'Sign in');
      assert.equal(response.status(), 401);
    },
  },
];

/** A visitor who is signed in as the resident. */
export async function resident(t, options = {}) {
  const { cookies } = await theResident(() => visitor(t));
  return visitor(t, { ...options, cookies });
}

/** A visitor who is signed in as a member of the resident's account with the role billing. */
export async function lead(t, options = {}) {
  const { lead } = await theResident(() => visitor(t));
  return visitor(t, { ...options, cookies: lead.cookies });
}

/** A visitor who is signed in as somebody with little credit. */
export async function frugal(t, options = {}) {
  const { cookies } = await theFrugal(() => visitor(t));
  return visitor(t, { ...options, cookies });
}

let demosCookies = null;

/** A visitor who is signed in as the demo person of `tollgate dev`. Who signs out must sign in on their own. */
export async function demo(t, options = {}) {
  demosCookies ??= visitor(t).then(async (page) => {
    await signIn(page, DEMO);
    return page.browserContext().cookies();
  });
  return visitor(t, { ...options, cookies: await demosCookies });
}

let prepared = null;

/** A visitor who is signed in as an operator, who has changed the configuration once, and has an open alert. */
export async function operator(t, options = {}) {
  const prepare = async () => {
    const changes = { aliases: { [HOUSE.alias]: { set: 'model = "svc-pro"' } } };
    await operate('PUT', '/operator/config', { changes, based_on: 0, note: HOUSE.note });
    await theFrugal(() => visitor(t));
  };
  await (prepared ??= prepare());
  return demo(t, options);
}

/** Who sees which pages, and the account whose amounts they have; without one they see those of all. */
const AUDIENCES = [
  // The first ones change what others see, so nobody is beside them.
  { audience: 'customer who acts', newVisitor: resident, places: ACTIONS, alone: true, email: 'ada@example.com' },
  { audience: 'customer', newVisitor: resident, places: [...PAGES, ...STATES], email: 'ada@example.com' },
  { audience: 'operator', newVisitor: operator, places: [...CONSOLE, ...CONSOLE_STATES] },
  { audience: 'team lead', newVisitor: lead, places: LEAD, email: 'ada@example.com' },
  { audience: 'frugal customer', newVisitor: frugal, places: FRUGAL, email: 'frugal@example.com' },
  { audience: 'stranger', newVisitor: visitor, places: OUTSIDE, email: 'nobody@example.com' },
];

/** How many pages are open at once. */
const AT_ONCE = 2;

/**
 * Declares a test for each page of each audience, which opens it and runs `check` with the browser's page, the page under test
 * and its audience. Each audience has one visitor, who goes from page to page.
 */
export function everywhere(what, options, check) {
  const declare = (isAlone, concurrency) => suite(what, { concurrency }, () => {
    for (const whose of AUDIENCES) if (Boolean(whose.alone) === isAlone) pagesOf(what, whose, options, check);
  });
  declare(true, 1);
  declare(false, AT_ONCE);
}

function pagesOf(what, whose, options, check) {
  suite(whose.audience, { concurrency: 1 }, () => {
    const visit = new Visit(`${what} ${whose.audience}`);
    let page;
    before(async () => {
      await theResident(() => visitor(visit)); // whose requests operators see
      page = await whose.newVisitor(visit, options);
    });
    after(() => visit.end());
    for (const place of whose.places) test(`${whose.audience}: ${place.name}`, async () => {
      page.expected = [];
      try {
        await place.open(page);
        await check(page, place, whose);
      } catch (error) {
        await photographFailure(page, `${what} ${whose.audience} ${place.name}`);
        await leave(page, place, options);
        throw error;
      }
      await place.undo?.(page);
      assertQuiet(page);
    });
  });
}

/** Brings a page back to how the next check expects it, as far as the failed one allows. */
async function leave(page, place, { screen = DESKTOP }) {
  await page.setViewport(screen);
  await wearTheme(page, 'light');
  await place.undo?.(page).catch(() => {});
  page.complaints.length = 0;
}

/** What visitors know of a test, for visitors who stay for several tests. */
class Visit {
  passed = true; // Each test photographs its own failure.
  #ends = [];

  constructor(name) {
    this.name = name;
  }

  after(end) {
    this.#ends.push(end);
  }

  async end() {
    for (const end of this.#ends) await end();
  }
}
